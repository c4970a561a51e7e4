"""Which segments go, when the active one is closed, and what no setting can make happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.storage.core.retention import (
    MAX_RELATIVE_OFFSET,
    UNLIMITED,
    RollReason,
    SegmentFacts,
    expired_active,
    roll_ms,
    segments_to_delete,
    should_roll,
)

NOW = 1_000_000


def segments(*sizes_and_times: tuple[int, int]) -> list[SegmentFacts]:
    """Segments of ten offsets each with these sizes and largest timestamps."""
    return [
        SegmentFacts(10 * n, 10 * n + 10, size, timestamp, timestamp)
        for n, (size, timestamp) in enumerate(sizes_and_times)
    ]


def count(
    facts: list[SegmentFacts],
    *,
    retention_ms: int = UNLIMITED,
    retention_bytes: int = UNLIMITED,
    high_watermark: int = 1 << 40,
    log_start: int = 0,
) -> int:
    return segments_to_delete(
        facts,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
        now_ms=NOW,
        log_start=log_start,
    )


def active_expired(
    facts: list[SegmentFacts],
    *,
    retention_ms: int = UNLIMITED,
    retention_bytes: int = UNLIMITED,
    high_watermark: int = 1 << 40,
    log_start: int = 0,
) -> bool:
    return expired_active(
        facts,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
        now_ms=NOW,
        log_start=log_start,
    )


def test_retention_deletes_nothing_when_unlimited() -> None:
    assert count(segments((9, 0), (9, 0), (9, 0))) == 0


def test_retention_deletes_by_largest_timestamp_when_older_than_limit() -> None:
    facts = segments((9, NOW - 101), (9, NOW - 101), (9, NOW - 100), (9, NOW - 500), (9, NOW))
    # Exactly as old as the limit stays, and so does everything behind it.
    assert count(facts, retention_ms=100) == 2


def test_retention_keeps_active_segment_when_expired() -> None:
    assert count(segments((9, 0), (9, 0)), retention_ms=100) == 1
    assert count(segments((9, 0)), retention_ms=100) == 0


def test_retention_deletes_by_size_when_rest_still_reaches_limit() -> None:
    facts = segments((100, NOW), (100, NOW), (100, NOW), (50, NOW))
    assert count(facts, retention_bytes=250) == 1
    assert count(facts, retention_bytes=251) == 0
    assert count(facts, retention_bytes=150) == 2
    assert count(facts, retention_bytes=0) == 3


def test_retention_stops_at_high_watermark_when_all_have_expired() -> None:
    facts = segments((9, 0), (9, 0), (9, 0), (9, 0))
    assert count(facts, retention_ms=1, high_watermark=20) == 2
    assert count(facts, retention_ms=1, high_watermark=19) == 1
    assert count(facts, retention_bytes=0, high_watermark=0) == 0


def test_retention_deletes_below_log_start_when_unlimited() -> None:
    facts = segments((9, NOW), (9, NOW), (9, NOW))
    assert count(facts, log_start=20) == 2
    assert count(facts, log_start=19) == 1


def test_retention_keeps_segment_when_timestamp_is_in_future() -> None:
    facts = segments((9, NOW - 500), (9, NOW + 10**9), (9, 0), (9, NOW))
    assert count(facts, retention_ms=100) == 1
    # Size still removes it.
    assert count(facts, retention_bytes=10) == 2


def test_retention_ages_from_creation_when_records_have_no_timestamp() -> None:
    facts = segments((9, -1), (9, NOW))
    assert count([facts[0]._replace(created_ms=NOW - 101), facts[1]], retention_ms=100) == 1
    assert count([facts[0]._replace(created_ms=NOW - 100), facts[1]], retention_ms=100) == 0
    assert count(facts, retention_ms=100) == 0


def test_retention_deletes_segment_when_cleaning_left_nothing_in_it() -> None:
    facts = segments((0, -1), (9, NOW))
    assert count(facts, retention_ms=100) == 1
    assert count(facts) == 0


def test_active_segment_expires_when_everything_has() -> None:
    facts = segments((9, 0), (9, NOW - 101))
    assert active_expired(facts, retention_ms=100)
    assert not active_expired(facts, retention_ms=101)
    assert not active_expired(facts, retention_ms=100, high_watermark=19)
    assert active_expired(facts, retention_bytes=0)
    assert active_expired(facts, log_start=20)


def test_active_segment_stays_when_an_earlier_one_does() -> None:
    assert not active_expired(segments((9, NOW + 5), (9, 0)), retention_ms=100)


def test_active_segment_stays_when_empty() -> None:
    assert not active_expired(segments((9, 0), (0, -1)), retention_ms=100)
    assert not active_expired([], retention_ms=100)


facts_lists = st.lists(st.tuples(st.integers(0, 100), st.integers(-1, NOW + 50)), min_size=1, max_size=8).map(
    lambda pairs: segments(*pairs)
)


@given(facts_lists, st.integers(-1, 200), st.integers(-1, 500), st.integers(0, 90), st.integers(0, 90))
def test_retention_keeps_its_promises_when_settings_are_arbitrary(
    facts: list[SegmentFacts], retention_ms: int, retention_bytes: int, high_watermark: int, log_start: int
) -> None:
    log_start = min(log_start, high_watermark)
    deleted = count(
        facts,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
        log_start=log_start,
    )
    assert 0 <= deleted < len(facts)
    for segment in facts[:deleted]:
        assert segment.next_offset <= high_watermark
    left = sum(segment.size for segment in facts[deleted:])
    if retention_ms == UNLIMITED and deleted and facts[deleted - 1].next_offset > log_start:
        assert retention_bytes != UNLIMITED
        assert left >= retention_bytes


def roll(active: SegmentFacts, **changes: int | bool) -> RollReason | None:
    arguments: dict[str, int | bool] = {
        "batch_size": 10,
        "batch_last_offset": active.next_offset,
        "batch_timestamp": 1_000,
        "segment_bytes": 100,
        "segment_ms": 500,
        "jitter_ms": 0,
        "index_full": False,
        "now_ms": NOW,
        **changes,
    }
    return should_roll(active, **arguments)  # type: ignore[arg-type]


ACTIVE = SegmentFacts(100, 110, 90, 1_000, 900, NOW)


def test_roll_waits_when_batch_fits_exactly() -> None:
    assert roll(ACTIVE) is None
    assert roll(ACTIVE, batch_size=11) is RollReason.SIZE


def test_roll_goes_by_record_timestamps_when_they_are_known() -> None:
    assert roll(ACTIVE, batch_timestamp=1_400) is None
    assert roll(ACTIVE, batch_timestamp=1_401) is RollReason.TIME
    assert roll(ACTIVE, batch_timestamp=0, now_ms=NOW * 2) is None
    assert roll(ACTIVE, batch_timestamp=10**15, segment_ms=UNLIMITED) is None


def test_roll_goes_by_clock_when_timestamps_are_missing() -> None:
    assert roll(ACTIVE, batch_timestamp=-1, now_ms=NOW + 500) is None
    assert roll(ACTIVE, batch_timestamp=-1, now_ms=NOW + 501) is RollReason.TIME
    assert roll(ACTIVE._replace(first_timestamp=-1), now_ms=NOW + 501) is RollReason.TIME
    assert roll(ACTIVE._replace(created_ms=None), batch_timestamp=-1, now_ms=NOW * 2) is None


@pytest.mark.parametrize(("jitter", "expected"), [(0, None), (100, None), (101, RollReason.TIME)])
def test_roll_comes_earlier_when_jitter_is_set(jitter: int, expected: RollReason | None) -> None:
    assert roll(ACTIVE, batch_timestamp=1_300, jitter_ms=jitter) is expected


def test_roll_follows_when_index_is_full_or_offsets_overflow() -> None:
    assert roll(ACTIVE, index_full=True) is RollReason.INDEX
    assert roll(ACTIVE, batch_last_offset=100 + MAX_RELATIVE_OFFSET) is None
    assert roll(ACTIVE, batch_last_offset=101 + MAX_RELATIVE_OFFSET) is RollReason.OFFSETS


def test_roll_never_happens_when_segment_is_empty_except_for_offsets() -> None:
    empty = SegmentFacts(100, 100, 0, -1)
    assert roll(empty, batch_size=10**9, batch_timestamp=10**15, index_full=True) is None
    assert roll(empty, batch_last_offset=101 + MAX_RELATIVE_OFFSET) is RollReason.OFFSETS


def test_roll_ms_is_cut_when_compaction_must_not_wait_longer() -> None:
    assert roll_ms(500, compacted=True, max_compaction_lag_ms=100) == 100
    assert roll_ms(500, compacted=False, max_compaction_lag_ms=100) == 500
    assert roll_ms(500, compacted=True, max_compaction_lag_ms=UNLIMITED) == 500
    assert roll_ms(UNLIMITED, compacted=True, max_compaction_lag_ms=100) == 100
