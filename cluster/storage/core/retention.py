"""When a segment is closed, and when it may go.

Owns the decisions about whole segments, made by the log's owner from `SegmentFacts`; nothing here touches
a file. The log calls `should_roll` before each append, and its housekeeping calls `expired_active` (roll
first when it says so) and then `segments_to_delete`.

Invariants:

- Only a contiguous prefix of closed segments goes, so what is left is one unbroken log, and nothing at or
  above the high watermark ever goes, whatever the settings say.
- Age is told by record timestamps, never by file times: a replica that was copied, restored or restarted
  deletes the same segments as the others. The exception is a segment whose records carry no timestamp (-1):
  it ages from `created_ms`, because without any age it would stay for ever (and does, when that is unknown).
- A timestamp from the future is taken at its word: its segment, and with it everything behind it, stays
  until that time has come and the retention after it has passed. Deleting on a guess would lose data;
  retention by size still removes them, and `message.timestamp.after.max.ms` keeps them from being written.
- A limit of -1 is no limit. A topic that is only compacted passes -1 for both limits; what lies below the
  log start offset goes all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from tailrace.cluster.common.types import NO_TIMESTAMP

UNLIMITED = -1
MAX_RELATIVE_OFFSET = 0xFFFFFFFF


class SegmentFacts(NamedTuple):
    """What is known of a segment without reading it. Segments come in the order of their offsets."""

    base_offset: int
    # Where the next segment begins. After cleaning, the segment's own last record may lie far below it.
    next_offset: int
    size: int
    # The largest timestamp of its batches; -1 when there are none, or none with a timestamp.
    largest_timestamp: int
    # The largest timestamp of its first batch, from which the time to the next roll counts.
    first_timestamp: int | None = None
    # The owner's clock when the segment was made, if known; it stands in for timestamps that are missing.
    created_ms: int | None = None
    index_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        return self.size == 0


class RollReason(StrEnum):
    SIZE = "size"
    TIME = "time"
    INDEX = "index"
    OFFSETS = "offsets"


def should_roll(
    active: SegmentFacts,
    *,
    batch_size: int,
    batch_last_offset: int,
    batch_timestamp: int,
    segment_bytes: int,
    segment_ms: int,
    jitter_ms: int,
    index_full: bool,
    now_ms: int,
) -> RollReason | None:
    """Why a batch must go to a new segment, or None when the active one takes it.

    An empty segment takes any batch, however large: rolling it would only make another empty one. The one
    exception is an offset too far from its base to be stored relative to it.

    Time counts between the first batch's timestamp and this batch's, so that a replayed or delayed stream
    is cut into the same segments as a live one, and a batch older than the first never rolls. Where either
    has no timestamp the clock counts, from when the segment was made. `jitter_ms`, drawn once per segment
    by the owner, takes that much off `segment_ms`, so that a thousand logs do not all roll in one moment.
    """
    if batch_last_offset - active.base_offset > MAX_RELATIVE_OFFSET:
        return RollReason.OFFSETS
    if active.is_empty:
        return None
    if active.size + batch_size > segment_bytes:
        return RollReason.SIZE
    if segment_ms != UNLIMITED:
        first = active.first_timestamp
        if first is None or NO_TIMESTAMP in (first, batch_timestamp):
            waited = 0 if active.created_ms is None else now_ms - active.created_ms
        else:
            waited = batch_timestamp - first
        if waited > segment_ms - min(jitter_ms, segment_ms):
            return RollReason.TIME
    return RollReason.INDEX if index_full else None


def roll_ms(segment_ms: int, *, compacted: bool, max_compaction_lag_ms: int) -> int:
    """The `segment_ms` that `should_roll` is to be given.

    Only closed segments are cleaned, so a compacted log must close them at least as often as
    `max.compaction.lag.ms` wants its records compacted.
    """
    if not compacted or max_compaction_lag_ms == UNLIMITED:
        return segment_ms
    if segment_ms == UNLIMITED:
        return max_compaction_lag_ms
    return min(segment_ms, max_compaction_lag_ms)


def segments_to_delete(
    facts: Sequence[SegmentFacts],
    *,
    retention_ms: int,
    retention_bytes: int,
    high_watermark: int,
    now_ms: int,
    log_start: int,
) -> int:
    """How many segments to delete from the front.

    `facts` are all segments of the log; the last one is active, counts in the log's size, and stays.
    """
    closed = len(facts) - 1
    return _deletable_prefix(
        facts,
        limit=closed,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
        now_ms=now_ms,
        log_start=log_start,
    )


def expired_active(
    facts: Sequence[SegmentFacts],
    *,
    retention_ms: int,
    retention_bytes: int,
    high_watermark: int,
    now_ms: int,
    log_start: int,
) -> bool:
    """Whether every segment may go, the active one too, which must therefore be rolled first.

    A log that is no longer written to would otherwise keep its last records for ever. While an earlier
    segment has to stay, rolling would gain nothing. An empty active segment is never rolled.
    """
    if not facts or facts[-1].is_empty:
        return False
    return _deletable_prefix(
        facts,
        limit=len(facts),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
        now_ms=now_ms,
        log_start=log_start,
    ) == len(facts)


def is_expired(segment: SegmentFacts, *, retention_ms: int, now_ms: int) -> bool:
    """Whether all that a segment holds is older than `retention_ms`.

    A segment with nothing in it (cleaning has removed all) holds nothing to retain.
    """
    if retention_ms == UNLIMITED:
        return False
    if segment.is_empty:
        return True
    newest = segment.created_ms if segment.largest_timestamp == NO_TIMESTAMP else segment.largest_timestamp
    return newest is not None and now_ms - newest > retention_ms


def _deletable_prefix(
    facts: Sequence[SegmentFacts],
    *,
    limit: int,
    retention_ms: int,
    retention_bytes: int,
    high_watermark: int,
    now_ms: int,
    log_start: int,
) -> int:
    left = sum(segment.size for segment in facts)
    count = 0
    for segment in facts[: max(limit, 0)]:
        if segment.next_offset > high_watermark:
            break
        too_large = retention_bytes != UNLIMITED and left - segment.size >= retention_bytes
        below_start = segment.next_offset <= log_start
        if not (below_start or too_large or is_expired(segment, retention_ms=retention_ms, now_ms=now_ms)):
            break
        left -= segment.size
        count += 1
    return count


__all__ = [
    "MAX_RELATIVE_OFFSET",
    "UNLIMITED",
    "RollReason",
    "SegmentFacts",
    "expired_active",
    "is_expired",
    "roll_ms",
    "segments_to_delete",
    "should_roll",
]
