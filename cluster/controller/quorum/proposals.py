"""What waits for the log: proposals and barriers, each answered exactly once.

An answer is definite where it can be: `Committed` when the entry was applied and accepted, `Refused` when
it never got into the log, was refused by the guard, or another leader's entry has taken its place. It is
`Unknown` when leadership is lost or the deadline passes while the entry is in the log: it may still be
committed by the next leader. Barriers change nothing, so they are never unknown.

Runs on the Raft thread. A callback that raises is logged and does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.controller.quorum.core import Ended, RaftCore
from tailrace.cluster.controller.quorum.guard import Barrier, Guard, Proposal, encode_command
from tailrace.cluster.controller.quorum.outcomes import Committed, Outcome, Refused, Unknown
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.runtime.logs import get_logger

Done = Callable[[Outcome], None]

NOT_ACTIVE = Refused(ErrorCode.NOT_CONTROLLER, "this node is not the active controller; nothing was proposed")
_LOST = Unknown("leadership was lost while the proposal was on its way")
_LATE = Unknown("the proposal was not committed in time; it may still be")
_REPLACED = Refused(
    ErrorCode.NOT_CONTROLLER, "leadership was lost, and another leader's entry took the proposal's place"
)
_BARRIER_LOST = Refused(ErrorCode.NOT_CONTROLLER, "leadership was lost before the barrier was committed")
_BARRIER_LATE = Refused(ErrorCode.REQUEST_TIMED_OUT, "the barrier was not committed in time")

log = get_logger(__name__)


class Waiting:
    """One call of `propose` (with a proposal) or `barrier` (without).

    Made by the caller's thread: what cannot be encoded is raised there.
    """

    __slots__ = ("_done", "command", "deadline", "proposal", "term")

    def __init__(self, proposal: Proposal | None, deadline: float, done: Done) -> None:
        self.proposal = proposal
        self.command = encode_command(Barrier() if proposal is None else proposal)
        self.deadline = deadline
        self.term = 0
        self._done: Done | None = done

    @property
    def is_open(self) -> bool:
        return self._done is not None

    @property
    def size(self) -> int:
        return 0 if self.proposal is None else len(self.proposal.payload)

    def answer(self, outcome: Outcome) -> bool:
        """False if it was answered before."""
        done, self._done = self._done, None
        if done is None:
            return False
        try:
            done(outcome)
        except Exception:
            log.exception("quorum_callback_failed", outcome=type(outcome).__name__)
        return True


class Proposals:
    def __init__(self, core: RaftCore, guard: Guard, settings: QuorumSettings) -> None:
        self._core = core
        self._guard = guard
        self._settings = settings
        self._waiting: deque[Waiting] = deque()
        """Open and answered ones, by deadline."""
        self._open = 0
        self._open_bytes = 0
        self._barriers: list[Waiting] = []
        """Those that came in this tick; one entry in the log serves them all."""

    @property
    def open(self) -> int:
        return self._open

    @property
    def next_deadline(self) -> float | None:
        return self._waiting[0].deadline if self._waiting else None

    def take(self, waiting: Waiting, *, active: bool, now: float) -> None:
        """Submit it to the log, or refuse it."""
        refused = self._objection(waiting, active, now)
        if refused is not None:
            waiting.answer(refused)
            return
        waiting.term = self._core.term
        self._waiting.append(waiting)
        self._open += 1
        self._open_bytes += waiting.size
        if waiting.proposal is None:
            self._barriers.append(waiting)
        else:
            self._core.submit(
                waiting.command, lambda result, ended: self._proposal_ended(waiting, result, ended)
            )

    def submit_barriers(self) -> None:
        if self._barriers:
            barriers, self._barriers = self._barriers, []
            self._core.submit(
                barriers[0].command, lambda result, ended: self._barrier_ended(barriers, result, ended)
            )

    def settle(self, now: float) -> None:
        """Answer those whose leadership or time is over. Called at the end of every tick."""
        leads = self._core.is_leader
        term = self._core.term
        # Terms do not fall along the queue, so if the first is of this term, all are.
        if self._waiting and not (leads and self._waiting[0].term == term):
            for waiting in self._waiting:
                if not leads or waiting.term != term:
                    self._answer(waiting, _BARRIER_LOST if waiting.proposal is None else _LOST)
        while self._waiting and (not self._waiting[0].is_open or self._waiting[0].deadline <= now):
            waiting = self._waiting.popleft()
            self._answer(waiting, _BARRIER_LATE if waiting.proposal is None else _LATE)

    def give_up(self) -> None:
        """The node ends: nothing that waits will be heard of again."""
        while self._waiting:
            waiting = self._waiting.popleft()
            self._answer(waiting, _BARRIER_LOST if waiting.proposal is None else _LOST)

    def _objection(self, waiting: Waiting, active: bool, now: float) -> Refused | None:
        if not active:
            return NOT_ACTIVE
        if waiting.deadline <= now:
            return Refused(
                ErrorCode.CONTROLLER_NOT_AVAILABLE, "the controller was too busy; nothing was proposed"
            )
        settings = self._settings
        if self._open >= settings.max_pending or self._open_bytes + waiting.size > settings.max_pending_bytes:
            return Refused(
                ErrorCode.STORAGE_OVERLOADED,
                f"{self._open} proposals with {self._open_bytes} bytes wait already; nothing was proposed",
            )
        if waiting.size > settings.max_payload_bytes:
            return Refused(
                ErrorCode.INVALID_REQUEST,
                f"the proposal has {waiting.size} bytes; {settings.max_payload_bytes} are allowed. Split it.",
            )
        if waiting.proposal is None:
            return None
        return self._guard.objection(waiting.proposal.epoch, waiting.proposal.base_version)

    def _proposal_ended(self, waiting: Waiting, result: Any, ended: Ended) -> None:
        match ended:
            case Ended.APPLIED:
                assert isinstance(result, Committed | Refused)
                self._answer(waiting, result)
            case Ended.REPLACED:
                self._answer(waiting, _REPLACED)
            case Ended.UNKNOWN | Ended.LEADER_CHANGED:
                self._answer(waiting, _LOST)
            case Ended.QUEUE_FULL | Ended.MISSING_LEADER | Ended.NOT_LEADER | Ended.DENIED:
                self._answer(waiting, NOT_ACTIVE)

    def _barrier_ended(self, barriers: list[Waiting], result: Any, ended: Ended) -> None:
        for waiting in barriers:
            self._answer(waiting, result if ended is Ended.APPLIED else _BARRIER_LOST)

    def _answer(self, waiting: Waiting, outcome: Outcome) -> None:
        if waiting.is_open:
            self._open -= 1
            self._open_bytes -= waiting.size
            waiting.answer(outcome)
