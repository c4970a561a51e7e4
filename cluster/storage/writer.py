"""The writer of a log directory: group commit of everything that its logs have queued.

The owner thread queues operations; one writer job at a time takes all that is queued, writes it, syncs it
and posts the outcome of the whole group to the owner with one call. Order within a log is the order in
which it was queued, and calls (`queue_call`) are ordered with the writes of every log of the directory.

Where the bytes of a group go (ADR 2): logs with little to write share one journal frame and one sync; a log
with at least `direct_bytes` in the group is synced by itself, beside the journal. After the first failed
write or sync the writer refuses everything: the files can no longer be trusted.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tailrace.cluster.common.types import Bytes
from tailrace.cluster.runtime.blocking import Blocking, Job
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.journal import Journal, JournalWrite, LogKey

events = get_logger(__name__)

_SYNC_EARLY = 64
_SYNC_TOGETHER = 8


class WriteTarget(Protocol):
    """What the writer has to know of a log, and whom it tells."""

    @property
    def key(self) -> LogKey: ...

    def on_written(self, write: Write, *, synced: bool) -> None:
        """On the owner: everything up to `write` has been written (and synced, unless flush=os)."""


class Write(NamedTuple):
    log: WriteTarget
    path: str
    segment_base: int
    position: int
    buffers: Sequence[Bytes]
    size: int
    end_offset: int
    truncations: int
    sync: bool


class Call(NamedTuple):
    """File work in its place between the writes: `work` on the writer's thread, then `done` on the owner."""

    work: Callable[[], None]
    done: Job | None


Operation = Write | Call


@dataclass(slots=True)
class WriterStats:
    groups: int = 0
    journal_frames: int = 0
    direct_syncs: int = 0
    bytes_written: int = 0


