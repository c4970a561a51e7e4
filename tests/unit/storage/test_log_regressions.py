"""Histories in which the engine once went wrong, each with what must come of it."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.storage.journal import Journal, JournalWrite, LogKey, read_redo
from tests.support.compacting import CLEANING, COMPACTED, KeyedLog
from tests.support.driving import fault_files, killed, next_life, numbered, offsets_of, power_lost, restart
from tests.support.engine import ORDERS, START_MS, Engine, append, values_of
from tests.support.fault_files import FaultFiles, on


def test_follower_goes_on_when_an_epoch_that_it_led_without_writing_is_cut_away() -> None:
    engine = Engine()
    log = engine.log()
    log.append_as_follower(numbered(0, b"a", epoch=4), now_ms=START_MS)
    log.begin_epoch(5)
    log.truncate_to(1, now_ms=START_MS)
    engine.drain()
    assert log.append_as_follower(numbered(1, b"b", epoch=4), now_ms=START_MS) == 2


@pytest.mark.parametrize("end_life", [restart, killed])
def test_sealed_segment_has_no_reserved_tail_when_preallocation_was_switched_off(end_life: object) -> None:
    topic = TopicConfig(segment_bytes=2000, preallocate=True)
    engine = Engine(topic=topic)
    log = engine.log()
    append(log, b"a")
    engine.drain()
    log.reconfigure(replace(topic, preallocate=False))
    log.roll(now_ms=START_MS)
    append(log, b"b")
    engine.drain()
    again = restart(engine) if end_life is restart else killed(engine)
    assert not again.report.corrupt
    assert values_of(again.log()) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("seed", range(15))
def test_log_is_judged_by_the_policy_it_was_written_under_when_flush_became_stricter(seed: int) -> None:
    topic = TopicConfig(segment_bytes=300, flush="os")
    engine = Engine(FaultFiles(Random(seed)), topic=topic)
    log = engine.log()
    for _ in range(8):
        append(log, b"x" * 100)
        engine.drain()
    disk = fault_files(engine).crash(Random(seed))
    again = next_life(engine, disk, topic=replace(topic, flush="commit"))
    assert not again.report.corrupt


def test_closed_segment_is_reported_when_it_was_cut_at_a_batch_boundary() -> None:
    engine = Engine(topic=TopicConfig(segment_bytes=650))
    log = engine.log()
    for _ in range(9):
        append(log, b"x" * 100)
        engine.drain()
    path = log.segments[0].path
    engine.close()
    file = fault_files(engine).open(path, write=True)
    file.truncate(202)
    file.datasync()
    file.close()
    assert next_life(engine).report.corrupt[ORDERS].code is ErrorCode.STORAGE_CORRUPT


def test_largest_timestamp_is_that_of_the_records_in_range_when_a_later_one_is_not_committed() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"a", timestamp=100)
    append(log, b"b", timestamp=200)
    engine.drain()
    found = log.largest_timestamp(end_offset=1)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, 100)


def test_epoch_keeps_its_start_when_cleaning_removed_its_first_batches_and_the_process_is_killed() -> None:
    engine = Engine(topic=COMPACTED, config=replace(CLEANING, log_checkpoint_interval_ms=10**8))
    keyed = KeyedLog(engine)
    for number in range(6):
        keyed.put(b"a%d" % number, epoch=1)
    for _ in range(12):
        keyed.put(b"same", epoch=2)
    for _ in range(3):
        keyed.put(b"z", epoch=2)
    keyed.commit()
    engine.tick(2000)
    engine.tick(2000)
    assert len(offsets_of(keyed.log)) < 21
    assert killed(engine).log().end_offset_for_epoch(1) == (1, 6)


def test_deleted_key_stays_deleted_when_its_tombstone_was_written_below_an_earlier_cleaning() -> None:
    engine = Engine(topic=COMPACTED, config=CLEANING)
    keyed = KeyedLog(engine)
    keyed.put(b"victim")
    engine.drain()
    keyed.fill(10)
    keyed.commit()
    for _ in range(3):
        engine.tick(2000)
    log = keyed.log
    log.truncate_to(5, now_ms=engine.now_ms)
    keyed.forget_from(5)
    engine.drain()
    keyed.put(b"victim", tombstone=True)
    engine.drain()
    while log.end_offset < 40:
        keyed.put(b"f%d" % log.end_offset)
        engine.drain()
    keyed.commit()
    for _ in range(30):
        engine.tick(3000)
    assert not [key for batch in log.batches() for key in Batch.keys(batch) if key == b"victim"]


def test_unchanged_segments_survive_power_loss_when_a_cleaning_moved_the_recovery_point_past_them() -> None:
    topic = replace(COMPACTED, flush="os", segment_bytes=400)
    engine = Engine(topic=topic, config=replace(CLEANING, log_checkpoint_interval_ms=10_000_000))
    keyed = KeyedLog(engine)
    for number in range(9):
        keyed.put(b"unique%d" % number)
    for _ in range(6):
        keyed.put(b"same")
    for number in range(9):
        keyed.put(b"late%d" % number)
    engine.drain()
    keyed.commit()
    engine.tick(2000)
    engine.tick(2000)
    for directory in engine.manager.directories:
        directory.save_checkpoint()
    engine.drain()
    again = power_lost(engine)
    assert not again.report.corrupt
    assert offsets_of(again.log())[:9] == list(range(9))


def test_voided_write_is_never_redone_when_the_journal_turns_right_after_a_release() -> None:
    files = FaultFiles(Random(1))
    files.make_dirs("/d")
    secret = b"x" * 32
    voided, other = LogKey(b"A" * 16, 0), LogKey(b"B" * 16, 0)
    journal = Journal.start(files, "/d", generation=1, capacity=16384, secret=secret)

    def write(log: LogKey, size: int) -> None:
        entries = [JournalWrite(log, 0, 0, [b"z" * size], size)]
        assert journal.room_for(entries)
        journal.write(entries, [f"/d/{log.topic_id[:1].decode()}"])

    for log in (other, voided):
        write(log, 100)
        journal.sync()
    journal.void(voided)
    for _ in range(5):
        write(other, 100)
        journal.sync()
    journal.release(1)
    write(other, 15000)
    for seed in range(400):
        redo = read_redo(files.crash(Random(seed)), "/d", secret)
        assert voided not in {one.log for one in redo.writes}


def test_memory_of_closed_segments_is_given_back_when_a_truncation_overtook_their_writes() -> None:
    engine = Engine()
    log = engine.log()
    engine.drain()
    for _ in range(20):
        append(log, b"x" * 10000)
    log.roll(now_ms=START_MS)
    append(log, b"b")
    append(log, b"c")
    log.truncate_to(log.end_offset - 1, now_ms=START_MS)
    engine.drain()
    assert not any(segment.in_flight for segment in log.segments)


def test_log_refuses_everything_when_its_truncation_failed_half_way() -> None:
    engine = Engine()
    log = engine.log()
    for number in range(4):
        append(log, b"old%d" % number, producer=(1, 0, number))
    engine.drain()
    files = fault_files(engine)
    files.fail(errno.EIO, on("read", ".log"))
    with pytest.raises(TailraceError):
        log.truncate_to(2, now_ms=START_MS)
    with pytest.raises(TailraceError, match="could not be truncated"):
        append(log, b"more")
    engine.drain()
    again = killed(engine)
    assert not again.report.corrupt
    assert offsets_of(again.log()) == list(range(4))
