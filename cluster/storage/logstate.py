"""`log-state.json`: what a log knows of itself beside its batches, saved whenever that changes.

Leader epochs; the segments there are, with where their records end and how many aborted transactions their
index lists; and how often bytes below a recovery point were rewritten (see `LogFiles`). With it a recovery
can tell that a segment or an index entry is missing; without it the batches are asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.segment import CONTENT_OF_ACTIVE, Segment
from tailrace.cluster.storage.statefile import read_state, write_state

STATE_FILE = "log-state.json"
STATE_VERSION = 1
_KIND = "log-state"


class SavedSegment(NamedTuple):
    base_offset: int
    # Where its records end, or CONTENT_OF_ACTIVE or CONTENT_UNKNOWN.
    content_end: int
    # In bytes; -1 for one that may still change.
    size: int
    aborted: int
    # Of a closed segment, so that retention need not read its files to know its age.
    largest_timestamp: int | None
    first_timestamp: int | None


class SavedLogState(NamedTuple):
    epochs: EpochHistory
    segments: tuple[SavedSegment, ...]
    rewrites: int
    lowered_to: int | None
    # The flush policy under which the log was last written: what was synced when follows from it.
    flush: str
    # Everything below was on stable storage when the state was saved.
    synced_to: int

    def to_json(self) -> dict[str, Any]:
        return {
            "epochs": self.epochs.to_json(),
            "segments": self.segments,
            "rewrites": self.rewrites,
            "lowered_to": self.lowered_to,
            "flush": self.flush,
            "synced_to": self.synced_to,
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> SavedLogState:
        """Raises KeyError, TypeError, ValueError or TailraceError for anything that is not such a state."""
        lowered_to = body["lowered_to"]
        return cls(
            EpochHistory.from_json(body["epochs"]),
            tuple(_segment_from(*segment) for segment in body["segments"]),
            int(body["rewrites"]),
            None if lowered_to is None else int(lowered_to),
            str(body["flush"]),
            int(body["synced_to"]),
        )


def saved_segments(segments: Sequence[Segment]) -> tuple[SavedSegment, ...]:
    """Of a log with thousands of segments only a few have changed since the last call: the rest is kept."""
    *closed, active = segments
    growing = SavedSegment(active.base_offset, CONTENT_OF_ACTIVE, -1, active.aborted_count, None, None)
    return (*(segment.settled or _saved_closed(segment) for segment in closed), growing)  # type: ignore[arg-type]


def _saved_closed(segment: Segment) -> SavedSegment:
    # A cleaned segment that is not in place yet (its handle is pinned) may still be its old self.
    size = segment.size if segment.pinned is None else -1
    largest, first = segment.known_largest_timestamp, segment.known_first_timestamp
    saved = SavedSegment(
        segment.base_offset, segment.content_end, size, segment.aborted_count, largest, first
    )
    if size >= 0 and segment.content_end >= 0 and largest is not None and first is not None:
        segment.settled = saved
    return saved


def _segment_from(base: Any, content_end: Any, size: Any, aborted: Any, *times: Any) -> SavedSegment:
    largest, first = (None if time is None else int(time) for time in times)
    return SavedSegment(int(base), int(content_end), int(size), int(aborted), largest, first)


def read_log_state(files: Files, directory: str, *, remedy: str = "") -> SavedLogState:
    """FileNotFoundError without one; otherwise as `from_json`, or STORAGE_CORRUPT for a damaged file."""
    _, body = read_state(files, f"{directory}/{STATE_FILE}", _KIND, STATE_VERSION, remedy=remedy)
    return SavedLogState.from_json(body)


def find_log_state(files: Files, directory: str) -> SavedLogState | None:
    """The state, or None when it is missing or cannot be used."""
    with contextlib.suppress(FileNotFoundError, KeyError, TypeError, ValueError, TailraceError):
        return read_log_state(files, directory)
    return None


def write_log_state(files: Files, directory: str, state: dict[str, Any]) -> None:
    write_state(files, f"{directory}/{STATE_FILE}", _KIND, STATE_VERSION, state)
