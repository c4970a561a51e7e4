"""Damage after an unclean stop: repaired, cut where nobody was promised anything, or reported; never silent.

What can be told apart, and is asserted here byte by byte:

- Damage in bytes that the journal still holds is repaired.
- Damage in a synced batch is reported as corruption when a later group was written after that sync, because
  a batch of that group says so (its unsynced span).
- Damage in the very last sync group cannot be told from a torn write, and is cut. Nothing before it goes.
- Damage below the recovery point is not looked for when a log is opened. Readers find it by the checksum.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tests.support.driving import (
    DIRECT,
    KeepsUnsynced,
    LosesUnsynced,
    fault_files,
    killed,
    next_life,
    numbered,
    offsets_of,
    power_lost,
    restart,
    rewrite,
)
from tests.support.engine import ORDERS, START_MS, TOPIC_ID, Engine, append, values_of

SEGMENTED = TopicConfig(segment_bytes=600, index_interval_bytes=150)


def grouped(config: StorageConfig, groups: int = 5, per_group: int = 1) -> Engine:
    engine = Engine(config=config, topic=TopicConfig(index_interval_bytes=1))
    log = engine.log()
    engine.drain()
    for group in range(groups):
        for number in range(per_group):
            append(log, b"value %d.%d" % (group, number), producer=(1, 0, group * per_group + number))
        engine.drain()
    return engine


# Bit rot, byte by byte.


@pytest.mark.parametrize("per_group", [1, 3])
def test_every_flipped_byte_is_reported_or_in_the_last_group_when_journal_cannot_help(per_group: int) -> None:
    engine = grouped(DIRECT, 4, per_group)
    log = engine.log()
    records, path, size = values_of(log), log.active.path, log.active.size
    positions = [log.active.place_of(offset).position for offset in range(log.end_offset)]
    last_group = positions[-per_group]
    files = fault_files(engine)
    for position in range(size):
        disk = files.kill()
        disk.flip_bit(path, position, position % 8)
        again = next_life(engine, disk)
        if position < last_group:
            assert list(again.report.corrupt) == [ORDERS], position
            error = again.report.corrupt[ORDERS]
            assert error.code is ErrorCode.STORAGE_CORRUPT
            assert path in str(error)
            assert disk.files_below("/data/orders-0")[path] != b""
        else:
            assert not again.report.corrupt, position
            broken = max(number for number, at in enumerate(positions) if at <= position)
            assert values_of(again.log()) == records[:broken], position
            assert again.report.directories["/data"].cut_bytes == size - positions[broken]


def test_every_flipped_byte_is_repaired_when_the_journal_holds_it() -> None:
    engine = grouped(StorageConfig(log_dir="/data"))
    records, path = values_of(engine.log()), engine.log().active.path
    files = fault_files(engine)
    for position in range(engine.log().active.size):
        disk = files.kill()
        disk.flip_bit(path, position, position % 8)
        again = next_life(engine, disk)
        assert not again.report.corrupt, position
        assert values_of(again.log()) == records, position


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("lost", [False, True], ids=["segments kept", "segments lost"])
def test_flipped_journal_byte_never_shortens_the_log_silently_when_it_is_not_in_the_last_frame(
    checkpointed: bool, lost: bool
) -> None:
    engine = grouped(StorageConfig(log_dir="/data"))
    log = engine.log()
    if checkpointed:
        log.files.checkpoint()
        engine.drain()
        engine.manager.directories[0].save_checkpoint()
        engine.drain()
    records, files = values_of(log), fault_files(engine)
    derived = {
        path: data
        for path, data in files.files_below("/data").items()
        if path.endswith((".producers", ".index"))
    }
    frames = range(0, 6 * 4096, 4096)
    for frame in frames:
        for within in (0, 3, 5, 9, 17, 25, 33, 41, 70, 90, 130, 170):
            disk = files.crash(LosesUnsynced() if lost else KeepsUnsynced())
            for path, data in derived.items():
                rewrite(disk, path, data)  # The disk has had time for these, not for the segment.
            disk.flip_bit("/data/journal-1", frame + within, within % 8)
            again = next_life(engine, disk)
            if again.report.corrupt:
                assert lost, "the segments are whole, so there is nothing wrong"
                assert again.report.corrupt[ORDERS].code is ErrorCode.STORAGE_CORRUPT
                continue
            found = values_of(again.log())
            assert found == records or (lost and frame == frames[-1] and found == records[:-1]), (
                frame,
                within,
            )


def test_damage_below_the_recovery_point_is_found_by_readers_when_opening_did_not_look() -> None:
    engine = grouped(DIRECT, 6)
    log = engine.log()
    log.files.checkpoint()
    engine.drain()
    engine.manager.directories[0].save_checkpoint()
    engine.drain()
    path, files = log.active.path, fault_files(engine)
    end = log.active.place_of(5).position
    for position in range(0, end, 7):
        disk = files.kill()
        disk.flip_bit(path, position, position % 8)
        again = next_life(engine, disk)
        if again.report.corrupt:
            continue
        with pytest.raises(TailraceError):
            offset = 0
            while offset < 6:
                data, offset = again.log().read(offset, max_bytes=1)
                check_batch(bytes(data))


# Torn tails.


def test_tail_is_cut_at_a_batch_when_the_file_ends_anywhere_in_the_last_one() -> None:
    engine = grouped(DIRECT, 3)
    log, files = engine.log(), fault_files(engine)
    content = files.read(log.active.path)
    start = log.active.place_of(2).position
    for end in range(start, len(content)):
        disk = files.kill()
        rewrite(disk, log.active.path, content[:end])
        again = next_life(engine, disk)
        assert not again.report.corrupt
        assert offsets_of(again.log()) == [0, 1]
        assert again.log().active.size == start
        append(again.log(), b"goes on")
        again.drain()
        assert offsets_of(killed(again).log()) == [0, 1, 2]


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff" * 300, Random(1).randbytes(10_000)])
def test_tail_is_cut_when_garbage_follows_the_last_batch(tail: bytes) -> None:
    engine = grouped(DIRECT, 3)
    disk = fault_files(engine).kill()
    path = engine.log().active.path
    rewrite(disk, path, disk.read(path) + tail)
    again = next_life(engine, disk)
    assert offsets_of(again.log()) == [0, 1, 2]
    assert again.report.directories["/data"].cut_bytes == len(tail)


def test_torn_tail_is_cut_when_its_value_holds_a_batch_of_another_log() -> None:
    """What a record's value looks like proves nothing about the log that stores it."""
    engine = grouped(DIRECT, 2)
    log = engine.log()
    stolen = numbered(50, b"a batch inside a value")
    append(log, b"x" * 100 + stolen + b"y" * 100)
    engine.drain()
    files, path = fault_files(engine), log.active.path
    start = log.active.place_of(2).position
    disk = files.kill()
    disk.flip_bit(path, start + 10)
    again = next_life(engine, disk)
    assert not again.report.corrupt, "the last group cannot be proven, so it is torn and cut"
    assert offsets_of(again.log()) == [0, 1]


