"""Time, as something that is handed in: the seam through which shells read clocks.

Pure code takes `now_ms` as an argument; shells get it from a `Clock`. Wall time (`now_ms`) is what
records and files carry, and may jump; monotonic time is for durations and deadlines, and never goes
back. `ManualClock` moves only when told to, for tests and simulations.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back."""


class SystemClock:
    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    __slots__ = ("_elapsed_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Lets time pass on both clocks."""
        if ms < 0:
            raise ValueError(f"time cannot pass backwards ({ms} ms); use jump to set the wall clock back")
        self._now_ms += ms
        self._elapsed_ms += ms

    def jump(self, ms: int) -> None:
        """Sets the wall clock forward or back by `ms`, as an administrator or NTP would."""
        self._now_ms += ms
