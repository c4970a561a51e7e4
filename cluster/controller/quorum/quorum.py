"""The controller quorum as the rest of the controller sees it: a `RaftNode` on a thread of its own.

`start` opens the directory and begins to take part; `stop` hands leadership over if this node has it, and
ends. In between, `propose` and `barrier` may be called from any thread; their callbacks, `on_leadership`
and the state machine run on the Raft thread and must return quickly.

`on_failure` is called once at most, when the node cannot go on: the disk failed, an entry is not known
here, the Raft thread stands still, or something unexpected was raised. The node takes no part any more
then, and the process should end: what is on the disk is for the next start to judge.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from random import Random

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.links import RaftLinks
from tailrace.cluster.controller.quorum.machine import StateMachine
from tailrace.cluster.controller.quorum.node import RaftNode
from tailrace.cluster.controller.quorum.outcomes import (
    Committed,
    Leadership,
    Outcome,
    QuorumStatus,
    Refused,
    SnapshotStatus,
    Unknown,
    Voter,
    VoterStatus,
)
from tailrace.cluster.controller.quorum.proposals import NOT_ACTIVE, Done
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.watchdog import Finding, TickWatch
from tailrace.cluster.runtime.blocking import ThreadBlocking
from tailrace.cluster.runtime.clock import Clock, SystemClock
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import Files, storage_error

__all__ = [
    "Committed",
    "Leadership",
    "Outcome",
    "Quorum",
    "QuorumSettings",
    "QuorumStatus",
    "Refused",
    "SnapshotStatus",
    "Unknown",
    "Voter",
    "VoterStatus",
]

# The Raft loop, the watchdog, and the job that writes a snapshot.
_THREADS = 3

log = get_logger(__name__)


class Quorum:
    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[Voter],
        directory: str,
        files: Files,
        machine: StateMachine,
        links: RaftLinks,
        settings: QuorumSettings,
        on_leadership: Callable[[Leadership], None],
        on_failure: Callable[[TailraceError], None],
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        self._node_id = node_id
        self._voters = tuple(voters)
        self._directory = directory
        self._files = files
        self._machine = machine
        self._links = links
        self._settings = settings
        self._on_leadership = on_leadership
        self._on_failure = on_failure
        self._clock = clock if clock is not None else SystemClock()
        self._rng = rng if rng is not None else Random()
        self._watch = TickWatch(self._clock, settings)
        self._node: RaftNode | None = None
        self._threads: ThreadBlocking | None = None
        self._raft_thread: int | None = None
        self._wake = threading.Event()
        self._stop_requested = threading.Event()
        self._ended = threading.Event()
        self._failed = threading.Event()
        self._failing = threading.Lock()
        """Taken for good by the first failure."""

    def start(self) -> None:
        """Open the directory and take part. TailraceError if the directory cannot be used."""
        if self._node is not None:
            raise RuntimeError("the quorum was started before")
        self._threads = ThreadBlocking(lambda call: call(), jobs=_THREADS, leaves=1)
        try:
            self._node = node = RaftNode(
                node_id=self._node_id,
                voters=[voter.node_id for voter in self._voters],
                directory=self._directory,
                files=self._files,
                machine=self._machine,
                links=self._links,
                settings=self._settings,
                clock=self._clock,
                rng=self._rng,
                start_job=self._threads.start,
                wake=self._wake.set,
                on_leadership=self._on_leadership,
            )
        except BaseException:
            self._threads.close()
            raise
        try:
            self._links.start(node)
        except BaseException:
            node.close()
            self._threads.close()
            self._ended.set()
            raise
        self._threads.start(self._run)
        self._threads.start(self._watch_ticks)

    def stop(self) -> None:
        """Hand leadership over if possible, answer what waits, and end; waits for it, but not for ever."""
        self._stop_requested.set()
        self._wake.set()
        if self._node is None or self._threads is None or threading.get_ident() == self._raft_thread:
            return
        if self._ended.wait(self._settings.stop_timeout_ms / 1000):
            self._threads.close()
        else:
            log.error("quorum_stop_timed_out", node_id=self._node_id, stack=self._raft_stack())

    def propose(self, epoch: int, base_version: int, payload: bytes, done: Done) -> None:
        """Put an entry into the log. `done` is called exactly once, on the Raft thread.

        When the quorum is not running, `done` is called at once, by the caller.
        """
        if self._node is None:
            done(NOT_ACTIVE)
        else:
            self._node.propose(epoch, base_version, payload, done)

    def barrier(self, done: Done) -> None:
        """`Committed` once all that was committed before the call is applied here, and this node led then.

        What is read from the state machine after that is linearizable.
        """
        if self._node is None:
            done(NOT_ACTIVE)
        else:
            self._node.barrier(done)

    def leadership(self) -> Leadership:
        return Leadership(None, 0, False, 0) if self._node is None else self._node.leadership()

    def status(self) -> QuorumStatus:
        if self._node is None:
            raise RuntimeError("the quorum was not started")
        return self._node.status()

    # The Raft thread.

    def _run(self) -> None:
        node = self._node
        assert node is not None
        self._raft_thread = threading.get_ident()
        try:
            self._tick_until_stopped(node)
        except BaseException as error:
            self._fail(error)
        finally:
            # The others must see that this node is gone, also when closing it fails.
            self._links.stop()
            self._close(node)
            self._ended.set()

    def _tick_until_stopped(self, node: RaftNode) -> None:
        hand_over_until: float | None = None
        while True:
            self._wake.wait(node.wait_seconds())
            self._wake.clear()
            self._tick(node)
            if self._failed.is_set():
                # The watchdog has given this node up, and the failure is reported: it must not come back.
                return
            if hand_over_until is None and (self._stop_requested.is_set() or _interpreter_ends()):
                node.hand_over()
                hand_over_until = self._clock.monotonic() + self._settings.hand_over_ms / 1000
            if hand_over_until is not None and (
                not node.can_hand_over or self._clock.monotonic() >= hand_over_until
            ):
                return

    def _tick(self, node: RaftNode) -> None:
        self._watch.begin()
        node.tick()
        took = self._watch.end()
        if took * 1000 >= self._settings.slow_tick_ms:
            log.warning("raft_tick_was_slow", node_id=self._node_id, seconds=round(took, 3))

    def _close(self, node: RaftNode) -> None:
        try:
            node.close()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self._failing.acquire(blocking=False):
            return
        self._failed.set()
        failure = _as_failure(error)
        log.error("quorum_failed", node_id=self._node_id, error=str(failure), exc_info=error)
        try:
            self._on_failure(failure)
        except Exception:
            log.exception("quorum_callback_failed", outcome="failure")

    # The watchdog's thread.

    def _watch_ticks(self) -> None:
        while not self._ended.wait(min(self._settings.slow_tick_ms, self._settings.stuck_tick_ms) / 4000):
            found = self._watch.check()
            if found is None:
                continue
            finding, seconds = found
            stack = self._raft_stack()
            log.error(
                "raft_tick_hangs", node_id=self._node_id, finding=finding.value, seconds=seconds, stack=stack
            )
            if finding is Finding.STUCK:
                self._fail(
                    TailraceError(
                        ErrorCode.STORAGE_ERROR,
                        f"the Raft thread of controller {self._node_id} has stood still for {seconds:.1f} s; "
                        "the log shows where. Check the disk of its directory, then restart the process.",
                    )
                )

    def _raft_stack(self) -> list[str]:
        frame = sys._current_frames().get(self._raft_thread or 0)
        return [] if frame is None else traceback.format_stack(frame)[-6:]


def _interpreter_ends() -> bool:
    """Whether the program is over without having stopped the quorum.

    Its end waits for the threads of pools before the main thread counts as ended; only this flag tells.
    """
    return bool(getattr(threading, "_SHUTTING_DOWN", False)) or not threading.main_thread().is_alive()


def _as_failure(error: BaseException) -> TailraceError:
    if isinstance(error, TailraceError):
        return error
    if isinstance(error, OSError):
        return storage_error("the controller quorum's work on its directory", error)
    return TailraceError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"the controller quorum failed unexpectedly: {type(error).__name__}: {error}. Restart the process; "
        "if it happens again, the log has the details.",
    )
