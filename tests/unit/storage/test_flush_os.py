"""flush=os: acknowledged when the operating system has it, synced now and then, whole after any crash.

A kill loses nothing. A loss of power may lose the end of a log that was not synced yet, and is never taken
for corruption: what is left is a prefix, with everything below the last sync in it. test_crash.py crashes
such logs anywhere.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.log import Log
from tests.support.driving import (
    KeepsUnsynced,
    fault_files,
    killed,
    next_life,
    offsets_of,
    power_lost,
    waiters,
)
from tests.support.engine import Engine, append

OS_FLUSH = TopicConfig(flush="os", flush_messages=10, flush_ms=5000)


def logs_of(engine: Engine, count: int) -> list[Log]:
    logs = [engine.log(TopicPartition("many", number)) for number in range(count)]
    engine.drain()
    return logs


def syncs(engine: Engine) -> int:
    return sum(fault_files(engine).datasyncs.values())


def test_nothing_is_synced_on_append_when_flush_is_os() -> None:
    engine = Engine(topic=OS_FLUSH)
    log = logs_of(engine, 1)[0]
    told = waiters()
    before = syncs(engine)
    append(log, b"v")
    told.wait(log, 1)
    assert told.told == []
    engine.drain()
    assert told.told == [(1, None)]
    assert syncs(engine) == before
    assert (log.durable_end, log.synced_end) == (1, 0)
    assert log.files.recovery_point.offset == 0
    assert offsets_of(killed(engine).log(log.topic_partition)) == [0]


@pytest.mark.parametrize("why", ["messages", "time"])
def test_log_is_synced_when_flush_messages_or_flush_ms_is_reached(why: str) -> None:
    engine = Engine(topic=OS_FLUSH)
    log = logs_of(engine, 1)[0]
    for number in range(9):
        append(log, b"%d" % number)
    engine.drain()
    engine.tick(1000)
    assert fault_files(engine).datasyncs[log.active.path] == 0
    if why == "messages":
        append(log, b"9")
        engine.drain()
        engine.tick(1)
    else:
        engine.tick(4999)
        assert fault_files(engine).datasyncs[log.active.path] == 0
        engine.tick(1)
    assert fault_files(engine).datasyncs[log.active.path] == 1
    assert log.synced_end == log.end_offset
    end = log.end_offset
    assert offsets_of(power_lost(engine).log(log.topic_partition)) == list(range(end))


def test_recovery_point_moves_only_after_sync_when_flush_is_os() -> None:
    engine = Engine(topic=replace(OS_FLUSH, flush_messages=10**9, flush_ms=10**9, segment_bytes=500))
    log = logs_of(engine, 1)[0]
    for number in range(12):
        append(log, b"%d" % number * 50)
        engine.drain()
    assert len(log.segments) > 2
    log.files.checkpoint()
    assert log.files.recovery_point.offset == 0
    engine.drain()
    assert log.files.recovery_point.offset == 12
    assert all(fault_files(engine).datasyncs[segment.path] for segment in log.segments)
    append(log, b"unsynced")
    engine.drain()
    after = power_lost(engine)
    assert not after.report.corrupt
    assert offsets_of(after.log(log.topic_partition)) == list(range(12))


def test_records_are_safe_from_the_first_on_when_flush_turns_from_os_to_commit() -> None:
    engine = Engine(topic=OS_FLUSH)
    log = logs_of(engine, 1)[0]
    append(log, b"before")
    log.reconfigure(replace(OS_FLUSH, flush="commit"))
    told = waiters()
    append(log, b"after")
    told.wait(log, 2)
    engine.drain()
    assert told.told == [(2, None)]
    after = next_life(engine, fault_files(engine).crash(KeepsUnsynced()))
    assert offsets_of(after.log(log.topic_partition)) == [0, 1]
    assert offsets_of(power_lost(engine).log(log.topic_partition)) == [0, 1]