def test_batch_of_an_older_epoch_is_reported_by_name_when_it_follows_a_newer_one() -> None:
    engine = Engine(config=DIRECT)
    append(engine.log(), b"new", epoch=7)
    engine.drain()
    disk = fault_files(engine).kill()
    path = engine.log().active.path
    rewrite(disk, path, disk.read(path) + numbered(1, b"old", epoch=3))
    again = next_life(engine, disk)
    if not again.report.corrupt:
        assert offsets_of(again.log()) == [0]


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("empty", [False, True])
def test_gap_before_a_new_segment_is_no_damage_when_a_follower_was_given_it(policy: str, empty: bool) -> None:
    engine = Engine(topic=TopicConfig(cleanup_policy=(policy,)))
    log = engine.log()
    expected = [40]
    if not empty:
        log.append_as_follower(numbered(0, b"a"), now_ms=START_MS)
        expected = [0, 40]
    log.roll(now_ms=START_MS, at=40)
    log.append_as_follower(numbered(40, b"b"), now_ms=START_MS)
    engine.drain()
    again = killed(engine)
    assert not again.report.corrupt
    assert offsets_of(again.log()) == expected


# A damaged log stays known as damaged.


def test_log_stays_corrupt_at_every_start_when_nobody_replaces_it() -> None:
    engine = grouped(DIRECT, 5)
    append(engine.log(TopicPartition("healthy", 0)), b"h")
    engine.drain()
    engine.close()
    path, files = f"/data/orders-0/{0:020d}.log", fault_files(engine)
    content = files.read(path)
    rewrite(files, path, content[: len(content) // 5 * 3])
    for life in range(3):
        engine = next_life(engine, files)
        assert list(engine.report.corrupt) == [ORDERS], f"life {life}"
        assert offsets_of(engine.log(TopicPartition("healthy", 0))) == [0]
        engine.tick(60_000)
        if life == 1:
            files = files.kill()
        else:
            engine.close()


def test_corrupt_log_is_replaced_by_an_empty_one_when_asked() -> None:
    engine = grouped(DIRECT, 4)
    disk = fault_files(engine).kill()
    disk.flip_bit(engine.log().active.path, 20)
    engine = next_life(engine, disk)
    assert engine.manager.get(ORDERS) is None
    with pytest.raises(TailraceError, match="STORAGE_CORRUPT"):
        engine.log()
    log = engine.manager.replace_corrupt(ORDERS, TOPIC_ID, now_ms=START_MS)
    assert engine.manager.corrupt == {}
    log.append_as_follower(numbered(0, b"fetched again"), now_ms=START_MS)
    engine.drain()
    kept = [path for path in disk.files_below("/data") if "-corrupt/" in path and path.endswith(".log")]
    assert len(kept) == 1
    for end_life in (killed, restart):
        engine = end_life(engine)
        assert not engine.report.corrupt
        assert values_of(engine.log()) == [(0, b"fetched again")]
    with pytest.raises(TailraceError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        engine.manager.replace_corrupt(ORDERS, TOPIC_ID, now_ms=START_MS)


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("how", ["clean", "unclean"])
def test_missing_segment_is_reported_when_someone_deleted_it(which: int, how: str) -> None:
    engine = Engine(topic=SEGMENTED)
    log = engine.log()
    for number in range(15):
        append(log, b"%d" % number * 40)
        engine.drain()
    assert len(log.segments) >= 4
    path, files = log.segments[which].path, fault_files(engine)
    if how == "clean":
        engine.close()
    else:
        files = files.kill()
    files.delete_file(path)
    engine = next_life(engine, files)
    if engine.report.corrupt:
        return
    assert how != "clean" or which != 0, "a clean stop says which segment is the first"
    try:
        found = offsets_of(engine.log(), 0)
    except TailraceError as error:
        assert error.code in (ErrorCode.STORAGE_CORRUPT, ErrorCode.OFFSET_OUT_OF_RANGE)
        assert which == 0 or error.code is ErrorCode.STORAGE_CORRUPT
        return
    assert found == list(range(15)), "a reader must not step over what was deleted"


# How much is read.


def test_recovery_scans_only_what_follows_the_recovery_point_when_killed() -> None:
    engine = Engine()
    log = engine.log()
    for _ in range(50):
        append(log, b"x" * 1000)
    engine.drain()
    engine.tick(1000)
    engine.tick(31_000)
    engine.tick(31_000)
    size = log.active.size
    append(log, b"tail")
    engine.drain()
    again = killed(engine)
    report = again.report.directories["/data"]
    assert report.scanned_bytes == again.log().active.size - size
    assert not report.clean
    assert offsets_of(again.log()) == list(range(51))


def test_clean_start_reads_no_segment_when_there_are_many() -> None:
    engine = Engine(topic=SEGMENTED)
    for partition in range(5):
        for number in range(20):
            append(engine.log(TopicPartition("t", partition)), b"%d" % number * 20)
    engine.drain()
    engine.close()
    files = fault_files(engine)
    fault = files.fail(5, lambda call, path: call == "read" and path.endswith((".log", ".index")), times=None)
    again = next_life(engine)
    assert again.report.directories["/data"].clean
    assert again.report.directories["/data"].logs == 5
    assert fault.hits == 0


def test_preallocated_log_is_whole_when_life_ends_in_any_way() -> None:
    for end_life in (restart, killed, power_lost):
        engine = Engine(topic=replace(SEGMENTED, preallocate=True))
        log = engine.log()
        for number in range(12):
            append(log, b"%d" % number * 40)
            engine.drain()
        again = end_life(engine)
        assert not again.report.corrupt
        assert offsets_of(again.log()) == list(range(12))
        append(again.log(), b"next")
        again.drain()
        assert offsets_of(killed(again).log()) == list(range(13))
