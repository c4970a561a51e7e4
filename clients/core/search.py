"""Which controller to ask, and whether to ask again: the decisions behind a call to the active controller.

Any controller may be asked. One that is not active says so, and often who is; one that is gone says nothing.
A `Search` belongs to one call and tries every address that it knows once, hints first, before it asks for a
pause. Pure; `controller_link` does the asking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError

_BUSY = frozenset((ErrorCode.STORAGE_OVERLOADED, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
_NOTHING_HAPPENED = _BUSY | {ErrorCode.NOT_CONTROLLER, ErrorCode.CONTROLLER_NOT_AVAILABLE}


class Then(Enum):
    """What to do about a call that failed."""

    GIVE_UP = auto()
    ASK_ANOTHER = auto()
    """Whoever was asked is not, or no longer, the one to ask."""
    ASK_AGAIN = auto()
    """It is the right one, and has too much to do."""


def then_after(code: ErrorCode) -> Then:
    """For errors of a whole request; those of its items are answers, and are not asked for again."""
    if code in _BUSY:
        return Then.ASK_AGAIN
    # A request with an id is done once however often it is sent, so an unknown outcome is asked for too.
    if code.retriable or code is ErrorCode.UNKNOWN_OUTCOME:
        return Then.ASK_ANOTHER
    return Then.GIVE_UP


def leaves_doubt(code: ErrorCode) -> bool:
    """Whether a request that ended so may have been carried out all the same."""
    return code not in _NOTHING_HAPPENED


def pause_ms(pauses: int, first_ms: int, longest_ms: int) -> int:
    """How long to wait after so many pauses: doubled each time, up to a limit."""
    return min(longest_ms, first_ms << min(pauses, 30))


def hinted_address(error: TailraceError) -> Address | None:
    """Where the active controller is, if the one that answered NOT_CONTROLLER knew it."""
    hint: Mapping[str, str] = getattr(error, "error_metadata", {})
    try:
        address = Address(hint["controller-host"], int(hint["controller-port"]))
        return Address.parse(str(address))
    except (KeyError, ValueError, TailraceError):
        return None


class Search:
    """`current` is whom to ask next; `failures` has the last error of each address that was asked."""

    def __init__(self, known: Iterable[Address]) -> None:
        self._known = tuple(dict.fromkeys(known))
        self._asked: set[Address] = set()
        self.current = self._known[0]
        self.failures: dict[Address, TailraceError] = {}

    def failed(self, error: TailraceError) -> bool:
        """Takes note of what came of asking `current`, and moves on. False: pause before the next."""
        self.failures[self.current] = error
        if then_after(error.code) is Then.ASK_AGAIN:
            return False
        self._asked.add(self.current)
        hint = hinted_address(error)
        untried = [one for one in (hint, *self._known) if one is not None and one not in self._asked]
        if untried:
            self.current = untried[0]
            return True
        self._asked.clear()
        self.current = hint if hint is not None else self._after_current()
        return False

    def _after_current(self) -> Address:
        """The next in turn, so that one address which swallows calls is not the first of every round."""
        if self.current not in self._known:
            return self._known[0]
        return self._known[(self._known.index(self.current) + 1) % len(self._known)]
