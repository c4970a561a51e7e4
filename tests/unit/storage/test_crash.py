"""Crashes anywhere in random histories: what was acknowledged stays, and nothing else is wrong.

Each case crashes one history at one step of its file system, opens what is left, goes on, and crashes again,
in the middle of the recovery or later. `python -m tests.crash` runs as many more as one likes.
"""

from __future__ import annotations

import pytest

from tests.support.crashes import Case, draw_cuts, run

SHORT = 10


@pytest.mark.parametrize("seed", range(2))
def test_logs_keep_their_promises_when_a_short_history_crashes_at_every_step(seed: int) -> None:
    for cut in draw_cuts(seed, 0, SHORT):
        run(Case(seed, cut, SHORT))


@pytest.mark.parametrize("seed", range(150, 174))
def test_logs_keep_their_promises_when_a_long_history_crashes_somewhere(seed: int) -> None:
    for cut in draw_cuts(seed, 8):
        run(Case(seed, cut))
