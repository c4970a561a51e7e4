"""Which leader epoch wrote which offsets of a log: the history by which replicas find where they part.

The history is a list of (epoch, start offset), both strictly growing: the epoch wrote everything from its
start up to the start of the next entry, the latest one up to the end of the log. A follower truncates to what
`end_offset_for` tells it, never to its high watermark (KIP-101), and the answer names the epoch it speaks of,
so that two logs that share no epoch keep searching instead of guessing (KIP-279).

The log owns its history, assigns an epoch when it becomes leader and with every batch that it appends as a
follower or replays, and stores `to_json` in `leader-epochs.json` whenever a method says that it changed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import NO_LEADER_EPOCH

_VERSION = 1
_NO_OFFSET = -1


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class EpochHistory:
    """The leader epochs of one log. Not safe for several threads; its log's owner calls it."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        # Two parallel lists, both strictly growing, so that either can be searched by halves.
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpochHistory):
            return NotImplemented
        return self._epochs == other._epochs and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"EpochHistory({[tuple(entry) for entry in self.entries()]})"

    @property
    def latest(self) -> int:
        """The newest epoch, or NO_LEADER_EPOCH without any."""
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def entries(self) -> list[EpochEntry]:
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    def copy(self) -> EpochHistory:
        other = EpochHistory()
        other._epochs = self._epochs.copy()
        other._starts = self._starts.copy()
        return other

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` wrote from `start_offset` on; True when the history changed.

        More of the latest epoch is no news. An epoch that starts where the latest one started replaces it,
        because that one wrote nothing. Going back in either number means that two leaders' logs were mixed
        up, which the caller must not survive: ValueError.
        """
        if self._epochs:
            latest, latest_start = self._epochs[-1], self._starts[-1]
            if epoch == latest and start_offset >= latest_start:
                return False
            if epoch <= latest or start_offset < latest_start:
                raise ValueError(
                    f"epoch {epoch} from offset {start_offset} would go back behind "
                    f"epoch {latest} from offset {latest_start}"
                )
            if start_offset == latest_start:
                self._epochs[-1] = epoch
                return True
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} from offset {start_offset}: neither may be negative")
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote (or, past the end, would write) an offset; NO_LEADER_EPOCH if not known."""
        number = bisect_right(self._starts, offset) - 1
        return self._epochs[number] if number >= 0 else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch at or below the requested one, and where it ends in this log (exclusive).

        - the latest epoch ends where the log ends;
        - an epoch in between, known or not: the largest known one at or below it ends where the next begins;
        - older than all known: (the requested epoch, start of the first known one), since whatever that
          epoch wrote lies before it;
        - newer than all known, or none: (-1, -1), nothing can be said.
        """
        if epoch == NO_LEADER_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return NO_LEADER_EPOCH, _NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def truncate_end(self, offset: int) -> bool:
        """The log now ends at `offset`: forgets the epochs that began there or later."""
        keep = bisect_left(self._starts, offset)
        changed = keep < len(self._starts)
        del self._epochs[keep:]
        del self._starts[keep:]
        return changed

    def truncate_start(self, offset: int) -> bool:
        """The log now starts at `offset`: forgets what lies before; the epoch of `offset` begins there."""
        covering = bisect_right(self._starts, offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == offset):
            return False
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = offset
        return True

    def to_json(self) -> dict[str, Any]:
        """A value for `json.dumps`; the file's envelope and checksum are the caller's."""
        return {"version": _VERSION, "epochs": [list(entry) for entry in self.entries()]}

    @classmethod
    def from_json(cls, value: object) -> EpochHistory:
        """What `to_json` returned; STORAGE_CORRUPT for anything else."""
        if not isinstance(value, dict) or value.get("version") != _VERSION:
            raise _corrupt(f"expected an object of version {_VERSION}, found {value!r:.80}")
        pairs = value.get("epochs")
        if not isinstance(pairs, list):
            raise _corrupt(f"expected a list of epochs, found {pairs!r:.80}")
        history = cls()
        for pair in pairs:
            match pair:
                case [int(epoch), int(start)] if type(epoch) is int and type(start) is int:
                    pass
                case _:
                    raise _corrupt(f"expected [epoch, start offset], found {pair!r:.80}")
            if epoch <= history.latest or start <= (history._starts[-1] if history._starts else _NO_OFFSET):
                raise _corrupt(f"{pair} does not follow {history.entries()[-1:]}")
            history._epochs.append(epoch)
            history._starts.append(start)
        return history


def _corrupt(found: str) -> TailraceError:
    return TailraceError(
        ErrorCode.STORAGE_CORRUPT,
        f"the leader epoch history is damaged ({found}); it is rebuilt from the log's batch headers",
    )
