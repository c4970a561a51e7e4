"""A log directory: one disk's worth of partition logs, with their writer, journal and checkpoint.

Owns `directory.json`, the lock, `checkpoint.json` and the journal. It fails as a whole: after a failed write
or sync none of its logs accepts or promises anything, while other directories go on.

`checkpoint.json` holds a recovery point for each log, and says whether the last shutdown was clean. It is
made unclean before the first write after opening.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import Blocking, Job
from tailrace.cluster.storage.checkpoint import SavedPoint, read_checkpoint, write_checkpoint
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.files import (
    Closeable,
    Files,
    make_durable_dirs,
    parent_of,
    storage_error,
)
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.journal import FILE_NAMES, Journal, read_redo
from tailrace.cluster.storage.log import Log, LogState
from tailrace.cluster.storage.logfiles import (
    PARTITION_FILE,
    partition_body,
)
from tailrace.cluster.storage.opening import CORRUPT_SUFFIX, DELETE_SUFFIX, ConfigOf, DirectoryOpener
from tailrace.cluster.storage.scanning import Opening
from tailrace.cluster.storage.segment import Segment
from tailrace.cluster.storage.statefile import read_state, write_state
from tailrace.cluster.storage.writer import DirectoryWriter

DIRECTORY_FILE = "directory.json"
LOCK_FILE = ".lock"


class DirectoryIdentity(NamedTuple):
    directory_id: UUID
    # Known to this directory alone: what makes a frame of its journal one of its own.
    secret: bytes


class DirectoryReport(NamedTuple):
    """What opening found, for the log of the process."""

    logs: int
    clean: bool
    scanned_bytes: int
    cut_bytes: int
    redone_writes: int
    damaged_frames: int


class LogDirectory:
    def __init__(
        self,
        *,
        path: str,
        files: Files,
        handles: HandleCache,
        blocking: Blocking,
        config: StorageConfig,
        new_id: Callable[[], UUID],
    ) -> None:
        self.path = path
        self.files = files
        self.handles = handles
        self.blocking = blocking
        self.config = config
        self.pending_max_bytes = config.log_pending_max_bytes
        self.logs: dict[TopicPartition, Log] = {}
        self.touched: set[Log] = set()
        self._checkpoints: deque[Log] = deque()
        self._checkpointing = False
        self.corrupt: dict[TopicPartition, TailraceError] = {}
        self.failure: TailraceError | None = None
        self.on_damage: Callable[[Log, TailraceError], None] | None = None
        self.on_failure: Callable[[LogDirectory, TailraceError], None] | None = None
        self.now_ms = 0
        self._corrupt_points: dict[str, list[int | str | None]] = {}
        self._closing: Job | None = None
        self._removals: list[tuple[int, str]] = []
        self._saved_checkpoint: dict[str, list[int | str | None]] | None = None
        make_durable_dirs(files, path)
        self._lock: Closeable = files.lock(f"{path}/{LOCK_FILE}")
        self._new_id = new_id
        self.id, self.secret = self._read_or_make_identity(new_id)
        self._journal: Journal
        self.writer: DirectoryWriter

    def _read_or_make_identity(self, new_id: Callable[[], UUID]) -> DirectoryIdentity:
        try:
            return read_directory_identity(self.files, self.path)
        except FileNotFoundError:
            if self.files.exists(f"{self.path}/{FILE_NAMES[0]}"):
                raise TailraceError(
                    ErrorCode.STORAGE_CORRUPT,
                    f"{self.path} has been in use, but its {DIRECTORY_FILE} is missing, without which its "
                    "journal cannot be read. Restore it from a backup, or, if other replicas hold the data, "
                    "empty the directory and let it be filled again from them.",
                ) from None
            above = self.path
            while parent_of(above) != above:
                above = parent_of(above)
                self.files.sync_dir(above)
            identity = DirectoryIdentity(new_id(), new_id().bytes + new_id().bytes)
            body = {"directory_id": str(identity.directory_id), "journal_secret": identity.secret.hex()}
            write_state(self.files, f"{self.path}/{DIRECTORY_FILE}", "directory", 1, body)
            return identity

    # Opening.

    def open(self, config_of: ConfigOf, now_ms: int) -> DirectoryReport:
        """Load every log; damaged ones are set aside in `corrupt`, the others are ready for use."""
        self.now_ms = now_ms
        checkpoint = read_checkpoint(self.files, self.path)
        opener = DirectoryOpener(
            path=self.path,
            files=self.files,
            handles=self.handles,
            blocking=self.blocking,
            threads=self.config.num_recovery_threads_per_data_dir,
        )
        identities = opener.find_logs(checkpoint)
        redone, damaged, generation = 0, 0, checkpoint.generation + 1
        if not checkpoint.clean:
            redo = read_redo(self.files, self.path, self.secret)
            generation, damaged = max(generation, redo.next_generation), redo.damaged_frames
            redone = opener.redo(redo.writes, identities)
        opening = Opening(self.files, self.handles, checkpoint.clean, now_ms, self.secret, damaged > 0)
        opened = opener.open_all(opening, identities, checkpoint, config_of)
        self.corrupt, self._corrupt_points = opener.corrupt, opener.corrupt_points
        self.remove_later(opener.to_remove, 0)
        self._journal = Journal.start(
            self.files,
            self.path,
            generation=generation,
            capacity=self.config.journal_bytes,
            secret=self.secret,
        )
        self.writer = DirectoryWriter(
            handles=self.handles,
            journal=self._journal,
            blocking=self.blocking,
            direct_bytes=self.config.journal_max_append_bytes,
            on_failure=self._failed,
        )
        for name, one in opened.items():
            identity = identities[name]
            self.logs[identity.topic_partition] = self._log(
                identity.topic_partition,
                identity.topic_id,
                f"{self.path}/{name}",
                config_of(identity.topic_partition.topic),
                one.state,
            )
            self.remove_later(one.to_remove, 0)
        self._write_checkpoint(self._checkpoint_logs(), clean=False)
        return DirectoryReport(
            logs=len(self.logs),
            clean=checkpoint.clean,
            scanned_bytes=sum(one.scanned_bytes for one in opened.values()),
            cut_bytes=sum(one.cut_bytes for one in opened.values()),
            redone_writes=redone,
            damaged_frames=damaged,
        )

    # Logs.

    def create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: TopicConfig,
        *,
        now_ms: int,
        start_offset: int = 0,
    ) -> Log:
        """A new, empty log. It can be appended to at once; its files are made in the writer's order."""
        self.check_online()
        directory = f"{self.path}/{topic_partition}"
        segment = Segment(
            files=self.files,
            handles=self.handles,
            directory=directory,
            base_offset=start_offset,
            next_offset=start_offset,
            index_interval=config.index_interval_bytes,
            fresh=True,
            created_ms=now_ms,
        )
        state = LogState(
            segments=[segment],
            log_start_offset=start_offset,
            high_watermark=start_offset,
            epochs=EpochHistory(),
            producers=ProducerStates,
            snapshots=[],
            incarnation=self._new_id().bytes,
        )
        log = self._log(topic_partition, topic_id.bytes, directory, config, state)
        self.logs[topic_partition] = log
        body = partition_body(log, start_offset)
        create = log.files.creating(segment)
        save_state = log.files.saving_state()

        def work() -> None:
            self.files.make_dirs(directory)
            write_state(self.files, f"{directory}/{PARTITION_FILE}", "partition", 1, body)
            create()
            save_state()
            self.files.sync_dir(self.path)

        self.writer.queue_call(work)
        return log

    def _log(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: str,
        config: TopicConfig,
        state: LogState,
    ) -> Log:
        return Log(
            home=self,
            topic_partition=topic_partition,
            topic_id=topic_id,
            directory=directory,
            config=config,
            state=state,
        )

    def delete_log(self, log: Log) -> None:
        """Forget a log now; its files get another name in order, and go after the delete delay."""
        self.check_online()
        del self.logs[log.topic_partition]
        self.touched.discard(log)
        log.fail(
            TailraceError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.topic_partition} has been deleted here"
            )
        )
        directory, key, delay_ms = log.directory, log.key, log.config.file_delete_delay_ms
        dirty = log.files.paths_since_recovery_point(log.segments)
        moved: list[str] = []

        def work() -> None:
            # The same replica may come back here: what the journal holds must not be redone into it.
            self.writer.void(key, [path for path in dirty if self.files.exists(path)])
            target = self._free_name(directory, DELETE_SUFFIX)
            self.files.rename(directory, target)
            self.files.sync_dir(self.path)
            self.handles.forget_tree(directory)
            moved.append(target)

        self.writer.queue_call(work, lambda: self.remove_later(moved, delay_ms))

    def _free_name(self, directory: str, suffix: str) -> str:
        number = 0
        while self.files.exists(f"{directory}.{number}{suffix}"):
            number += 1
        return f"{directory}.{number}{suffix}"

    def replace_corrupt(
        self, topic_partition: TopicPartition, topic_id: UUID, config: TopicConfig, *, now_ms: int
    ) -> Log:
        """An empty log in the place of a damaged one, to be filled from another replica.

        The damaged files stay beside it under a `-corrupt` name until somebody removes them.
        """
        self.check_online()
        del self.corrupt[topic_partition]
        self._corrupt_points.pop(str(topic_partition), None)
        self._keep_as_corrupt(f"{self.path}/{topic_partition}")
        return self.create_log(topic_partition, topic_id, config, now_ms=now_ms)

    def give_up(self, topic_partition: TopicPartition) -> None:
        """Before the first write: keep a log out that another directory holds as well."""
        log = self.logs.pop(topic_partition)
        log.fail(TailraceError(ErrorCode.STORAGE_CORRUPT, f"{topic_partition} is in two log directories"))
        self._keep_as_corrupt(log.directory)

    def _keep_as_corrupt(self, directory: str) -> None:
        self.files.rename(directory, self._free_name(directory, CORRUPT_SUFFIX))
        self.files.sync_dir(self.path)
        self.handles.forget_tree(directory)

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        for path in paths:
            heapq.heappush(self._removals, (self.now_ms + delay_ms, path))

    def remove_due(self) -> None:
        due: list[str] = []
        while self._removals and self._removals[0][0] <= self.now_ms:
            due.append(heapq.heappop(self._removals)[1])
        if due and self.failure is None:
            self.writer.queue_call(lambda: self._remove(due))

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path.endswith(DELETE_SUFFIX):
                self.files.remove_tree(path)
            else:
                self.files.remove(path)
            self.handles.forget(path)

    # Checkpoint.

    def checkpoint_in_turn(self, logs: Sequence[Log]) -> None:
        """Save these logs one after the other: each is a call that the appends of all others wait for, so
        the next one is queued only when the last is done.
        """
        self._checkpoints.extend(logs)
        if not self._checkpointing:
            self._next_checkpoint()

    def _next_checkpoint(self) -> None:
        self._checkpointing = False
        while self._checkpoints and self.failure is None:
            log = self._checkpoints.popleft()
            if log.failure is None and log in self.touched:
                try:
                    log.files.checkpoint(self._next_checkpoint)
                except TailraceError as error:
                    self._damaged(log, error)
                    continue
                self._checkpointing = True
                return

    def _damaged(self, log: Log, error: TailraceError) -> None:
        """A log that cannot even be read is left as its last checkpoint has it."""
        self.touched.discard(log)
        log.fail(error)
        if self.on_damage is not None:
            self.on_damage(log, error)

    def save_checkpoint(self, done: Job | None = None) -> None:
        """Write the recovery points as they are now, if they have changed since the last time."""
        logs = self._checkpoint_logs()
        if logs == self._saved_checkpoint:
            if done is not None:
                self.writer.queue_call(_nothing, done)
            return
        self._saved_checkpoint = logs
        self.writer.queue_call(lambda: self._write_checkpoint(logs, clean=False), done)

    def _checkpoint_logs(self) -> dict[str, list[int | str | None]]:
        logs = {str(log.topic_partition): list(_point_of(log).to_json()) for log in self.logs.values()}
        return logs | self._corrupt_points

    def _write_checkpoint(self, logs: dict[str, list[int | str | None]], *, clean: bool) -> None:
        generation = self._journal.generation
        write_checkpoint(self.files, self.path, logs, clean=clean, generation=generation)

    # Ending.

    def check_online(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _failed(self, error: OSError) -> None:
        self.fail(storage_error(f"writing to log directory {self.path}", error))

    def fail(self, error: TailraceError) -> None:
        """Take the directory offline: what its files hold is no longer known."""
        if self.failure is not None:
            return
        self._shut(error)
        if self.on_failure is not None:
            self.on_failure(self, error)

    def _shut(self, error: TailraceError) -> None:
        self.failure = error
        self.touched.clear()
        for log in self.logs.values():
            log.fail(error)
        closing, self._closing = self._closing, None
        if closing is not None:
            self._release()
            closing()

    def close(self, done: Job) -> None:
        """Shut down cleanly: save everything, then say so in the checkpoint."""
        if self.failure is not None:
            self._release()
            done()
            return
        self._closing = done
        for log in [log for log in self.logs.values() if log.failure is None]:
            try:
                log.files.trim()
                if log.files.unsaved:
                    log.files.checkpoint()
            except TailraceError as error:
                self._damaged(log, error)
        clean = all(log.failure is None for log in self.logs.values())
        self.writer.queue_call(_nothing, lambda: self._close_journal(clean))

    def _close_journal(self, clean: bool) -> None:
        """`clean` is False when a log could not be saved: then the next start scans them all."""
        if self.writer.releasing:
            self.writer.queue_call(_nothing, lambda: self._close_journal(clean))
            return
        logs = self._checkpoint_logs()

        def work() -> None:
            for path in sorted(self._journal.covered_paths):
                with contextlib.suppress(FileNotFoundError):
                    self.handles.sync(path)
            self._write_checkpoint(logs, clean=clean)

        def closed() -> None:
            self._shut(TailraceError(ErrorCode.STORAGE_ERROR, f"log directory {self.path} is closed"))

        self.writer.queue_call(work, closed)

    def _release(self) -> None:
        self._journal.close()
        self.handles.forget_tree(self.path)
        self._lock.close()


def read_directory_identity(files: Files, path: str) -> DirectoryIdentity:
    file = f"{path}/{DIRECTORY_FILE}"
    _, body = read_state(files, file, "directory", 1)
    try:
        return DirectoryIdentity(UUID(body["directory_id"]), bytes.fromhex(body["journal_secret"]))
    except (KeyError, ValueError, TypeError) as error:
        raise TailraceError(ErrorCode.STORAGE_CORRUPT, f"{file} lacks a usable {error}") from None


def _point_of(log: Log) -> SavedPoint:
    files = log.files
    return SavedPoint(
        log.incarnation,
        files.recovery_point,
        log.high_watermark,
        log.cleaned_to,
        log.next_horizon_ms,
        files.rewrites,
    )


def _nothing() -> None:
    """An ordered call that only waits for what was queued before it."""
