"""The checkpoint of a log directory: how far each log is on stable storage, and whether the end was clean.

A small state file, replaced as a whole. `directory` writes it; opening and the tools read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.logfiles import RecoveryPoint
from tailrace.cluster.storage.statefile import read_state, write_state

CHECKPOINT_FILE = "checkpoint.json"
CHECKPOINT_VERSION = 1


class SavedPoint(NamedTuple):
    """What the directory's checkpoint says of a log. Only of that incarnation: names and ids come back."""

    incarnation: bytes
    point: RecoveryPoint
    high_watermark: int
    cleaned_to: int
    next_horizon_ms: int | None
    rewrites: int

    def to_json(self) -> tuple[int | str | None, ...]:
        return (self.incarnation.hex(), *self.point, *self[2:])

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> SavedPoint:
        incarnation, offset, base, position, high_watermark, cleaned_to, horizon, rewrites = values
        return cls(
            bytes.fromhex(incarnation),
            RecoveryPoint(int(offset), int(base), int(position)),
            int(high_watermark),
            int(cleaned_to),
            None if horizon is None else int(horizon),
            int(rewrites),
        )


class Checkpoint(NamedTuple):
    clean: bool
    generation: int
    logs: dict[str, SavedPoint]


def read_checkpoint(files: Files, directory: str) -> Checkpoint:
    """The saved recovery points; a damaged or missing file means that nothing is known."""
    try:
        _, body = read_state(files, f"{directory}/{CHECKPOINT_FILE}", "checkpoint", CHECKPOINT_VERSION)
        logs = {name: SavedPoint.from_json(values) for name, values in body["logs"].items()}
        return Checkpoint(bool(body["clean"]), int(body["generation"]), logs)
    except FileNotFoundError:
        return Checkpoint(False, 0, {})
    except (TailraceError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, TailraceError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
            raise
        return Checkpoint(False, 0, {})


def write_checkpoint(
    files: Files, directory: str, logs: dict[str, list[int | str | None]], *, clean: bool, generation: int
) -> None:
    body = {"clean": clean, "generation": generation, "logs": logs}
    write_state(files, f"{directory}/{CHECKPOINT_FILE}", "checkpoint", CHECKPOINT_VERSION, body)