class DirectoryWriter:
    def __init__(
        self,
        *,
        handles: HandleCache,
        journal: Journal,
        blocking: Blocking,
        direct_bytes: int,
        on_failure: Callable[[OSError], None],
    ) -> None:
        self.stats = WriterStats()
        self.pending_bytes = 0
        self._handles = handles
        self._journal = journal
        self._blocking = blocking
        self._direct_bytes = direct_bytes
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._queue: list[Operation] = []
        self._running = False
        # Whether segments are being synced so that a full journal file can be used again.
        self.releasing = False
        self._failed: OSError | None = None

    # On the owner.

    def queue_write(self, write: Write) -> None:
        self.pending_bytes += write.size
        self._enqueue(write)

    def queue_call(self, work: Callable[[], None], done: Job | None = None) -> None:
        self._enqueue(Call(work, done))

    def _enqueue(self, operation: Operation) -> None:
        with self._lock:
            self._queue.append(operation)
            if self._running:
                return
            self._running = True
        self._blocking.start(self._work)

    # On the writer's thread.

    def _work(self) -> None:
        while True:
            with self._lock:
                operations = self._queue
                if not operations:
                    self._running = False
                    return
                self._queue = []
            if self._failed is None:
                try:
                    self._execute(operations)
                except OSError as error:
                    self._fail(error)
                except Exception as error:
                    # A bug must not silence every log of the disk: it is reported as what it means to them.
                    events.exception("writer_failed")
                    self._fail(OSError(errno.EIO, f"the writer failed unexpectedly ({error!r})"))

    def _execute(self, operations: Sequence[Operation]) -> None:
        writes: list[Write] = []
        for operation in operations:
            if isinstance(operation, Write):
                writes.append(operation)
                continue
            if writes:
                self._commit(writes)
                writes = []
            operation.work()
            if operation.done is not None:
                self._blocking.post(operation.done)
        if writes:
            self._commit(writes)
        self._release_journal()

    def _commit(self, writes: list[Write]) -> None:
        journaled: list[JournalWrite] = []
        journaled_paths: list[str] = []
        direct: list[str] = []
        for path, group in _by_path(writes).items():
            self._bound_open_files()
            size = self._write_segment(path, group)
            if not group[0].sync:
                continue
            if size >= self._direct_bytes:
                direct.append(path)
            else:
                journaled.append(_journal_write(group, size))
                journaled_paths.append(path)
        if journaled and not self._journal.room_for(journaled):
            direct += journaled_paths
            journaled = []
        syncs: list[Job] = [self._sync_job(path) for path in direct]
        if journaled:
            self._journal.write(journaled, journaled_paths)
            self.stats.journal_frames += 1
            syncs.append(self._journal.sync)
        if syncs:
            self._blocking.gather(syncs)
        for path in direct:
            self._journal.forget_path(path)
        self.stats.direct_syncs += len(direct)
        self.stats.groups += 1
        self._blocking.post(lambda: self._committed(writes))

    def _bound_open_files(self) -> None:
        """Files with unsynced writes stay open (see HandleCache), so too many of them are synced early."""
        if self._handles.open_count >= self._handles.limit:
            paths = self._handles.oldest_dirty(min(_SYNC_EARLY, self._handles.limit // 4))
            if paths:
                self._blocking.gather([self._sync_job(path) for path in paths])

    def _write_segment(self, path: str, group: list[Write]) -> int:
        buffers = group[0].buffers if len(group) == 1 else [b for write in group for b in write.buffers]
        file = self._handles.acquire(path, write=True)
        try:
            size = file.pwritev(buffers, group[0].position)
        finally:
            self._handles.release(file, dirty=True)
        self.stats.bytes_written += size
        return size

    def _sync_job(self, path: str) -> Job:
        return lambda: self._handles.sync(path)

    def seal_file(self, path: str) -> None:
        """Within a call: sync a file that gets no more writes, and tell the journal."""
        self._handles.sync(path)
        self._journal.forget_path(path)

    def void(self, key: LogKey, paths: Sequence[str]) -> None:
        """Within a call: make a later redo leave `key` alone; `paths` are its files that may be dirty."""
        if self._journal.needs_void(key):
            for path in paths:
                self.seal_file(path)
            self._journal.void(key)

    def _release_journal(self) -> None:
        """Sync, beside further commits, the segments that a full journal file covers."""
        due = None if self.releasing else self._journal.to_release()
        if due is None:
            return
        self.releasing = True
        generation, paths = due
        todo = sorted(paths)
        self._blocking.start(lambda: self._sync_covered(generation, todo))

    def _sync_covered(self, generation: int, paths: list[str]) -> None:
        try:
            for first in range(0, len(paths), _SYNC_TOGETHER):
                together = paths[first : first + _SYNC_TOGETHER]
                self._blocking.gather([self._sync_if_there(path) for path in together])
            self._journal.release(generation)
        except OSError as error:
            self._fail(error)
        finally:
            self.releasing = False

    def _sync_if_there(self, path: str) -> Job:
        def sync() -> None:
            # One that was deleted meanwhile will not be found by a redo either.
            with contextlib.suppress(FileNotFoundError):
                self._handles.sync(path)

        return sync

    def _fail(self, error: OSError) -> None:
        if self._failed is None:
            self._failed = error
            self._blocking.post(lambda: self._on_failure(error))

    # Back on the owner.

    def _committed(self, writes: list[Write]) -> None:
        for write in writes:
            self.pending_bytes -= write.size
        last = {id(write.log): write for write in writes}
        for write in last.values():
            write.log.on_written(write, synced=write.sync)


def _by_path(writes: list[Write]) -> dict[str, list[Write]]:
    groups: dict[str, list[Write]] = {}
    for write in writes:
        group = groups.get(write.path)
        if group is None:
            groups[write.path] = [write]
        else:
            group.append(write)
    return groups


def _journal_write(group: list[Write], size: int) -> JournalWrite:
    first = group[0]
    buffers = first.buffers if len(group) == 1 else [b for write in group for b in write.buffers]
    return JournalWrite(first.log.key, first.segment_base, first.position, buffers, size)
