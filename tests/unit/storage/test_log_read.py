"""Reading: whole batches from any offset within any bound, by time, and what readers of transactions skip."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import iterate_batches
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage import reading
from tailrace.cluster.storage.log import Log
from tests.support.driving import fault_files, killed, numbered, offsets_of, restart, waiters
from tests.support.engine import START_MS, Engine, append, batch_of, end_transaction, values_of

SEGMENTED = TopicConfig(segment_bytes=700, index_interval_bytes=150, file_delete_delay_ms=5000)


def filled(*, drained: bool = True) -> tuple[Engine, Log]:
    """30 batches of one to three records over several segments; the last ones perhaps still in memory."""
    engine = Engine(topic=SEGMENTED)
    log = engine.log()
    for number in range(30):
        append(log, *[b"%d-%d" % (number, record) for record in range(number % 3 + 1)])
        if number < 20:
            engine.drain()
    if drained:
        engine.drain()
    assert len(log.segments) > 4
    return engine, log


def check_read(log: Log, offset: int, max_bytes: int, end_offset: int) -> None:
    """One read, against a plain list of the batches."""
    spans = [(batch.header.base_offset, batch.header.next_offset) for batch in log.batches()]
    data, next_offset = log.read(offset, max_bytes=max_bytes, end_offset=end_offset)
    found = [(batch.header.base_offset, batch.header.next_offset) for batch in iterate_batches(data)]
    readable = [span for span in spans if span[1] > offset and span[1] <= end_offset]
    where = (offset, max_bytes, end_offset, found)
    assert found == readable[: len(found)], where
    assert bool(found) == bool(readable), where
    assert len(data) <= max_bytes or len(found) == 1, where
    assert next_offset == (found[-1][1] if found else offset), where


@pytest.mark.parametrize("drained", [True, False], ids=["written", "in memory"])
def test_read_returns_whole_batches_within_bounds_when_asked_for_anything(drained: bool) -> None:
    _, log = filled(drained=drained)
    for offset in range(log.end_offset + 1):
        for max_bytes in (0, 1, 110, 300, 5000):
            for end_offset in (0, offset, offset + 1, offset + 4, log.end_offset, log.end_offset + 100):
                check_read(log, offset, max_bytes, end_offset)


def test_read_makes_progress_to_the_end_when_bound_is_one_byte() -> None:
    engine, _ = filled()
    for _ in range(2):
        log, offset = engine.log(), 0
        found: list[int] = []
        while offset < log.end_offset:
            data, offset = log.read(offset, max_bytes=1)
            found += [record for batch in iterate_batches(data) for record in batch.offsets()]
        assert found == list(range(log.end_offset))
        engine = restart(engine)


@pytest.mark.parametrize("offset", [-1, 61, 10**12])
def test_read_is_refused_when_offset_is_outside_the_log(offset: int) -> None:
    _, log = filled()
    assert log.end_offset == 60
    with pytest.raises(TailraceError) as refusal:
        log.read(offset, max_bytes=100)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert "0 to 60" in str(refusal.value)


def test_read_skips_gap_when_offsets_were_cleaned_away() -> None:
    engine = Engine(topic=replace(SEGMENTED, cleanup_policy=("compact",)))
    log = engine.log()
    log.append_as_follower(numbered(5, b"a") + numbered(20, b"b"), now_ms=START_MS)
    log.roll(now_ms=START_MS, at=30)
    log.append_as_follower(numbered(35, b"c"), now_ms=START_MS)
    for offset, expected in [(0, 5), (5, 5), (6, 20), (20, 20), (21, 35), (29, 35), (30, 35), (35, 35)]:
        data, next_offset = log.read(offset, max_bytes=1)
        assert next(iterate_batches(data)).header.base_offset == expected, offset
        assert next_offset > offset
    for end_offset in range(22, 36):
        # Nothing below the bound: the reader stays in the gap or beyond it, and never misses 35.
        data, next_offset = log.read(21, max_bytes=1, end_offset=end_offset)
        assert not data
        assert 21 <= next_offset <= 35


def test_read_serves_memory_when_bytes_are_on_their_way() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"a")
    append(log, b"b", b"c")
    assert not fault_files(engine).files_below("/data").get(log.active.path)
    assert values_of(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.durable_end == 0
    engine.drain()
    assert values_of(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert not log.active.in_flight


def test_read_tells_damage_by_name_when_header_in_the_file_is_broken() -> None:
    engine, log = filled()
    engine.close()
    path = log.segments[1].path
    fault_files(engine).flip_bit(path, 9, 7)  # The size of the first batch.
    fault_files(engine).delete_file(path.replace(".log", ".index"))
    again = Engine(engine.files, config=engine.config, topic=SEGMENTED)
    log = again.log()
    with pytest.raises(TailraceError) as damage:
        offsets_of(log)
    assert damage.value.code in (ErrorCode.STORAGE_CORRUPT, ErrorCode.CORRUPT_BATCH)


# By time.


def timed() -> tuple[Engine, Log, list[int]]:
    """Records whose timestamps go up and down, over several segments and with several in a batch."""
    engine = Engine(topic=SEGMENTED)
    log = engine.log()
    stamps = [START_MS + (number * 37) % 101 + number for number in range(60)]
    for first in range(0, 60, 3):
        batch = encode_batch(values=[b"v" * 30] * 3, timestamps=stamps[first : first + 3])
        log.append_as_leader(batch, leader_epoch=first // 20, now_ms=START_MS)
    engine.drain()
    return engine, log, stamps


@pytest.mark.parametrize("how", ["live", "restart", "kill", "no index"])
def test_lookup_finds_first_record_at_or_after_time_when_timestamps_jump(how: str) -> None:
    engine, log, stamps = timed()
    if how == "no index":
        engine.close()
        for path in [path for path in fault_files(engine).files_below("/data") if path.endswith(".index")]:
            fault_files(engine).delete_file(path)
        engine = Engine(engine.files, topic=SEGMENTED)
    elif how != "live":
        engine = restart(engine) if how == "restart" else killed(engine)
    log = engine.log()
    for timestamp in range(START_MS - 1, max(stamps) + 2):
        for end_offset in (60, 31, 1):
            expected = next(
                (
                    (offset, stamp, offset // 3 * 3 // 20)
                    for offset, stamp in enumerate(stamps[:end_offset])
                    if stamp >= timestamp
                ),
                None,
            )
            assert log.offset_for_timestamp(timestamp, end_offset=end_offset) == expected


def test_lookup_skips_records_before_the_start_when_records_were_deleted() -> None:
    _, log, stamps = timed()
    log.advance_high_watermark(60)
    log.delete_records(29)
    for timestamp in range(START_MS, max(stamps) + 2):
        found = log.offset_for_timestamp(timestamp)
        expected = next((offset for offset in range(29, 60) if stamps[offset] >= timestamp), None)
        assert (found.offset if found else None) == expected


def test_lookup_of_the_largest_timestamp_names_its_first_record() -> None:
    engine, log, stamps = timed()
    found = reading.largest_timestamp(log, end_offset=60)
    assert found is not None
    assert (found.offset, found.timestamp) == (stamps.index(max(stamps)), max(stamps))
    assert reading.largest_timestamp(engine.log(TopicPartition("empty", 0)), end_offset=0) is None


# Transactions.


def aborting() -> tuple[Engine, Log]:
    """Interleaved transactions of two producers over several segments; every second one is aborted."""
    engine = Engine(topic=replace(SEGMENTED, segment_bytes=600))
    log = engine.log()
    for epoch in range(6):
        append(log, b"a" * 40, producer=(1, epoch, 0), transactional=True)
        append(log, b"b" * 40, producer=(2, epoch, 0), transactional=True)
        append(log, b"a" * 40, producer=(1, epoch, 1), transactional=True)
        end_transaction(log, 1, commit=epoch % 2 == 0, producer_epoch=epoch)
        append(log, b"plain")
        end_transaction(log, 2, commit=epoch % 2 == 1, producer_epoch=epoch)
        engine.drain()
    assert len(log.segments) > 3
    return engine, log


@pytest.mark.parametrize("how", ["live", "restart", "kill"])
def test_aborted_transactions_are_named_when_they_overlap_what_is_read(how: str) -> None:
    engine, log = aborting()
    whole = {(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted_transactions(0, 36)}
    assert len(whole) == 6
    if how != "live":
        log = (restart(engine) if how == "restart" else killed(engine)).log()
    for start in range(36):
        for end in range(start + 1, 37):
            entries = log.aborted_transactions(start, end)
            found = {(one.producer_id, one.first_offset, one.last_offset) for one in entries}
            needed = {one for one in whole if one[1] < end and one[2] >= start}
            assert needed <= found <= whole, (start, end)


def test_last_stable_offset_stays_below_open_transaction_when_high_watermark_moves() -> None:
    engine, log = aborting()
    append(log, b"open", producer=(1, 6, 0), transactional=True)
    append(log, b"plain")
    engine.drain()
    log.advance_high_watermark(log.end_offset)
    assert (log.last_stable_offset, log.high_watermark) == (36, 38)
    log = restart(engine).log()
    assert (log.last_stable_offset, log.high_watermark) == (36, 38)
    end_transaction(log, 1, commit=False, producer_epoch=6)
    assert log.last_stable_offset == 36
    log.advance_high_watermark(39)
    assert log.last_stable_offset == 39


# Files that go while they are read, and handles.


def test_reader_goes_on_when_segments_were_removed_under_it() -> None:
    engine, log = filled()
    reader = log.batches()
    first = next(reader)
    old_paths = [segment.path for segment in log.segments[:2]]
    log.advance_high_watermark(log.end_offset)
    log.config = replace(log.config, retention_bytes=log.size // 2)
    assert engine.manager.enforce_retention(engine.now_ms) >= 1
    engine.drain()
    assert first.header.base_offset == 0
    assert list(first.values()) == [b"0-0"]
    names = {entry.name for entry in engine.files.list(log.directory)}
    deleted = old_paths[0].rpartition("/")[2] + ".deleted"
    assert deleted in names
    with pytest.raises(TailraceError) as gone:
        log.read(0, max_bytes=100)
    assert gone.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    engine.tick(4000)
    assert deleted in {entry.name for entry in engine.files.list(log.directory)}
    engine.tick(2000)
    assert deleted not in {entry.name for entry in engine.files.list(log.directory)}
    assert offsets_of(log) == list(range(log.log_start_offset, log.end_offset))


def test_open_files_are_bounded_when_log_has_many_segments() -> None:
    config = StorageConfig(log_dir="/data", log_max_open_files=16)
    engine = Engine(config=config, topic=TopicConfig(segment_bytes=128))
    log = engine.log()
    for number in range(200):
        append(log, b"%d" % number)
        engine.drain()
    assert len(log.segments) == 200
    for _ in range(2):
        assert offsets_of(log) == list(range(200))
    # Beside the cache: the lock, two journal files, and one short-lived state file.
    assert fault_files(engine).max_open_handles <= 16 + 4


def test_open_files_are_bounded_when_many_logs_are_written() -> None:
    config = StorageConfig(log_dir="/data", log_max_open_files=16)
    engine = Engine(config=config)
    told = waiters()
    for round_number in range(3):
        for number in range(60):
            log = engine.log(TopicPartition("wide", number))
            append(log, b"v")
            told.wait(log, round_number + 1)
            engine.drain()
    assert told.told == [(1, None)] * 60 + [(2, None)] * 60 + [(3, None)] * 60
    assert fault_files(engine).max_open_handles <= 16 + 4


def test_batches_are_contiguous_when_read_in_any_chunks() -> None:
    _, log = filled()
    for chunk_bytes in (1, 200, 1000, 1 << 20):
        headers = [batch.header for batch in reading.batches(log, 0, end_offset=60, chunk_bytes=chunk_bytes)]
        assert all(one.next_offset == two.base_offset for one, two in pairwise(headers))
        assert headers[-1].next_offset == 60
    assert batch_of(b"0-0")[36:] == bytes(log.read(0, max_bytes=1).data)[36:]
