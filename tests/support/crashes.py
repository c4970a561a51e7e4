"""One history, crashed at a chosen step and then again and again: the case that seed and cut stand for."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.support.driving import KeepsUnsynced, LosesUnsynced
from tests.support.fault_files import FaultFiles, PowerLost
from tests.support.histories import History

# Operations up to the first crash, and at most in each life after it.
LENGTH = 100
AFTER = 40
CRASHES = 3
KILLS = 0.2


class Case(NamedTuple):
    seed: int
    # The step of the file system at which the first crash happens.
    cut: int
    length: int = LENGTH

    def __str__(self) -> str:
        return f"--seed {self.seed} --cut {self.cut} --length {self.length}"


class CaseFailedError(AssertionError):
    """A case that went wrong, with all that is needed to look into it."""

    def __init__(self, case: Case, history: History, error: BaseException) -> None:
        self.case = case
        self.trace = history.trace
        super().__init__(f"{type(error).__name__}: {error}\nRepeat it with: python -m tests.crash {case}")


def undisturbed(seed: int, length: int = LENGTH) -> tuple[History, int]:
    """The history when nothing interrupts it, and the number of its steps: so many cuts there are."""
    history = History(seed)
    try:
        history.open(FaultFiles(Random(seed)))
        history.go_on(length)
        steps = history.files.steps
        history.finish()
    except Exception as error:
        raise CaseFailedError(Case(seed, 0, length), history, error) from error
    return history, steps


def draw_cuts(seed: int, count: int, length: int = LENGTH) -> list[int]:
    """`count` steps to crash at, or every step if there are no more or `count` is 0."""
    _, last = undisturbed(seed, length)
    steps = range(1, last + 1)
    return sorted(Random(seed).sample(steps, count)) if 0 < count < last else list(steps)


def run(case: Case) -> History:
    """Raises `CaseFailedError` if what is found after a crash, or later, is not what the books allow."""
    history = History(case.seed)
    files = FaultFiles(Random(case.seed))
    files.crash_after(case.cut)
    rng = Random(f"{case.seed}/{case.cut}")
    try:
        _live(history, files, case.length)
        history.rng = rng
        for crash in range(1, CRASHES + 1):
            files = history.crash(_draw(rng), kill=rng.random() < KILLS)
            if crash < CRASHES:
                files.crash_after(_next_cut(rng))
            _live(history, files, rng.randint(0, AFTER))
        history.finish()
    except Exception as error:
        raise CaseFailedError(case, history, error) from error
    return history


def _live(history: History, files: FaultFiles, operations: int) -> None:
    try:
        history.open(files)
        history.go_on(operations)
    except PowerLost:
        pass


def _next_cut(rng: Random) -> int:
    """Often inside the recovery, which takes a few dozen steps."""
    return rng.randint(1, 40 if rng.random() < 0.3 else 500)


def _draw(rng: Random) -> Random:
    """What a loss of power leaves: mostly some of what was not synced, at times nothing or all of it."""
    kind = rng.choices((Random, LosesUnsynced, KeepsUnsynced), (80, 14, 6))[0]
    return kind(rng.getrandbits(64))
