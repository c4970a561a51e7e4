"""The cleaner on whole logs: arbitrary histories against a plain model, and its manners on the disk."""

from __future__ import annotations

import errno
from functools import partial
from itertools import chain, repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.cleaner import Throttle, clean, discard
from tests.support.fault_files import on
from tests.unit.storage.compaction_model import (
    DELETE_RETENTION_MS,
    DIRECTORY,
    SmallLog,
    Written,
    name,
    no_limit,
)

KEYS = [b"a", b"b", b"c", b"d"]

values = st.one_of(st.none(), st.binary(min_size=1, max_size=40))
records = st.lists(st.tuples(st.sampled_from(KEYS), values), min_size=1, max_size=5)
codecs = st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD])
producer_ids = st.sampled_from([1, 2, 3])

steps = st.one_of(
    st.tuples(st.just("append"), records, codecs),
    st.tuples(st.just("produce"), records, st.sampled_from([11, 12])),
    st.tuples(st.just("transact"), records, producer_ids),
    st.tuples(st.just("transact"), records, producer_ids),
    st.tuples(st.just("commit"), producer_ids),
    st.tuples(st.just("abort"), producer_ids),
    st.tuples(st.just("fence"), producer_ids),
    st.tuples(st.just("undecodable"), records),
    st.tuples(st.just("roll")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.sampled_from([1, 400, 1_000])),
    st.tuples(st.just("clean"), st.sampled_from([1 << 20, 1, 3_000]), st.sampled_from([300, 2_000])),
    st.tuples(st.just("expire")),
)


def run(log: SmallLog, history: list[tuple]) -> None:  # type: ignore[type-arg]
    for step in history:
        match step:
            case ("append", batch, codec):
                log.append(batch, codec=codec)
            case ("produce", batch, producer_id):
                log.append(batch, producer_id=producer_id)
            case ("transact", batch, producer_id):
                log.append(batch, producer_id=producer_id, transactional=True)
            case ("commit" | "abort" | "fence" as kind, producer_id):
                if producer_id in log.producers and log.producers[producer_id].in_transaction:
                    log.end_transaction(producer_id, commit=kind == "commit", fence=kind == "fence")
            case ("undecodable", batch):
                log.append(batch, undecodable=True)
            case ("roll",):
                log.roll()
            case ("wait", milliseconds):
                log.now_ms += milliseconds
            case ("clean", key_map_bytes, segment_bytes):
                log.clean(key_map_bytes=key_map_bytes, segment_bytes=segment_bytes)
                log.check()
            case ("expire",):
                log.states.expire(log.now_ms, 900)
                for producer_id, producer in list(log.producers.items()):
                    if producer_id not in log.states and not producer.in_transaction:
                        producer.sequence = 0


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, min_size=8, max_size=60))
def test_cleaner_changes_nothing_that_readers_rely_on_when_history_is_arbitrary(
    history: list[tuple],  # type: ignore[type-arg]
) -> None:
    log = SmallLog()
    run(log, history)
    log.roll()
    log.clean()
    log.check()
    log.now_ms += DELETE_RETENTION_MS
    log.clean()
    log.check()


def superseded_log() -> SmallLog:
    """Three closed segments in which key `a` is written over and over, and an active one."""
    log = SmallLog()
    for n in range(3):
        log.append([(b"a", b"%d" % n), (b"only-%d" % n, b"x" * 50)])
        log.append([(b"a", b"%d again" % n)])
        log.roll()
    log.append([(b"a", b"active")])
    return log


def test_cleaner_keeps_last_value_and_merges_segments_when_keys_repeat() -> None:
    log = superseded_log()
    result = log.clean()
    log.check()
    assert [(record.offset, record.key) for record in log.surviving()] == [
        (1, b"only-0"),
        (4, b"only-1"),
        (7, b"only-2"),
        (8, b"a"),
        (9, b"a"),
    ]
    assert [segment.replaces for segment in result.segments] == [(0, 3, 6)]
    assert [segment.base_offset for segment in log.segments] == [0, 9]
    assert (result.first_dirty, result.map_was_full) == (9, False)
    assert (result.stats.records_kept, result.stats.records_dropped, result.stats.keys) == (4, 5, 4)
    assert result.stats.bytes_written == result.segments[0].facts.size


def test_cleaner_writes_nothing_when_nothing_changes() -> None:
    log = SmallLog()
    log.append([(b"a", b"1"), (b"b", b"2")])
    log.roll()
    before = log.files.files_below(DIRECTORY)
    result = log.clean()
    assert result.segments == ()
    assert result.first_dirty == 2
    assert log.files.files_below(DIRECTORY) == before


