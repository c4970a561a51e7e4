"""The files of one log: everything but its batches' bytes goes through here.

Owns roll, truncation, checkpoints, delete-records and the removal of segments, each as a change of the log's
state on the owner thread plus an ordered call on the writer's thread that brings the files to the same
state. What a call needs is captured when it is queued; it never looks at the log.

What must be durable when: a new segment's name before its first write; `log-state.json` (epochs, counts of
aborted transactions) and `.txnindex` before a recovery point passes them; `partition.json` before
delete-records is acknowledged. Indexes and producer snapshots may be lost with the power: they carry CRCs
and are rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import google_crc32c

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.runtime.blocking import Job
from tailrace.cluster.storage.derived import load_producers, snapshot_path
from tailrace.cluster.storage.files import Files, write_atomic
from tailrace.cluster.storage.logstate import SavedLogState, saved_segments, write_log_state
from tailrace.cluster.storage.segment import (
    CONTENT_UNKNOWN,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    Place,
    Segment,
)
from tailrace.cluster.storage.statefile import write_state

if TYPE_CHECKING:
    from tailrace.cluster.storage.log import Log

PARTITION_FILE = "partition.json"
_SNAPSHOTS_BESIDE_SEGMENTS = 2


class RecoveryPoint(NamedTuple):
    """Below `offset`, at `position` of the segment at `base`, everything is on stable storage."""

    offset: int
    base: int
    position: int


class LogFiles:
    """`rewrites` counts changes after which a saved recovery point may no longer mean what it says: bytes
    below it were cut off (down to `lowered_to`) or moved. It is saved before such a change, and a recovery
    that finds a point with another count starts at a segment's beginning instead.
    """

    def __init__(self, log: Log, snapshots: list[int], rewrites: int) -> None:
        self._log = log
        self.rewrites = rewrites
        self._lowered_to: int | None = None
        self.snapshots = snapshots
        self._unwritten: dict[int, bytes] = {}
        self._saved_epochs = log.epochs.entries()
        self._saved_segments = saved_segments(log.segments)
        self.checkpointed_end = log.end_offset
        self._unsynced_since: int | None = None
        self.recovery_point = RecoveryPoint(log.end_offset, log.active.base_offset, log.active.size)
        self.bytes_at_checkpoint = 0

    def jitter_ms(self, base_offset: int, largest: int) -> int:
        """Differs from log to log and segment to segment, and is the same after a restart."""
        if not largest:
            return 0
        seed = f"{self._log.directory}/{base_offset}".encode()
        return int(google_crc32c.value(seed)) % (largest + 1)

    def new_segment(self, base: int, now_ms: int) -> Segment:
        log = self._log
        return Segment(
            files=log.home.files,
            handles=log.home.handles,
            directory=log.directory,
            base_offset=base,
            next_offset=base,
            index_interval=log.config.index_interval_bytes,
            fresh=True,
            created_ms=now_ms,
        )

    # Roll.

    def roll(self, base: int, now_ms: int) -> None:
        log = self._log
        old = log.active
        if base == old.base_offset:
            return
        replaces_empty = old.size == 0
        new = self.new_segment(base, now_ms)
        seal = None if replaces_empty else self._sealing(old)
        snapshot = self._snapshot_at(base)
        if replaces_empty:
            log.segments.pop()
            log.bases.pop()
            if log.segments:
                log.segments[-1].next_offset = base
        else:
            end = old.records_end
            if end is None:  # Nothing was added since it was opened or cut.
                end = old.end_of_records(Place(old.next_offset, old.size))
            old.content_end = CONTENT_UNKNOWN if end is None else end
            old.next_offset = base
        log.segments.append(new)
        log.bases.append(base)
        log.end_offset = base
        create = self.creating(new)
        save_state = self.saving_state()

        def work() -> None:
            if seal is not None:
                seal()
            snapshot()
            create()
            save_state()
            if replaces_empty:
                remove_segment(log.home.files, old)
                log.home.handles.forget(old.path)
                log.home.files.sync_dir(old.directory)

        log.home.writer.queue_call(work)

    def _sealing(self, old: Segment) -> Job:
        log = self._log
        writer, files, handles = log.home.writer, log.home.files, log.home.handles
        save_indexes = self.saving_indexes(old)
        path, size = old.path, old.size
        sync = log.config.flush == "commit"

        def seal() -> None:
            with handles.borrow(path, write=True) as file:
                reserved = file.size() > size
                if reserved:  # Space was reserved for it, perhaps under an earlier setting.
                    file.truncate(size)
            if sync or reserved:
                writer.seal_file(path)
            save_indexes(files)

        old.close()
        return seal

    def creating(self, new: Segment) -> Job:
        files, handles = self._log.home.files, self._log.home.handles
        path, directory = new.path, new.directory
        reserve = self._log.config.segment_bytes if self._log.config.preallocate else 0
        new.reserved = bool(reserve)

        def create() -> None:
            with handles.borrow(path, create=True) as file:
                file.truncate(0)
                if reserve:
                    file.allocate(reserve)
            files.sync_dir(directory)

        return create

    def saving_indexes(self, segment: Segment) -> Callable[[Files], None]:
        """Append what the index files lack; the transaction index is synced, as it cannot be missed."""
        index_frame = segment.index.encode_frame(segment.persisted_entries)
        aborted_frame = segment.aborted.encode_frame(segment.persisted_aborted)
        new_index, new_aborted = not segment.persisted_entries, not segment.persisted_aborted
        segment.persisted_entries = len(segment.index)
        segment.persisted_aborted = len(segment.aborted)
        index_path, txn_path = segment.sibling(INDEX_SUFFIX), segment.sibling(TXN_INDEX_SUFFIX)

        def save(files: Files) -> None:
            if index_frame and new_index:
                write_atomic(files, index_path, index_frame, sync=False)
            elif index_frame:
                _append(files, index_path, index_frame, sync=False)
            if aborted_frame and new_aborted:
                write_atomic(files, txn_path, aborted_frame)
            elif aborted_frame:
                _append(files, txn_path, aborted_frame, sync=True)

        return save

    # Producer snapshots.

    def _snapshot_at(self, offset: int) -> Job:
        """Write the producers' states as of the end of the log, so that later replays can start there."""
        log = self._log
        files, directory, blocking = log.home.files, log.directory, log.home.blocking
        if offset in self.snapshots:
            self.snapshots.remove(offset)
        self.snapshots.append(offset)
        data = self._unwritten[offset] = log.producers.encode(offset)
        keep = set(log.bases) | {offset}
        loose = [at for at in self.snapshots if at not in keep]
        surplus = [at for at in loose[:-_SNAPSHOTS_BESIDE_SEGMENTS] if at != offset]
        self.snapshots = sorted(at for at in self.snapshots if at not in surplus)

        def save() -> None:
            write_atomic(files, snapshot_path(directory, offset), data, sync=False)
            for at in surplus:
                files.remove(snapshot_path(directory, at))
            blocking.post(written)

        def written() -> None:
            if self._unwritten.get(offset) is data:
                del self._unwritten[offset]

        return save

    def read_snapshot(self, offset: int) -> bytes:
        """One that still waits with the writer is read from memory: the file may be missing, or an older
        one of the same name from before a truncation.
        """
        data = self._unwritten.get(offset)
        return (
            data
            if data is not None
            else self._log.home.files.read(snapshot_path(self._log.directory, offset))
        )

    def forget_snapshots(self, beyond: int) -> list[str]:
        gone = [at for at in self.snapshots if at > beyond]
        for at in gone:
            self._unwritten.pop(at, None)
        self.snapshots = [at for at in self.snapshots if at <= beyond]
        return [snapshot_path(self._log.directory, at) for at in gone]

    def forget_snapshots_below(self, offset: int) -> list[str]:
        gone = [at for at in self.snapshots if at < offset]
        for at in gone:
            self._unwritten.pop(at, None)
        self.snapshots = [at for at in self.snapshots if at >= offset]
        return [snapshot_path(self._log.directory, at) for at in gone]

    def rebuild_producers(self, now_ms: int) -> None:
        """After a truncation: the newest snapshot at or below the end, and what the log says after it."""
        log = self._log
        log.producers = load_producers(
            self.read_snapshot, log.segments, self.snapshots, log.log_start_offset, now_ms
        )
        log.producers.on_high_watermark(log.high_watermark)

    # Checkpoint.

    def flush_if_due(self, now_ms: int) -> None:
        """Under flush=os: sync after flush.messages records or flush.ms, whichever comes first."""
        log = self._log
        unsynced = log.durable_end - log.synced_end
        if unsynced <= 0:
            self._unsynced_since = None
            return
        if self._unsynced_since is None:
            self._unsynced_since = now_ms
        config = log.config
        if unsynced >= config.flush_messages or now_ms - self._unsynced_since >= config.flush_ms:
            self._unsynced_since = now_ms
            self.flush()

    def trim(self) -> None:
        """Give back the disk space that the active segment reserved but does not use."""
        log = self._log
        if log.active.reserved:
            path, size, handles = log.active.path, log.active.size, log.home.handles

            def work() -> None:
                with handles.borrow(path, write=True) as file:
                    file.truncate(size)
                handles.sync(path)

            log.home.writer.queue_call(work)

    def flush(self) -> None:
        """Sync all that is written so far."""
        log = self._log
        end, truncations = log.end_offset, log.truncations
        paths = self.paths_since_recovery_point(log.segments)
        writer = log.home.writer

        def work() -> None:
            for path in paths:
                writer.seal_file(path)

        def done() -> None:
            if log.truncations == truncations and log.failure is None:
                log.synced_end = max(log.synced_end, end)

        writer.queue_call(work, done)

    @property
    def checkpoint_due_bytes(self) -> int:
        return self._log.appended_bytes - self.bytes_at_checkpoint

    @property
    def unsaved(self) -> bool:
        log = self._log
        here = RecoveryPoint(log.end_offset, log.active.base_offset, log.active.size)
        return self.recovery_point != here or self.checkpointed_end != log.end_offset or self._state_changed()

    def checkpoint(self, done: Job | None = None) -> None:
        """Move the recovery point to the current end: a later recovery scans only what comes after."""
        log = self._log
        files, writer = log.home.files, log.home.writer
        active = log.active
        point = RecoveryPoint(log.end_offset, active.base_offset, active.size)
        unsynced = self.paths_since_recovery_point(log.segments)
        save_indexes = self.saving_indexes(active)
        save_state = self._saving_changed_state()
        snapshot = self._snapshot_at(log.end_offset)
        sync_files = log.config.flush != "commit"
        self.checkpointed_end = log.end_offset
        self.bytes_at_checkpoint = log.appended_bytes
        log.home.touched.discard(log)
        truncations, rewrites = log.truncations, self.rewrites

        def work() -> None:
            if sync_files:
                for path in unsynced:
                    writer.seal_file(path)
            save_indexes(files)
            snapshot()
            if save_state is not None:
                save_state()

        def moved() -> None:
            if (log.truncations, self.rewrites) == (truncations, rewrites) and log.failure is None:
                self.recovery_point = point
                log.synced_end = max(log.synced_end, point.offset)
            if done is not None:
                done()

        writer.queue_call(work, moved)

    def paths_since_recovery_point(self, segments: Sequence[Segment]) -> list[str]:
        """Files that may hold writes which are not synced, or synced only by way of the journal."""
        return [segment.path for segment in segments if segment.base_offset >= self.recovery_point.base]

    def _state_changed(self) -> bool:
        log = self._log
        return (
            log.epochs.entries() != self._saved_epochs or saved_segments(log.segments) != self._saved_segments
        )

    def _saving_changed_state(self) -> Job | None:
        return self.saving_state() if self._state_changed() else None

    def saving_rewrite(self, lowered_to: int | None = None, *, without_segments: bool = False) -> Job:
        """What must be done, on the writer's thread, before bytes below the recovery point change."""
        self.rewrites += 1
        if lowered_to is not None:
            self._lowered_to = min(lowered_to, lowered_to if self._lowered_to is None else self._lowered_to)
        return self.saving_state(without_segments=without_segments)

    def save_state(self) -> None:
        self._log.home.writer.queue_call(self.saving_state())

    def leave_rewritten(self, next_base: int) -> None:
        """Segments below `next_base` were cleaned: positions in them mean nothing any more, and all of
        them is durable, so a recovery point in there moves to the segment that follows.
        """
        if self.recovery_point.base < next_base:
            self.recovery_point = RecoveryPoint(next_base, next_base, 0)

    def saving_state(self, *, without_segments: bool = False) -> Job:
        log = self._log
        self._saved_epochs = log.epochs.entries()
        self._saved_segments = () if without_segments else saved_segments(log.segments)
        state = SavedLogState(
            log.epochs,
            self._saved_segments,
            self.rewrites,
            self._lowered_to,
            log.config.flush,
            self._synced_records(),
        ).to_json()
        files, directory = log.home.files, log.directory
        return lambda: write_log_state(files, directory, state)

    def _synced_records(self) -> int:
        """The recovery point, or the end of the last record before it where it lies in a gap."""
        point, active = self.recovery_point, self._log.active
        if (point.base, point.position) != (active.base_offset, active.size):
            return point.offset
        end = active.end_of_records(Place(point.offset, point.position))
        return min(point.offset, active.base_offset if end is None else end)

    # Log start.

    def save_log_start(self, offset: int, done: Job | None) -> None:
        log = self._log
        body = partition_body(log, offset)
        files, path = log.home.files, f"{log.directory}/{PARTITION_FILE}"
        log.home.writer.queue_call(lambda: write_state(files, path, "partition", 1, body), done)

    def delete_segments(self, count: int) -> list[str]:
        """Take the first `count` segments out of the log; their files go after file.delete.delay.ms."""
        log = self._log
        gone = log.segments[:count]
        del log.segments[:count]
        del log.bases[:count]
        stale = [snapshot_path(log.directory, at) for at in self.snapshots if at < log.bases[0]]
        self.snapshots = [at for at in self.snapshots if at >= log.bases[0]]
        moves = [(path, path + DELETED_SUFFIX) for segment in gone for path in _all_paths(segment)]
        home, directory, delay_ms = log.home, log.directory, log.config.file_delete_delay_ms

        def work() -> None:
            for old, new in moves:
                if home.files.exists(old):
                    home.files.rename(old, new)
                    home.handles.rename(old, new)
            for path in stale:
                home.files.remove(path)
            # The log start is what the first segment says: it must not go back with the power.
            home.files.sync_dir(directory)

        home.writer.queue_call(work, lambda: home.remove_later([new for _, new in moves], delay_ms))
        return [segment.path for segment in gone]


def partition_body(log: Log, log_start: int) -> dict[str, object]:
    """Who the log is. The incarnation tells it from an earlier log of the same partition in this place."""
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "topic_id": log.key.topic_id.hex(),
        "incarnation": log.incarnation.hex(),
        "log_start_offset": log_start,
    }


def truncated_waiter(log: Log) -> TailraceError:
    return TailraceError(
        ErrorCode.NOT_LEADER, f"{log.topic_partition}: the record was truncated before it was committed"
    )


def _all_paths(segment: Segment) -> list[str]:
    return [segment.path, *index_paths(segment)]


def index_paths(segment: Segment) -> list[str]:
    return [segment.sibling(INDEX_SUFFIX), segment.sibling(TXN_INDEX_SUFFIX)]


def remove_segment(files: Files, segment: Segment) -> None:
    """The log goes first: a segment without its index is slow, an index without its log is litter."""
    for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        files.remove(segment.sibling(suffix))


def _append(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    file = files.open(path, create=True)
    try:
        file.pwritev([data], file.size())
        if sync:
            file.datasync()
    finally:
        file.close()
