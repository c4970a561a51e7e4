"""A quorum of one in memory: the guard and the outcomes of the real one, committed when the test says so."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.controller.quorum.machine import AppliedEntry, EntryKind
from tailrace.cluster.controller.quorum.outcomes import Committed, Outcome, Refused, Unknown

Done = Callable[[Outcome], None]


class Proposed(NamedTuple):
    epoch: int
    base_version: int
    payload: bytes | None  # None: a barrier
    done: Done


class Replays(Protocol):
    """What this quorum needs of a state machine: it takes no snapshots."""

    def apply(self, entry: AppliedEntry) -> None: ...


class LocalQuorum:
    """With `automatic` everything is committed at once; otherwise by `commit_next`, `lose_next` or
    `drop_next`."""

    def __init__(self, machine: Replays, *, automatic: bool = True) -> None:
        self.machine = machine
        self.automatic = automatic
        self.version = 0
        self.epoch = 0
        self.index = 0
        self.waiting: deque[Proposed] = deque()

    def claim(self, epoch: int) -> None:
        self.epoch = epoch
        self._apply(EntryKind.CLAIM, b"")

    def propose(self, epoch: int, base_version: int, payload: bytes, done: Done) -> None:
        self._take(Proposed(epoch, base_version, payload, done))

    def barrier(self, done: Done) -> None:
        self._take(Proposed(self.epoch, self.version, None, done))

    def _take(self, proposed: Proposed) -> None:
        self.waiting.append(proposed)
        if self.automatic:
            self.commit_all()

    def commit_all(self) -> None:
        while self.waiting:
            self.commit_next()

    def commit_next(self) -> None:
        self._commit(proposed := self.waiting.popleft(), proposed.done)

    def lose_next(self, *, applied: bool) -> None:
        """The proposer does not learn what became of it."""
        proposed = self.waiting.popleft()
        if applied:
            self._commit(proposed, lambda _: None)
        proposed.done(Unknown("nobody answered in time"))

    def drop_next(self) -> None:
        """Never applied, and the proposer knows it."""
        self.waiting.popleft().done(Refused(ErrorCode.STORAGE_OVERLOADED, "too much waits"))

    def _commit(self, proposed: Proposed, done: Done) -> None:
        if proposed.payload is None:
            done(Committed(self.version))
        elif (proposed.epoch, proposed.base_version) != (self.epoch, self.version):
            done(Refused(ErrorCode.STALE_CONTROLLER_EPOCH, "the log has moved on"))
        else:
            self.version += 1
            self._apply(EntryKind.PROPOSAL, proposed.payload)
            done(Committed(self.version))

    def _apply(self, kind: EntryKind, payload: bytes) -> None:
        self.index += 1
        self.machine.apply(AppliedEntry(kind, self.version, self.epoch, payload, self.index))