def test_cleaner_copies_unchanged_prefix_when_later_batch_changes() -> None:
    log = SmallLog()
    for n in range(40):
        log.append([(b"only-%d" % n, b"x" * 50)])
    log.append([(b"a", b"1"), (b"b", b"1")])
    log.roll()
    log.append([(b"a", b"2")])
    log.roll()
    before = log.files.read(name(0))
    result = log.clean(segment_bytes=100)
    log.check()
    after = log.files.read(name(0))
    prefix = len(before) - log.batches()[-2].header.size
    assert after[: prefix - 100] == before[: prefix - 100]
    assert result.stats.batches_kept == 41
    assert result.stats.batches_rewritten == 1


def test_cleaner_goes_on_where_it_stopped_when_key_map_was_full() -> None:
    log = superseded_log()
    ends = []
    for _ in range(12):
        result = log.clean(key_map_bytes=1)
        log.check()
        ends.append(result.first_dirty)
        if not result.map_was_full:
            break
    assert ends == sorted(set(ends))
    assert ends[-1] == 9
    assert [record.value for record in log.surviving() if record.key == b"a"] == [b"2 again", b"active"]


def test_cleaner_keeps_aborted_transaction_listed_when_its_records_lie_beyond_the_key_map() -> None:
    log = SmallLog()
    log.append([(b"a", b"1")])
    log.append([(b"a", b"2")])
    log.append([(b"a", b"aborted")], producer_id=1, transactional=True)
    log.end_transaction(1, commit=False)
    log.roll()
    log.clean(key_map_bytes=1)
    result = log.clean(key_map_bytes=1)
    assert result.map_was_full
    assert result.stats.records_dropped == 1
    log.check()
    assert [record.value for record in log.surviving()] == [b"2", b"aborted"]
    assert [record.value for record in log.read_committed()] == [b"2"]


def test_cleaner_keeps_aborted_transaction_listed_when_its_last_batch_stays_without_records() -> None:
    log = SmallLog()
    log.append([(b"a", b"1")])
    log.append([(b"a", b"aborted")], producer_id=1, transactional=True)
    log.end_transaction(1, commit=False)
    log.append([(b"a", b"2")])
    log.roll()
    log.clean()
    assert [entry.producer_id for entry in log.aborted[0]] == [1]
    assert [header.record_count for header in log.headers()] == [0, 1, 1]
    log.check()


def test_cleaner_keeps_marker_when_it_alone_tells_a_producers_epoch() -> None:
    log = SmallLog()
    log.append([(b"a", b"aborted")], producer_id=1, transactional=True)
    log.end_transaction(1, commit=False, fence=True)
    log.append([(b"a", b"2")])
    log.roll()
    for _ in range(4):
        log.clean()
        log.check()
        log.now_ms += DELETE_RETENTION_MS
    assert [header.is_control for header in log.headers()] == [True, False]


def test_cleaner_removes_aborted_transaction_in_stages_when_producer_has_expired() -> None:
    log = SmallLog()
    log.append([(b"a", b"aborted")], producer_id=1, transactional=True)
    log.end_transaction(1, commit=False)
    log.append([(b"a", b"2")])
    log.roll()
    log.states.expire(log.now_ms + 1, 0)
    # First the records go, then the marker gets its horizon and the index forgets, then the marker goes.
    log.clean()
    assert [(header.is_control, header.delete_horizon) for header in log.headers()] == [
        (True, -1),
        (False, -1),
    ]
    assert len(log.aborted[0]) == 1
    result = log.clean()
    horizon = log.now_ms + DELETE_RETENTION_MS
    assert [(header.is_control, header.delete_horizon) for header in log.headers()] == [
        (True, horizon),
        (False, -1),
    ]
    assert log.aborted[0] == []
    assert result.next_horizon_ms == horizon
    log.now_ms = horizon
    assert log.clean().next_horizon_ms is None
    assert [header.is_control for header in log.headers()] == [False]
    log.check()


def test_cleaner_drops_tombstone_when_its_horizon_has_passed_and_not_before() -> None:
    log = SmallLog()
    log.append([(b"a", b"1"), (b"b", b"1")])
    log.append([(b"a", None), (b"c", b"1")])
    log.roll()
    tombstone = Written(2, b"a", None, log.history[2].timestamp)
    log.clean()
    assert tombstone in log.surviving()
    log.now_ms += DELETE_RETENTION_MS - 1
    assert log.clean().segments == ()
    assert tombstone in log.surviving()
    log.now_ms += 1
    log.clean()
    log.check()
    assert tombstone not in log.surviving()
    assert [record.key for record in log.surviving()] == [b"b", b"c"]


