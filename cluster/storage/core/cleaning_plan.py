"""Which compacted log to clean next, how far, and which segments become one.

The log manager calls `assess` for each compacted log and `choose` among the results; the cleaner calls
`group_segments`. What stays of each batch is decided in `cleaning`.

A cleaning covers whole closed segments, from the log's start up to the first one that holds anything at or
above the last stable offset or, in the dirty section, a record younger than `min.compaction.lag.ms`. A topic
that is compacted and deleted has its expired segments removed by `retention` as well; neither waits for the
other, and the dirty section begins at the log start offset when that has passed the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tailrace.cluster.common.types import NO_TIMESTAMP
from tailrace.cluster.storage.core.retention import MAX_RELATIVE_OFFSET, UNLIMITED, SegmentFacts

LogId = TypeVar("LogId")


class Assessment(NamedTuple):
    """What cleaning a log now would do. The dirty section is [first_dirty, end), perhaps empty."""

    first_dirty: int
    # A segment boundary: segments below it are cleaned, those from it on are not touched.
    end: int
    clean_bytes: int
    dirty_bytes: int
    # A record waits longer than max.compaction.lag.ms.
    overdue: bool
    # Tombstones or markers wait for their removal.
    horizon_passed: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def needs_cleaning(self, min_cleanable_dirty_ratio: float) -> bool:
        if self.dirty_bytes == 0:
            return self.horizon_passed
        return self.overdue or self.horizon_passed or self.dirty_ratio > min_cleanable_dirty_ratio


def assess(
    facts: Sequence[SegmentFacts],
    *,
    checkpoint: int,
    log_start: int,
    last_stable_offset: int,
    min_compaction_lag_ms: int,
    max_compaction_lag_ms: int,
    next_horizon_ms: int | None,
    now_ms: int,
) -> Assessment:
    """How dirty a log is.

    `facts` are all its segments, the active one last. `checkpoint` is the first offset that no cleaning has
    covered; one outside the log (cut off or deleted since) means that all of it is dirty. `next_horizon_ms`
    comes from the last `CleanResult`: without it, a log that is no longer written to would keep its
    expired tombstones for ever.
    """
    end_offset = facts[-1].next_offset
    first_dirty = checkpoint if log_start <= checkpoint <= end_offset else log_start
    end = facts[0].base_offset
    clean_bytes = dirty_bytes = 0
    oldest: int | None = None
    for segment in facts[:-1]:
        if segment.next_offset > last_stable_offset:
            break
        is_dirty = segment.next_offset > first_dirty
        if is_dirty and _is_younger(segment, min_compaction_lag_ms, now_ms):
            break
        end = segment.next_offset
        if is_dirty:
            dirty_bytes += segment.size
            started = _first_known_time(segment)
            if started is not None and (oldest is None or started < oldest):
                oldest = started
        else:
            clean_bytes += segment.size
    overdue = (
        max_compaction_lag_ms != UNLIMITED and oldest is not None and now_ms - oldest > max_compaction_lag_ms
    )
    return Assessment(
        first_dirty=first_dirty,
        end=end,
        clean_bytes=clean_bytes,
        dirty_bytes=dirty_bytes,
        overdue=overdue,
        horizon_passed=next_horizon_ms is not None and next_horizon_ms <= now_ms and clean_bytes > 0,
    )


def choose(assessments: Mapping[LogId, tuple[Assessment, float]]) -> LogId | None:
    """The log to clean next, given each one's assessment and its `min.cleanable.dirty.ratio`.

    Overdue logs come first, because their limit is a promise; then the filthiest, because a pass over it
    gains the most.
    """
    waiting = [
        log_id for log_id, (assessment, ratio) in assessments.items() if assessment.needs_cleaning(ratio)
    ]
    if not waiting:
        return None
    return max(
        waiting, key=lambda log_id: (assessments[log_id][0].overdue, assessments[log_id][0].dirty_ratio)
    )


def active_is_overdue(active: SegmentFacts, *, max_compaction_lag_ms: int, now_ms: int) -> bool:
    """Whether the active segment must be rolled because a record in it waits too long for compaction.

    `should_roll` acts on appends only; this is for a log that is no longer written to.
    """
    started = _first_known_time(active)
    return (
        max_compaction_lag_ms != UNLIMITED
        and not active.is_empty
        and started is not None
        and now_ms - started > max_compaction_lag_ms
    )


def group_segments(
    facts: Iterable[SegmentFacts], *, segment_bytes: int, index_bytes: int = UNLIMITED
) -> list[tuple[SegmentFacts, ...]]:
    """Neighbours whose remains go into one new segment, by their sizes before cleaning.

    A group never exceeds what one segment may be, so cleaning does not grow a segment; a segment larger
    than the limit (the setting was lowered) is a group by itself.
    """
    groups: list[tuple[SegmentFacts, ...]] = []
    group: list[SegmentFacts] = []
    size = index_size = 0
    for segment in facts:
        size += segment.size
        index_size += segment.index_bytes
        if group and (
            size > segment_bytes
            or (index_bytes != UNLIMITED and index_size > index_bytes)
            or segment.next_offset - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET
        ):
            groups.append(tuple(group))
            group = []
            size, index_size = segment.size, segment.index_bytes
        group.append(segment)
    if group:
        groups.append(tuple(group))
    return groups


def _is_younger(segment: SegmentFacts, min_lag_ms: int, now_ms: int) -> bool:
    """Whether a record of the segment is younger than `min.compaction.lag.ms`.

    Without a lag nothing is, not even a timestamp from the future.
    """
    if min_lag_ms <= 0 or segment.is_empty:
        return False
    newest = segment.largest_timestamp if segment.largest_timestamp != NO_TIMESTAMP else segment.created_ms
    return newest is not None and newest > now_ms - min_lag_ms


def _first_known_time(segment: SegmentFacts) -> int | None:
    first = segment.first_timestamp
    return segment.created_ms if first is None or first == NO_TIMESTAMP else first
