"""The watchdog: what it says about a tick that takes long, and that it says it once."""

from __future__ import annotations

import pytest

from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.watchdog import Finding, TickWatch
from tailrace.cluster.runtime.clock import ManualClock

SETTINGS = QuorumSettings(slow_tick_ms=100, stuck_tick_ms=1000)


def test_nothing_is_found_when_ticks_are_short() -> None:
    clock = ManualClock()
    watch = TickWatch(clock, SETTINGS)
    assert watch.check() is None
    for _ in range(5):
        watch.begin()
        clock.advance(99)
        assert watch.check() is None
        assert watch.end() == pytest.approx(0.099)
        clock.advance(5000)
        assert watch.check() is None


def test_slow_and_stuck_are_found_once_each_when_a_tick_takes_long() -> None:
    clock = ManualClock()
    watch = TickWatch(clock, SETTINGS)
    watch.begin()
    found = []
    for _ in range(20):
        clock.advance(100)
        found.append(watch.check())
    assert [one[0] for one in found if one] == [Finding.SLOW, Finding.STUCK]
    watch.end()
    watch.begin()
    clock.advance(2000)
    again = watch.check()
    assert again is not None
    assert again[0] is Finding.STUCK


def test_stuck_is_found_at_once_when_nobody_looked_before() -> None:
    clock = ManualClock()
    watch = TickWatch(clock, SETTINGS)
    watch.begin()
    clock.advance(3000)
    finding, seconds = watch.check() or (None, 0.0)
    assert (finding, round(seconds, 3)) == (Finding.STUCK, 3.0)
    assert watch.check() is None
