"""When a snapshot is made, and what follows: the Raft thread freezes the state, a job writes it.

Freezing is cheap, because the state is immutable or copied lazily; encoding and writing happen off the Raft
thread while the log goes on. When the snapshot is durable the Raft thread trims the journal. A snapshot
that fails leaves everything as it was, shows in the status, and is tried again after a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tailrace.cluster.controller.quorum.core import RaftCore
from tailrace.cluster.controller.quorum.guard import Guard
from tailrace.cluster.controller.quorum.machine import StateMachine
from tailrace.cluster.controller.quorum.outcomes import SnapshotStatus
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.snapshots import SnapshotInfo, write_snapshot
from tailrace.cluster.controller.quorum.store import Store
from tailrace.cluster.runtime.blocking import Job
from tailrace.cluster.runtime.clock import Clock
from tailrace.cluster.runtime.logs import get_logger

log = get_logger(__name__)


class SnapshotDone(NamedTuple):
    """What a job reports. `error` is "" when the snapshot is durable."""

    info: SnapshotInfo
    error: str


class Snapshotting:
    def __init__(
        self,
        *,
        core: RaftCore,
        store: Store,
        guard: Guard,
        machine: StateMachine,
        settings: QuorumSettings,
        clock: Clock,
        start_job: Callable[[Job], None],
        report: Callable[[SnapshotDone], None],
    ) -> None:
        self._core = core
        self._store = store
        self._guard = guard
        self._machine = machine
        self._settings = settings
        self._clock = clock
        self._start_job = start_job
        self._report = report
        self._running = False
        self._not_before = 0.0
        self.failures = 0
        self.error = ""

    def tick(self) -> None:
        if not self._running and self._is_due() and self._clock.monotonic() >= self._not_before:
            self._start()

    def _is_due(self) -> bool:
        covered = self._store.snapshot.last_index if self._store.snapshot is not None else 1
        applied = self._core.applied_index - covered
        return applied > 0 and (
            applied >= self._settings.snapshot_entries
            or self._store.journal.bytes_after(covered) >= self._settings.snapshot_bytes
        )

    def _start(self) -> None:
        index = self._core.applied_index
        encode = self._machine.snapshot()
        about = SnapshotInfo(
            last_index=index,
            last_term=self._store.journal.term_at(index),
            version=self._guard.version,
            epoch=self._guard.epoch,
            created_ms=self._clock.now_ms(),
            state_bytes=0,
        )
        self._running = True
        self._store.hold()
        self._start_job(lambda: self._write(about, encode))

    def _write(self, about: SnapshotInfo, encode: Callable[[], bytes]) -> None:
        """The job. It reports whatever happens."""
        error = ""
        info = about
        try:
            state = encode()
            info = about._replace(state_bytes=len(state))
            if info.file_bytes > self._settings.max_snapshot_bytes:
                raise ValueError(f"{info.file_bytes} bytes, more than max_snapshot_bytes allows")
            write_snapshot(self._store.files, self._store.directory, info, state)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            log.exception("raft_snapshot_failed", index=about.last_index, directory=self._store.directory)
        finally:
            self._store.release()
        self._report(SnapshotDone(info, error))

    def on_done(self, done: SnapshotDone) -> None:
        self._running = False
        self.error = done.error
        if done.error:
            self.failures += 1
            self._not_before = self._clock.monotonic() + self._settings.snapshot_retry_ms / 1000
            return
        self._store.use_snapshot(
            done.info, keep_entries=self._settings.keep_entries, keep_bytes=self._settings.keep_bytes
        )
        log.info("raft_snapshot_made", index=done.info.last_index, size=done.info.file_bytes)

    def status(self) -> SnapshotStatus | None:
        info = self._store.snapshot
        if info is None:
            return None
        return SnapshotStatus(
            index=info.last_index,
            version=info.version,
            size_bytes=info.file_bytes,
            age_ms=max(0, self._clock.now_ms() - info.created_ms),
        )
