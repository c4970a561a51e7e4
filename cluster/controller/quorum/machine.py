"""What the quorum replicates: a state machine that is told of every accepted entry, in order.

All calls come from the Raft thread. The machine is total: it never raises on an entry that the quorum has
accepted, because the same entry would stop every controller alike. An exception is fatal for the node.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol


class EntryKind(Enum):
    PROPOSAL = "proposal"
    CLAIM = "claim"


class AppliedEntry(NamedTuple):
    """An entry that the guard has accepted.

    `version` counts the accepted proposals up to and including this entry. A claim (a controller taking
    over) has an empty payload and leaves the version as it was; `epoch` is the new controller epoch then.
    `index` is the position in the Raft log, which also counts entries that nobody is told of.
    """

    kind: EntryKind
    version: int
    epoch: int
    payload: bytes
    index: int  # type: ignore[assignment]  # Nobody needs `tuple.index` of an entry.


class StateMachine(Protocol):
    def apply(self, entry: AppliedEntry) -> None: ...

    def snapshot(self) -> Callable[[], bytes]:
        """Freeze the state now, cheaply; the result encodes it later, on another thread."""

    def load(self, state: bytes, version: int, epoch: int) -> None:
        """Replace the whole state by one that `snapshot` has encoded, here or on another controller."""
