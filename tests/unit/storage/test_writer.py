"""Group commit: what shares a sync, what goes direct, who is told when, and what a failure does."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.writer import DirectoryWriter
from tests.support.driving import (
    TINY_JOURNAL,
    fault_files,
    offsets_of,
    power_lost,
    waiters,
)
from tests.support.engine import START_MS, Engine, append, values_of
from tests.support.fault_files import on


def logs_of(engine: Engine, count: int) -> list[Log]:
    logs = [engine.log(TopicPartition("many", number)) for number in range(count)]
    engine.drain()
    return logs


def writer_of(engine: Engine) -> DirectoryWriter:
    return engine.manager.directories[0].writer


def syncs(engine: Engine) -> int:
    return sum(fault_files(engine).datasyncs.values())


def test_group_costs_one_sync_when_many_logs_append_little() -> None:
    engine = Engine()
    logs = logs_of(engine, 50)
    told = waiters()
    before, groups = syncs(engine), writer_of(engine).stats.groups
    for round_number in range(4):
        for log in logs:
            append(log, b"v")
            told.wait(log, round_number + 1)
    engine.drain()
    assert syncs(engine) - before == 1
    assert writer_of(engine).stats.groups - groups == 1
    assert len(told.told) == 200
    assert all(error is None for _, error in told.told)
    assert [log.durable_end for log in logs] == [4] * 50


def test_each_group_costs_one_sync_when_appends_come_one_after_the_other() -> None:
    engine = Engine()
    log = logs_of(engine, 1)[0]
    before = syncs(engine)
    for _ in range(7):
        append(log, b"v")
        engine.drain()
    assert syncs(engine) - before == 7
    assert set(fault_files(engine).datasyncs) >= {"/data/journal-1"}
    assert not fault_files(engine).datasyncs[log.active.path]


def test_large_appends_go_direct_and_small_ones_share_the_journal_when_in_one_group() -> None:
    engine = Engine(config=StorageConfig(log_dir="/data", journal_max_append_bytes=1000))
    logs = logs_of(engine, 6)
    files = fault_files(engine)
    journal_before = files.datasyncs["/data/journal-1"]
    append(logs[0], b"x" * 2000)
    for _ in range(20):
        append(logs[1], b"y" * 60)  # Small each, large together.
    for log in logs[2:]:
        append(log, b"z")
    engine.drain()
    assert files.datasyncs[logs[0].active.path] == 1
    assert files.datasyncs[logs[1].active.path] == 1
    assert all(files.datasyncs[log.active.path] == 0 for log in logs[2:])
    assert files.datasyncs["/data/journal-1"] - journal_before == 1
    assert writer_of(engine).stats.direct_syncs == 2
    after = power_lost(engine)
    assert [after.log(log.topic_partition).end_offset for log in logs] == [1, 20, 1, 1, 1, 1]


def test_everything_goes_direct_when_the_journal_is_switched_off() -> None:
    engine = Engine(config=StorageConfig(log_dir="/data", journal_max_append_bytes=0))
    logs = logs_of(engine, 5)
    before = fault_files(engine).datasyncs["/data/journal-1"]
    for log in logs:
        append(log, b"v")
    engine.drain()
    assert fault_files(engine).datasyncs["/data/journal-1"] == before
    assert [fault_files(engine).datasyncs[log.active.path] for log in logs] == [1] * 5
    assert [offsets_of(power_lost(engine).log(log.topic_partition)) for log in logs[:1]] == [[0]]


def test_records_survive_every_turn_of_the_journal_when_power_is_lost_after_it() -> None:
    for count in range(1, 40, 3):
        engine = Engine(config=TINY_JOURNAL)
        logs = logs_of(engine, 3)
        for number in range(count):
            append(logs[number % 3], b"%d" % number * 50)
            engine.drain()
        after = power_lost(engine)
        found = sorted(
            int(value[: len(value) // 50])
            for log in logs
            for _, value in values_of(after.log(log.topic_partition))
            if value is not None
        )
        assert found == list(range(count)), count


def test_release_syncs_only_covered_segments_when_the_journal_turns() -> None:
    engine = Engine(config=TINY_JOURNAL)
    logs = logs_of(engine, 10)
    for number in range(12):
        append(logs[number % 2], b"v")
        engine.drain()
    files = fault_files(engine)
    assert files.datasyncs[logs[0].active.path] >= 1
    assert all(files.datasyncs[log.active.path] == 0 for log in logs[2:])


# Waiters.


def test_waiters_are_told_in_order_and_at_once_when_their_offset_is_durable() -> None:
    engine = Engine()
    log = logs_of(engine, 1)[0]
    told = waiters()
    told.wait(log, 0, "nothing")
    for number in range(5):
        append(log, b"v")
        told.wait(log, number + 1)
    assert told.told == [("nothing", None)]
    engine.drain()
    assert told.told[1:] == [(number, None) for number in range(1, 6)]
    told.wait(log, 3, "late")
    assert told.told[-1] == ("late", None)


def test_waiter_is_told_when_one_for_a_later_offset_waits_before_it() -> None:
    engine = Engine()
    log = logs_of(engine, 1)[0]
    told = waiters()
    told.wait(log, 2, "second")
    append(log, b"v")
    told.wait(log, 1, "first")
    engine.drain()
    assert told.told == [("first", None)]
    append(log, b"v")
    engine.drain()
    assert told.told == [("first", None), ("second", None)]


def test_waiter_may_append_again_when_it_is_told() -> None:
    engine = Engine()
    log = logs_of(engine, 1)[0]
    ends: list[int] = []

    def again(error: TailraceError | None) -> None:
        assert error is None
        ends.append(log.durable_end)
        if log.end_offset < 5:
            append(log, b"next")
            log.when_durable(log.end_offset, again)

    append(log, b"first")
    log.when_durable(1, again)
    engine.drain()
    assert ends == [1, 2, 3, 4, 5]


# Failures.


FAILURES = {
    "write": (errno.EIO, on("write", ".log")),
    "journal write": (errno.EIO, on("write", "journal-1")),
    "sync": (errno.EIO, on("datasync", "journal-1")),
    "full disk": (errno.ENOSPC, on("write", ".log")),
    "read-only": (errno.EROFS, on("write", "journal-1")),
}


@pytest.mark.parametrize("name", FAILURES)
def test_directory_goes_offline_and_loses_nothing_acknowledged_when_disk_fails(name: str) -> None:
    error, when = FAILURES[name]
    engine = Engine()
    log, other = logs_of(engine, 2)
    told = waiters()
    append(log, b"safe")
    told.wait(log, 1)
    engine.drain()
    fault_files(engine).fail(error, when)
    append(log, b"doomed")
    told.wait(log, 2)
    append(other, b"doomed too")
    told.wait(other, 1, "other")
    engine.drain()
    assert told.told[0] == (1, None)
    assert set(told.told[1:]) == {(2, ErrorCode.STORAGE_ERROR), ("other", ErrorCode.STORAGE_ERROR)}
    assert list(engine.offline) == ["/data"]
    assert "/data" in str(engine.offline["/data"])
    for one in (log, other):
        told.wait(one, 5, "later")
        assert told.told[-1] == ("later", ErrorCode.STORAGE_ERROR)
        for attempt in (
            lambda one=one: append(one, b"later"),
            lambda one=one: one.read(0, max_bytes=10),
            lambda one=one: one.truncate_to(0, now_ms=START_MS),
            lambda one=one: one.delete_records(0),
        ):
            with pytest.raises(TailraceError) as refusal:
                attempt()
            assert refusal.value.code is ErrorCode.STORAGE_ERROR
    engine.tick(60_000)
    for draw in range(20):
        after = power_lost(engine, Random(draw))
        assert not after.report.corrupt
        assert values_of(after.log(log.topic_partition))[:1] == [(0, b"safe")]


@pytest.mark.parametrize("change", ["truncate", "reset", "delete", "nothing"])
def test_cut_reports_the_error_when_the_directory_fails_before_it_is_durable(change: str) -> None:
    engine = Engine()
    log = logs_of(engine, 1)[0]
    append(log, b"one")
    append(log, b"two")
    engine.drain()
    log.advance_high_watermark(1)
    fault_files(engine).fail(errno.EIO, on("datasync", ""))
    append(log, b"doomed")
    told: list[TailraceError | None] = []
    changes = {
        "truncate": lambda: log.truncate_to(1, now_ms=START_MS, done=told.append),
        "reset": lambda: log.reset_to(9, now_ms=START_MS, done=told.append),
        "delete": lambda: log.delete_records(1, told.append),
        "nothing": lambda: log.truncate_to(3, now_ms=START_MS, done=told.append),
    }
    changes[change]()
    assert not told
    engine.drain()
    assert [error.code for error in told if error is not None] == [ErrorCode.STORAGE_ERROR]


def test_file_is_not_trusted_again_when_a_sync_failed_once() -> None:
    """The kernel forgets a failed page: a second sync says yes and has saved nothing."""
    engine = Engine(config=StorageConfig(log_dir="/data", journal_max_append_bytes=0))
    log = logs_of(engine, 1)[0]
    told = waiters()
    fault_files(engine).fail(errno.EIO, on("datasync", ".log"))
    append(log, b"lost")
    told.wait(log, 1)
    engine.drain()
    assert told.told == [(1, ErrorCode.STORAGE_ERROR)]
    with pytest.raises(TailraceError, match="STORAGE_ERROR"):
        append(log, b"more")
    engine.drain()
    assert log.durable_end == 0
    assert offsets_of(power_lost(engine).log(log.topic_partition)) == []


def test_failed_background_sync_takes_directory_offline_when_the_journal_turns() -> None:
    engine = Engine(config=TINY_JOURNAL)
    log = logs_of(engine, 1)[0]
    fault_files(engine).fail(errno.EIO, on("datasync", ".log"))
    told = waiters()
    acknowledged = 0
    for number in range(12):
        try:
            append(log, b"v")
        except TailraceError:
            break
        told.wait(log, number + 1)
        engine.drain()
        acknowledged = sum(error is None for _, error in told.told)
    assert engine.offline
    assert acknowledged >= 3
    assert offsets_of(power_lost(engine).log(log.topic_partition))[:acknowledged] == list(range(acknowledged))


def test_no_job_is_left_running_when_a_call_in_the_queue_fails_in_an_unforeseen_way() -> None:
    """A bug in one call must not silence every log of the disk: the directory goes offline and says so."""
    engine = Engine()
    log = logs_of(engine, 1)[0]

    def broken() -> None:
        raise ValueError("a bug")

    writer_of(engine).queue_call(broken)
    append(log, b"v")
    told = waiters()
    told.wait(log, 1)
    try:
        engine.drain()
    except ValueError:
        engine.drain()
    assert told.told
    assert told.told[0][1] is ErrorCode.STORAGE_ERROR
    assert engine.offline
