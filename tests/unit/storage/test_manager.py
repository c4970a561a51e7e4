"""The manager: several directories of which one may fail, periodic work, and an orderly end."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.log import Log
from tests.support.driving import (
    LosesUnsynced,
    fault_files,
    killed,
    next_life,
    offsets_of,
    power_lost,
    restart,
    waiters,
)
from tests.support.engine import START_MS, Engine, append, values_of
from tests.support.fault_files import FaultFiles

TWO = StorageConfig(log_dirs=("/a", "/b"))


def partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def spread(count: int = 4) -> tuple[Engine, list[Log], list[Log]]:
    engine = Engine(config=TWO)
    logs = [engine.log(partition(number)) for number in range(count)]
    engine.drain()
    first = [log for log in logs if log.directory.startswith("/a/")]
    return engine, first, [log for log in logs if log not in first]


def test_logs_are_spread_when_there_are_several_directories() -> None:
    _, first, second = spread()
    assert (len(first), len(second)) == (2, 2)


def test_other_directory_goes_on_when_one_fails() -> None:
    engine, first, second = spread()
    told = waiters()
    fault_files(engine).fail(errno.EIO, lambda call, path: path.startswith("/a/"), times=None)
    for log in (*first, *second):
        append(log, b"v")
        told.wait(log, 1, log.directory[:2])
    engine.drain()
    assert sorted(told.told, key=str) == [
        ("/a", ErrorCode.STORAGE_ERROR),
        ("/a", ErrorCode.STORAGE_ERROR),
        ("/b", None),
        ("/b", None),
    ]
    assert list(engine.offline) == ["/a"]
    assert list(engine.manager.offline) == ["/a"]
    engine.tick(400_000)
    append(second[0], b"more")
    engine.drain()
    assert second[0].durable_end == 2
    created = engine.manager.create(partition(50), UUID(int=7), now_ms=START_MS)
    assert created.directory.startswith("/b/")
    engine.close()
    fault_files(engine).clear_faults()
    again = next_life(engine)
    assert not again.report.corrupt
    assert again.report.directories["/b"].clean
    assert not again.report.directories["/a"].clean
    assert offsets_of(again.log(second[0].topic_partition)) == [0, 1]


def test_others_are_opened_when_one_directory_cannot_be_read() -> None:
    engine, first, second = spread()
    engine.close()
    fault_files(engine).fail(errno.EIO, lambda call, path: path.startswith("/a"), times=None)
    again = next_life(engine)
    assert list(again.report.offline) == ["/a"]
    assert "/a" in str(again.report.offline["/a"])
    assert again.manager.get(second[0].topic_partition) is not None
    assert again.manager.get(first[0].topic_partition) is None


def test_start_is_refused_when_no_directory_can_be_used() -> None:
    files = FaultFiles(Random(0))
    files.fail(errno.EACCES, lambda call, path: True, times=None)
    with pytest.raises(TailraceError) as refusal:
        Engine(files, config=TWO)
    assert refusal.value.code is ErrorCode.STORAGE_ERROR
    assert "/a" in str(refusal.value)
    assert "/b" in str(refusal.value)


def test_start_tells_when_two_directories_hold_the_same_partition() -> None:
    """A disk that was away, while its replica was made anew on the other, comes back: nobody may guess."""
    engine, first, _ = spread()
    lost = first[0].topic_partition
    append(first[0], b"old")
    engine.drain()
    engine.close()
    fault = fault_files(engine).fail(errno.EIO, lambda call, path: path.startswith("/a"), times=None)
    engine = next_life(engine)
    append(engine.log(lost), b"new")
    engine.drain()
    engine.close()
    assert fault.hits
    fault_files(engine).clear_faults()
    try:
        engine = next_life(engine)
    except TailraceError as error:
        assert str(lost) in str(error)
        return
    assert lost in engine.report.corrupt or engine.report.offline


def test_nothing_can_be_created_when_every_directory_is_offline() -> None:
    engine, _, _ = spread()
    fault_files(engine).fail(errno.EIO, lambda call, path: call == "write", times=None)
    for number in range(4):
        append(engine.log(partition(number)), b"v")
    engine.drain()
    assert sorted(engine.offline) == ["/a", "/b"]
    with pytest.raises(TailraceError) as refusal:
        engine.manager.create(partition(9), UUID(int=7), now_ms=START_MS)
    assert refusal.value.code is ErrorCode.STORAGE_ERROR


def test_creation_is_refused_when_the_log_exists() -> None:
    engine, first, _ = spread()
    with pytest.raises(TailraceError) as refusal:
        engine.manager.create(first[0].topic_partition, UUID(int=7), now_ms=START_MS)
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


# Ending.


def test_close_ends_when_there_is_nothing_to_save() -> None:
    engine = Engine(config=TWO)
    engine.close()
    again = next_life(engine)
    assert all(report.clean for report in again.report.directories.values())


@pytest.mark.parametrize("name", ["checkpoint.json.tmp", "log-state.json.tmp", ".log", "journal-1"])
@pytest.mark.parametrize("call", ["write", "datasync"])
def test_close_ends_when_the_disk_fails_on_the_way(name: str, call: str) -> None:
    engine = Engine()
    append(engine.log(), b"safe")
    engine.drain()
    append(engine.log(), b"in flight")
    fault_files(engine).fail(
        errno.ENOSPC, lambda made, path: made == call and path.endswith(name), times=None
    )
    closed: list[bool] = []
    engine.manager.close(lambda: closed.append(True))
    engine.drain()
    assert closed == [True]
    fault_files(engine).clear_faults()
    again = next_life(engine, fault_files(engine).crash(LosesUnsynced()))
    assert not again.report.corrupt
    assert values_of(again.log())[:1] == [(0, b"safe")]


def test_appends_are_refused_and_waiters_told_when_the_manager_is_closed() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"v")
    told = waiters()
    told.wait(log, 1)
    told.wait(log, 9, "never")
    engine.close()
    assert told.told == [(1, None), ("never", ErrorCode.STORAGE_ERROR)]
    with pytest.raises(TailraceError, match="closed"):
        append(log, b"late")
    assert values_of(next_life(engine).log()) == [(0, b"v")]


# Periodic work.


def test_checkpoints_follow_their_interval_when_logs_are_written() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"v")
    engine.drain()
    engine.tick(1000)
    assert log.files.recovery_point.offset == 0
    engine.tick(30_000)
    assert log.files.recovery_point.offset == 1
    engine.tick(31_000)
    report = killed(engine).report.directories["/data"]
    assert report.scanned_bytes == 0


def test_quiet_log_costs_nothing_when_ticks_go_by() -> None:
    engine = Engine()
    append(engine.log(), b"v")
    engine.drain()
    for _ in range(4):
        engine.tick(31_000)
    steps = fault_files(engine).steps
    for _ in range(20):
        engine.tick(31_000)
    assert fault_files(engine).steps == steps


@pytest.mark.parametrize("policy", [("delete",), ("compact",), ("compact", "delete")])
def test_tick_goes_on_with_other_logs_when_one_is_damaged(policy: tuple[str, ...]) -> None:
    topic = TopicConfig(
        cleanup_policy=policy, segment_bytes=300, retention_ms=1000, min_cleanable_dirty_ratio=0.0
    )
    engine = Engine(topic=topic)
    logs = [engine.log(partition(number)) for number in range(3)]
    for log in logs:
        for number in range(8):
            append(log, b"%d" % number * 20, keys=[b"same"])
        engine.drain()
        log.advance_high_watermark(8)
    engine.close()
    files = fault_files(engine)
    for segment in logs[1].segments[:-1]:
        files.flip_bit(segment.path, 20)
        files.delete_file(segment.sibling(".index"))
    engine = next_life(engine)
    for _ in range(4):
        engine.tick(400_000)
    assert not engine.offline
    for number in (0, 2):
        log = engine.log(partition(number))
        assert len(values_of(log)) < 8, "retention or cleaning must have run"


def test_producers_are_forgotten_when_they_have_expired() -> None:
    config = StorageConfig(log_dir="/data", producer_id_expiration_ms=10_000)
    engine = Engine(config=config)
    log = engine.log()
    append(log, b"v", producer=(1, 0, 0))
    engine.drain()
    engine.tick(301_000)
    assert list(log.producers.describe()) == []
    with pytest.raises(TailraceError, match="UNKNOWN_PRODUCER_ID"):
        append(log, b"w", producer=(1, 0, 1), now_ms=engine.now_ms)


def test_retention_runs_at_its_interval_when_ticks_go_by() -> None:
    engine = Engine(topic=TopicConfig(retention_ms=1000, segment_bytes=200, file_delete_delay_ms=0))
    log = engine.log()
    for number in range(5):
        append(log, b"%d" % number * 30)
    engine.drain()
    log.advance_high_watermark(5)
    engine.tick(299_000)
    assert log.log_start_offset == 0
    engine.tick(1000)
    assert log.log_start_offset == 5
    engine.tick(1000)
    names = [
        entry.name for entry in engine.files.list(log.directory) if entry.name.endswith((".log", ".deleted"))
    ]
    assert names == [f"{5:020d}.log"]
    assert restart(engine).log().log_start_offset == 5


def test_settings_of_a_topic_count_from_the_next_batch_on_when_they_change() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"x" * 500)
    log.reconfigure(replace(engine.topic, segment_bytes=600, max_message_bytes=700))
    append(log, b"x" * 500)
    assert len(log.segments) == 2
    with pytest.raises(TailraceError, match="RECORD_TOO_LARGE"):
        append(log, b"x" * 700)
    engine.drain()
    assert offsets_of(power_lost(engine).log()) == [0, 1]
