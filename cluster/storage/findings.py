"""What a check of log directories has to say: findings by severity, and what was counted on the way.

An *error* means that records are damaged, missing or would be read wrongly; a *warning* that a derived file
is damaged or missing, which costs time but no data; a *note* that something is worth knowing and in order,
such as the torn end that a crash leaves. Used by `verify` and its parts, shown by `clients/cli`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

REFILL = "Let the replica be filled again from another one."


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Finding(NamedTuple):
    severity: Severity
    path: str
    position: int | None
    """The byte in the file where it begins, if that can be said."""
    message: str


@dataclass(slots=True)
class Tally:
    """What was seen of one partition, or of all together."""

    name: str
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    start_offset: int = 0
    end_offset: int = 0
    found: dict[Severity, int] = field(default_factory=lambda: dict.fromkeys(Severity, 0))

    def add(self, other: Tally) -> None:
        self.segments += other.segments
        self.batches += other.batches
        self.records += other.records
        self.size += other.size
        for severity, count in other.found.items():
            self.found[severity] += count


class Report:
    """Counts findings in a tally and passes them on as they come."""

    def __init__(self, tally: Tally, on_finding: Callable[[Finding], None]) -> None:
        self.tally = tally
        self._on_finding = on_finding

    def error(self, path: str, message: str, position: int | None = None) -> None:
        self._add(Severity.ERROR, path, message, position)

    def warn(self, path: str, message: str, position: int | None = None) -> None:
        self._add(Severity.WARNING, path, message, position)

    def note(self, path: str, message: str, position: int | None = None) -> None:
        self._add(Severity.NOTE, path, message, position)

    def _add(self, severity: Severity, path: str, message: str, position: int | None) -> None:
        self.tally.found[severity] += 1
        # Messages of other modules begin with the path, which is named by the finding already.
        self._on_finding(Finding(severity, path, position, message.removeprefix(f"{path} ")))


def silent() -> Report:
    """For looking at a file whose own condition is not asked for."""
    return Report(Tally(""), lambda finding: None)