def test_cleaner_keeps_undecodable_batch_and_later_tombstones_when_it_cannot_know_its_keys() -> None:
    log = SmallLog()
    log.append([(b"a", b"before")])
    log.append([(b"a", None)])
    hidden = log.append([(b"b", b"hidden")], undecodable=True)
    log.append([(b"b", None)])
    log.roll()
    original = bytes(log.batches()[2].data)
    log.clean()
    log.now_ms += DELETE_RETENTION_MS
    result = log.clean()
    log.check()
    assert [entry.base_offset for entry in result.undecodable] == [hidden]
    assert "CORRUPT_BATCH" in result.undecodable[0].reason
    assert [batch.header.base_offset for batch in log.batches()] == [2, 3]
    assert bytes(log.batches()[0].data) == original
    # The tombstone of b may hide a value in that batch; nothing waits for a horizon on its account.
    assert [record.key for record in log.surviving()] == [b"b"]
    assert result.next_horizon_ms is None


def test_cleaner_drops_records_without_key_when_topic_was_not_compacted_before() -> None:
    log = SmallLog()
    log.append([(None, b"1"), (b"a", b"2"), (None, b"3")])
    log.append([(None, b"4")])
    log.roll()
    result = log.clean()
    assert [record.value for record in log.surviving()] == [b"2"]
    assert (result.stats.records_dropped, result.stats.records_keyless) == (3, 3)


def test_cleaner_leaves_segments_alone_when_transaction_in_them_is_open() -> None:
    log = SmallLog()
    log.append([(b"a", b"1")])
    log.append([(b"a", b"2")])
    log.roll()
    log.append([(b"a", b"open")], producer_id=1, transactional=True)
    log.roll()
    log.append([(b"a", b"3")])
    log.roll()
    result = log.clean()
    log.check()
    assert result.first_dirty == 2
    assert [record.value for record in log.surviving()] == [b"2", b"open", b"3"]


@pytest.mark.parametrize("position", [10, 40, 60, 150])
def test_cleaner_stops_with_named_error_when_a_batch_is_damaged(position: int) -> None:
    log = superseded_log()
    log.files.flip_bit(name(3), position)
    before = log.files.files_below(DIRECTORY)
    with pytest.raises(TailraceError) as raised:
        clean(log.job(), log.files, no_limit())
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    assert name(3) in str(raised.value)
    assert log.files.files_below(DIRECTORY) == before
    assert log.files.open_handles == 0


def test_cleaner_stops_with_named_error_when_a_file_is_short() -> None:
    log = superseded_log()
    file = log.files.open(name(3), write=True)
    file.truncate(log.segments[1].size - 1)
    file.close()
    with pytest.raises(TailraceError, match="ends inside a batch"):
        clean(log.job(), log.files, no_limit())


def test_cleaner_leaves_no_files_when_cancelled_at_any_chunk() -> None:
    log = superseded_log()
    before = log.files.files_below(DIRECTORY)
    result = None
    chunks = 0
    while result is None:
        answers = chain(repeat(False, chunks), repeat(True))
        result = clean(log.job(), log.files, no_limit(), cancelled=partial(next, answers))
        assert log.files.open_handles == 0
        if result is None:
            assert log.files.files_below(DIRECTORY) == before
            chunks += 1
    # Both passes over three segments, so the loop above went through at least six chunks.
    assert chunks >= 6
    discard(log.files, DIRECTORY, result)
    assert log.files.files_below(DIRECTORY) == before


def test_cleaner_removes_its_files_and_raises_when_the_disk_is_full() -> None:
    log = superseded_log()
    before = log.files.files_below(DIRECTORY)
    log.files.fail(errno.ENOSPC, on("write", ".cleaned"))
    with pytest.raises(OSError) as raised:
        clean(log.job(), log.files, no_limit())
    assert raised.value.errno == errno.ENOSPC
    log.files.clear_faults()
    assert log.files.files_below(DIRECTORY) == before
    log.clean()
    log.check()


def test_cleaner_reads_batch_when_it_is_larger_than_a_chunk() -> None:
    log = SmallLog()
    log.append([(b"a", b"x" * 5_000), (b"b", b"y" * 3_000)])
    log.append([(b"a", b"z" * 2_000)])
    log.roll()
    log.clean()
    log.check()
    assert [record.offset for record in log.surviving()] == [1, 2]


def test_throttle_keeps_rate_and_saves_nothing_up_when_idle() -> None:
    now = 0.0
    slept = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    throttle = Throttle(1_000.0, clock=lambda: now, sleep=sleep)
    for _ in range(10):
        throttle.take(500)
    assert now == pytest.approx(5.0)
    now += 100.0
    throttle.take(500)
    throttle.take(500)
    assert slept[-2:] == [pytest.approx(0.5), pytest.approx(0.5)]


def test_cleaner_accounts_for_all_bytes_when_throttled() -> None:
    log = superseded_log()
    taken = 0.0

    def sleep(seconds: float) -> None:
        nonlocal taken
        taken += seconds

    result = clean(log.job(), log.files, Throttle(1.0, clock=lambda: taken, sleep=sleep))
    assert result is not None
    assert taken == pytest.approx(result.stats.bytes_read + result.stats.bytes_written)
    assert result.stats.bytes_read == 2 * sum(segment.size for segment in log.segments[:-1])
