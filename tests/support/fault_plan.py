"""When the calls of a `FaultFiles` fail: planned errors, and the step at which the power goes.

Owns the counting of steps and the state of the power. It knows nothing of files: callers say which call on
which path they are about to make, and what part of it may still happen.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal, NoReturn

Call = Literal[
    "open", "create", "read", "write", "datasync", "truncate", "allocate",
    "list", "mkdir", "rename", "remove", "sync_dir",
]  # fmt: skip
When = Callable[[Call, str], bool]


class PowerLost(BaseException):
    """The machine is off. No `except Exception` of the code under test may go on after it."""


@dataclass(slots=True, eq=False)
class Fault:
    """A planned failure; `hits` counts the calls that it struck."""

    error: int
    when: When
    skip: int
    times: int | None
    hits: int = 0

    def strikes(self, call: Call, path: str) -> bool:
        if (self.times is not None and self.hits >= self.times) or not self.when(call, path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits += 1
        return True


def on(call: Call, suffix: str = "") -> When:
    """The predicate for one kind of call on paths with this ending."""
    return lambda made, path: made == call and path.endswith(suffix)


def refuse(error: int, path: str) -> NoReturn:
    raise OSError(error, os.strerror(error), path)


class FaultPlan:
    __slots__ = ("crash_at", "dead", "faults", "rng", "steps")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.steps = 0
        self.crash_at = 0
        self.dead = False
        self.faults: list[Fault] = []

    def check_power(self) -> None:
        if self.dead:
            raise PowerLost("the power is off")

    def error_for(self, call: Call, path: str) -> int:
        """The errno with which this call is to fail, or 0."""
        for fault in self.faults:
            if fault.strikes(call, path):
                return fault.error
        return 0

    def before(self, call: Call, path: str) -> None:
        """For a call that fails without any effect."""
        self.check_power()
        if self.faults and (error := self.error_for(call, path)):
            refuse(error, path)

    def step(self) -> bool:
        """Count a change; True if the power goes during it."""
        self.steps += 1
        self.dead = self.steps == self.crash_at
        return self.dead

    def step_or_die(self, change: Callable[[], None] | None = None) -> None:
        """Count a change that is one piece: at the crash point it happens as a whole or not at all."""
        if self.step():
            if change is not None and self.rng.random() < 0.5:
                change()
            raise PowerLost(f"at step {self.steps}")
        if change is not None:
            change()


__all__ = ["Call", "Fault", "FaultPlan", "PowerLost", "When", "on", "refuse"]
