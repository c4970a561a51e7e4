"""Clocks: the manual one moves only when told, the system's agrees with the machine."""

from __future__ import annotations

import time

import pytest

from tailrace.cluster.runtime.clock import Clock, ManualClock, SystemClock


def test_manual_clock_moves_both_times_when_advanced_and_only_the_wall_when_it_jumps() -> None:
    clock = ManualClock(now_ms=1_000)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic()) == (1_250, 0.25)
    clock.jump(-1_000)
    assert (clock.now_ms(), clock.monotonic()) == (250, 0.25)


def test_manual_clock_refuses_to_advance_when_time_would_pass_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


def test_system_clock_reads_the_clocks_of_the_machine() -> None:
    clock: Clock = SystemClock()
    before_wall, before = time.time_ns() // 1_000_000, time.monotonic()
    wall, now = clock.now_ms(), clock.monotonic()
    assert before <= now <= time.monotonic()
    assert abs(wall - before_wall) < 60_000
