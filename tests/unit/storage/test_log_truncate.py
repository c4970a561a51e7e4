"""Cutting a log: truncation at its end, delete-records and retention at its start, resets, and new topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.storage.log import Log
from tests.support.checks import check_consistent
from tests.support.driving import (
    check_invariants,
    killed,
    numbered,
    offsets_of,
    power_lost,
    restart,
    waiters,
)
from tests.support.engine import START_MS, Engine, append, end_transaction, values_of

SEGMENTED = TopicConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=5000)
END_LIFE: dict[str, Callable[[Engine], Engine]] = {
    "restart": restart,
    "kill": killed,
    "power loss": power_lost,
}


def filled(batches: int = 24, topic: TopicConfig = SEGMENTED) -> tuple[Engine, Log]:
    """Batches of two records; a new leader epoch every six batches, two producers in turn."""
    engine = Engine(topic=topic)
    log = engine.log()
    for number in range(batches):
        producer = (1 + number % 2, 0, number // 2 * 2)
        append(log, b"%d" % (number * 2), b"%d" % (number * 2 + 1), producer=producer, epoch=number // 6)
        engine.drain()
    return engine, log


@pytest.mark.parametrize("name", END_LIFE)
@pytest.mark.parametrize("offset", range(0, 49, 5))
def test_truncation_keeps_exactly_the_whole_batches_below_when_life_ends(offset: int, name: str) -> None:
    engine, log = filled()
    done: list[TailraceError | None] = []
    end = log.truncate_to(offset, now_ms=START_MS, done=done.append)
    assert end == offset // 2 * 2
    assert offsets_of(log) == list(range(end))
    engine.drain()
    assert done == [None]
    check_invariants(log)
    check_consistent(log, f"truncated to {offset}")
    log = END_LIFE[name](engine).log()
    assert offsets_of(log) == list(range(end))
    assert log.epochs.latest == (end // 2 - 1) // 6 if end else log.epochs.latest == -1
    check_consistent(log, f"truncated to {offset}, {name}")


@pytest.mark.parametrize("name", END_LIFE)
def test_other_records_stand_in_the_place_when_log_was_cut_and_written_again(name: str) -> None:
    engine, log = filled()
    log.truncate_to(20, now_ms=START_MS)
    append(log, b"other", epoch=9)
    engine.drain()
    append(log, b"more", epoch=9)
    engine.drain()
    log = END_LIFE[name](engine).log()
    expected = [(offset, b"%d" % offset) for offset in range(20)]
    assert values_of(log) == [*expected, (20, b"other"), (21, b"more")]
    assert log.end_offset_for_epoch(1) == (1, 20)
    assert log.end_offset_for_epoch(9) == (9, 22)


def test_truncation_winds_producers_back_when_their_batches_go() -> None:
    _, log = filled()
    log.truncate_to(20, now_ms=START_MS)
    assert {one.producer_id: one.last_sequence for one in log.producers.describe()} == {1: 9, 2: 9}
    assert append(log, b"x", b"y", producer=(1, 0, 10), epoch=9).base_offset == 20
    with pytest.raises(TailraceError, match="OUT_OF_ORDER_SEQUENCE"):
        append(log, b"x", producer=(2, 0, 14), epoch=9)


def test_truncation_opens_transaction_again_when_its_marker_goes() -> None:
    engine = Engine(topic=SEGMENTED)
    log = engine.log()
    append(log, b"t", producer=(7, 0, 0), transactional=True)
    end_transaction(log, 7, commit=False)
    engine.drain()
    assert len(log.aborted_transactions(0, 2)) == 1
    log.truncate_to(1, now_ms=START_MS)
    assert log.aborted_transactions(0, 1) == []
    end_transaction(log, 7, commit=True)
    engine.drain()
    log = killed(engine).log()
    assert log.aborted_transactions(0, 2) == []
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2


def test_waiters_are_told_when_their_records_are_cut_before_they_were_durable() -> None:
    engine = Engine()
    log = engine.log()
    told = waiters()
    for number in range(4):
        append(log, b"%d" % number)
        told.wait(log, number + 1)
    log.truncate_to(2, now_ms=START_MS)
    assert told.told == [(3, ErrorCode.NOT_LEADER), (4, ErrorCode.NOT_LEADER)]
    engine.drain()
    assert (1, None) in told.told
    assert (2, None) in told.told


def test_records_that_stay_become_durable_when_later_ones_are_cut_before_the_write() -> None:
    engine = Engine()
    log = engine.log()
    engine.drain()
    append(log, b"stays")
    append(log, b"goes")
    log.truncate_to(1, now_ms=START_MS)
    engine.drain()
    assert (log.durable_end, log.synced_end, log.end_offset) == (1, 1, 1)
    assert log.home.writer.pending_bytes == 0
    assert values_of(power_lost(engine).log()) == [(0, b"stays")]


@pytest.mark.parametrize("offset", [6, 9, 14, 22])
@pytest.mark.parametrize("rolled", [False, True])
def test_truncation_ends_where_it_was_asked_to_when_offset_is_in_a_gap(offset: int, rolled: bool) -> None:
    engine = Engine(topic=replace(SEGMENTED, cleanup_policy=("compact",)))
    log = engine.log()
    for base in (4, 10, 20, 30):
        log.append_as_follower(numbered(base, b"%d" % base), now_ms=START_MS)
        if rolled:
            log.roll(now_ms=START_MS)
    engine.drain()
    end = log.truncate_to(offset, now_ms=START_MS)
    assert end <= offset
    assert log.append_as_follower(numbered(offset, b"next", epoch=1), now_ms=START_MS) == offset + 1
    engine.drain()
    expected = [*(base for base in (4, 10, 20) if base < offset), offset]
    assert offsets_of(log) == expected
    assert offsets_of(killed(engine).log()) == expected


def test_reader_passes_the_gap_when_an_empty_segment_after_a_truncation_is_rolled() -> None:
    engine = Engine(topic=replace(SEGMENTED, cleanup_policy=("compact",)))
    log = engine.log()
    log.append_as_follower(numbered(0, b"a"), now_ms=START_MS)
    log.roll(now_ms=START_MS)
    log.append_as_follower(numbered(4, b"gone"), now_ms=START_MS)
    assert log.truncate_to(3, now_ms=START_MS) == 3
    log.roll(now_ms=START_MS)
    check_invariants(log)
    log.append_as_follower(numbered(3, b"b", epoch=1), now_ms=START_MS)
    engine.drain()
    assert log.read(1, max_bytes=1).next_offset == 4
    assert offsets_of(log) == [0, 3]
    assert offsets_of(killed(engine).log()) == [0, 3]


@pytest.mark.parametrize("name", END_LIFE)
def test_log_is_whole_when_it_was_cut_to_a_start_that_lies_behind_a_gap(name: str) -> None:
    engine = Engine(topic=replace(SEGMENTED, cleanup_policy=("compact",)))
    log = engine.log()
    log.append_as_follower(numbered(0, b"a") + numbered(5, b"b") + numbered(6, b"c"), now_ms=START_MS)
    engine.drain()
    log.advance_high_watermark(5)
    log.delete_records(5)
    assert log.truncate_to(5, now_ms=START_MS) == 5
    engine.drain()
    check_invariants(log)
    again = END_LIFE[name](engine)
    assert not again.report.corrupt
    log = again.log()
    assert (log.log_start_offset, log.end_offset) == (5, 5)
    assert append(log, b"next", epoch=1, keys=[b"k"]).base_offset == 5


def test_truncation_does_nothing_when_offset_is_at_or_beyond_the_end() -> None:
    engine, log = filled(3)
    done: list[TailraceError | None] = []
    for offset in (6, 7, 1000):
        assert log.truncate_to(offset, now_ms=START_MS, done=done.append) == 6
    engine.drain()
    assert done == [None] * 3
    assert offsets_of(log) == list(range(6))


@pytest.mark.parametrize("offset", range(1, 21))
@pytest.mark.parametrize("start", [1, 5, 8])
def test_log_stays_usable_when_it_is_cut_near_or_below_its_start(offset: int, start: int) -> None:
    engine = Engine(topic=SEGMENTED)
    log = engine.log()
    append(log, *[b"%d" % number for number in range(10)])
    append(log, *[b"%d" % number for number in range(10, 20)])
    engine.drain()
    log.advance_high_watermark(20)
    log.delete_records(start)
    engine.drain()
    log.truncate_to(offset, now_ms=START_MS)
    engine.drain()
    check_invariants(log)
    again = killed(engine)
    assert not again.report.corrupt
    log = again.log()
    check_invariants(log)
    base = append(log, b"next", epoch=1).base_offset
    again.drain()
    assert offsets_of(log)[-1] == base
    third = restart(again)
    assert not third.report.corrupt
    assert offsets_of(third.log())[-1] == base


@pytest.mark.parametrize("name", END_LIFE)
@pytest.mark.parametrize("offset", [0, 30, 500])
def test_reset_leaves_an_empty_log_at_the_offset_when_follower_starts_over(offset: int, name: str) -> None:
    engine, log = filled()
    told = waiters()
    append(log, b"in flight", epoch=9)
    told.wait(log, log.end_offset)
    done: list[TailraceError | None] = []
    log.reset_to(offset, now_ms=START_MS, done=done.append)
    assert told.told == [(49, ErrorCode.NOT_LEADER)]
    assert (log.log_start_offset, log.end_offset, log.durable_end) == (offset, offset, offset)
    engine.drain()
    assert done == [None]
    log.append_as_follower(numbered(offset, b"new", epoch=11), now_ms=START_MS)
    engine.drain()
    log = END_LIFE[name](engine).log()
    assert values_of(log) == [(offset, b"new")]
    assert [tuple(entry) for entry in log.epochs.entries()] == [(11, offset)]
    assert list(log.producers.describe()) == []


# The start.


@pytest.mark.parametrize("name", END_LIFE)
def test_deleted_records_stay_away_when_deletion_was_acknowledged(name: str) -> None:
    engine, log = filled()
    log.advance_high_watermark(48)
    done: list[TailraceError | None] = []
    assert log.delete_records(13, done.append) == 13
    engine.drain()
    assert done == [None]
    log = END_LIFE[name](engine).log()
    assert log.log_start_offset == 13
    assert log.delete_records(5) == 13
    with pytest.raises(TailraceError, match="OFFSET_OUT_OF_RANGE"):
        log.read(12, max_bytes=100)
    # The batch that holds 13 is stored whole.
    assert offsets_of(log) == list(range(12, 48))


@pytest.mark.parametrize("offset", [-1, 41, 10**10])
def test_delete_records_is_refused_when_offset_is_above_the_high_watermark(offset: int) -> None:
    _, log = filled()
    log.advance_high_watermark(40)
    with pytest.raises(TailraceError) as refusal:
        log.delete_records(offset)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "40" in str(refusal.value)
    assert log.log_start_offset == 0


def test_retention_removes_segments_below_the_start_when_records_were_deleted() -> None:
    engine, log = filled()
    log.advance_high_watermark(48)
    log.delete_records(30)
    engine.manager.enforce_retention(START_MS)
    engine.drain()
    assert log.segments[0].base_offset <= 30 < log.segments[0].next_offset
    assert log.log_start_offset == 30
    check_consistent(log, "after retention")


@pytest.mark.parametrize("name", END_LIFE)
def test_retention_by_size_keeps_a_contiguous_end_when_log_is_too_large(name: str) -> None:
    topic = replace(SEGMENTED, retention_bytes=1500)
    engine, log = filled(topic=topic)
    assert engine.manager.enforce_retention(START_MS) == 0, "nothing above the high watermark may go"
    log.advance_high_watermark(13)
    removed = engine.manager.enforce_retention(START_MS)
    assert 0 < log.log_start_offset <= 13
    log.advance_high_watermark(48)
    removed += engine.manager.enforce_retention(START_MS)
    engine.drain()
    engine.tick(6000)
    assert removed > 0
    assert 1500 <= log.size < 1500 + 700
    start = log.log_start_offset
    assert start == log.segments[0].base_offset > 0
    assert offsets_of(log) == list(range(start, 48))
    log = END_LIFE[name](engine).log()
    assert log.log_start_offset == start
    assert offsets_of(log) == list(range(start, 48))
    check_consistent(log, name)


def test_retention_by_time_rolls_and_empties_the_log_when_all_has_expired() -> None:
    engine, log = filled(topic=replace(SEGMENTED, retention_ms=1000))
    log.advance_high_watermark(48)
    assert engine.manager.enforce_retention(START_MS + 1000) == 0
    assert engine.manager.enforce_retention(START_MS + 1001) > 0
    engine.drain()
    assert (log.log_start_offset, log.end_offset, log.size) == (48, 48, 0)
    log = restart(engine).log()
    assert (log.log_start_offset, log.end_offset, log.size) == (48, 48, 0)
    assert append(log, b"next", epoch=5).base_offset == 48


def test_retention_keeps_young_segment_and_all_after_it_when_older_ones_follow() -> None:
    engine = Engine(topic=replace(SEGMENTED, retention_ms=1000))
    log = engine.log()
    for timestamp in (START_MS, START_MS + 5000, START_MS, START_MS):
        append(log, b"v", timestamp=timestamp)
        log.roll(now_ms=START_MS)
    engine.drain()
    log.advance_high_watermark(4)
    assert engine.manager.enforce_retention(START_MS + 2000) == 1
    assert log.log_start_offset == 1
    engine.drain()
    assert offsets_of(log) == [1, 2, 3]


def test_log_start_never_goes_back_when_power_is_lost_right_after_retention() -> None:
    engine, log = filled(topic=replace(SEGMENTED, retention_bytes=1500))
    log.advance_high_watermark(48)
    engine.manager.enforce_retention(START_MS)
    engine.drain()
    engine.tick(31_000)
    start = log.log_start_offset
    assert start > 0
    assert power_lost(engine).log().log_start_offset == start


def test_truncation_of_a_cleaned_log_makes_it_dirty_again_when_cut_below_the_cleaned_part() -> None:
    topic = TopicConfig(cleanup_policy=("compact",), segment_bytes=300, min_cleanable_dirty_ratio=0.0)
    engine = Engine(topic=topic)
    log = engine.log()
    for number in range(12):
        append(log, b"v%d" % number, keys=[b"k%d" % (number % 2)])
        engine.drain()
    log.advance_high_watermark(12)
    engine.tick(20_000)
    cleaned_to = log.cleaned_to
    assert cleaned_to >= 8
    log.truncate_to(2, now_ms=START_MS)
    engine.drain()
    for number in range(12):
        append(log, b"w%d" % number, keys=[b"same"], epoch=1)
        engine.drain()
    log.advance_high_watermark(log.end_offset)
    for _ in range(3):
        engine.tick(20_000)
    closed = [value for offset, value in values_of(log) if offset < log.active.base_offset]
    assert len([value for value in closed if value is not None and value.startswith(b"w")]) == 1


def test_truncated_log_survives_a_second_crash_when_first_one_struck_after_truncation() -> None:
    engine, log = filled()
    log.truncate_to(30, now_ms=START_MS)
    engine.drain()
    for life in range(3):
        engine = power_lost(engine) if life % 2 else killed(engine)
        assert offsets_of(engine.log()) == list(range(30))
        assert not engine.report.corrupt
