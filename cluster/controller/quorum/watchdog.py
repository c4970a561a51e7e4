"""Notices when the Raft thread stands still: a disk that does not answer, a machine that does not return.

The thread reports the beginning and the end of each tick; `check` is called from elsewhere, again and
again, and says what there is to say once. Nothing here waits or starts anything.
"""

from __future__ import annotations

from enum import Enum

from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.runtime.clock import Clock


class Finding(Enum):
    SLOW = "slow"
    STUCK = "stuck"


class TickWatch:
    def __init__(self, clock: Clock, settings: QuorumSettings) -> None:
        self._clock = clock
        self._slow_s = settings.slow_tick_ms / 1000
        self._stuck_s = settings.stuck_tick_ms / 1000
        self._began: float | None = None
        self._reported: Finding | None = None

    def begin(self) -> None:
        self._reported = None
        self._began = self._clock.monotonic()

    def end(self) -> float:
        """How many seconds the tick took."""
        began, self._began = self._began, None
        return 0.0 if began is None else self._clock.monotonic() - began

    def check(self) -> tuple[Finding, float] | None:
        """Something new to report about the tick that is going on, and how long it has been."""
        began = self._began
        if began is None:
            return None
        took = self._clock.monotonic() - began
        if took >= self._stuck_s and self._reported is not Finding.STUCK:
            self._reported = Finding.STUCK
            return Finding.STUCK, took
        if took >= self._slow_s and self._reported is None:
            self._reported = Finding.SLOW
            return Finding.SLOW, took
        return None
