"""Power cuts at every step of random histories: what was acknowledged stays, and nothing else is wrong."""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from tailrace.cluster.common.topic_config import TopicConfig
from tests.support.checks import check_recovered
from tests.support.engine import Engine, append
from tests.support.fault_files import FaultFiles, PowerLost
from tests.support.histories import PLAIN, SMALL, History

OS_FLUSH = TopicConfig(segment_bytes=2000, index_interval_bytes=200, flush="os")


def steps_of(seed: int, length: int, topic: TopicConfig = PLAIN) -> int:
    files = FaultFiles(Random(seed))
    History(files, seed, steps=length, topic=topic).run()
    return files.steps


def cut_power(seed: int, length: int, step: int, *, kill: bool = False, topic: TopicConfig = PLAIN) -> None:
    files = FaultFiles(Random(seed))
    files.crash_after(step)
    history = History(files, seed, steps=length, topic=topic)
    with contextlib.suppress(PowerLost):
        history.run()
    draws = [Random(f"{seed}/{step}/{draw}") for draw in range(2)]
    survivors = [files.kill()] if kill else [files.crash(draw) for draw in draws]
    if topic.flush == "os" and not kill:
        for books in history.books.values():
            books.promise_nothing()
    for draw, disk in enumerate(survivors):
        where = f"seed {seed}, {length} operations, power lost at step {step}, draw {draw}, kill {kill}"
        check_disk(disk, history, where)


def check_disk(disk: FaultFiles, history: History, where: str) -> None:
    engine = Engine(disk, config=SMALL, topic=history.topic)
    assert not engine.report.corrupt, f"{where}: {engine.report.corrupt}"
    assert not engine.report.offline, where
    for partition, books in history.books.items():
        log = engine.manager.get(partition)
        if log is not None and log.key.topic_id != books.topic_id.bytes:
            log = None  # The topic of that name before it was deleted and created anew.
        check_recovered(log, books, f"{where}, {partition}")
    for log in engine.manager.logs.values():
        append(log, b"after", epoch=1000, now_ms=engine.now_ms)
    engine.drain()
    ends = {log.topic_partition: (log.end_offset, log.durable_end) for log in engine.manager.logs.values()}
    assert all(end == durable for end, durable in ends.values()), where
    engine.close()
    again = Engine(disk, config=SMALL, topic=history.topic)
    assert again.report.directories["/data"].clean, where
    assert {tp: log.end_offset for tp, log in again.manager.logs.items()} == {
        tp: end for tp, (end, _) in ends.items()
    }, where


@pytest.mark.parametrize("seed", range(6))
def test_log_keeps_acknowledged_records_when_power_is_cut_at_every_step(seed: int) -> None:
    length = 25
    for step in range(1, steps_of(seed, length) + 1):
        cut_power(seed, length, step)


@pytest.mark.parametrize("seed", range(100, 104))
def test_log_keeps_acknowledged_records_when_killed_at_every_step(seed: int) -> None:
    length = 25
    for step in range(1, steps_of(seed, length) + 1):
        cut_power(seed, length, step, kill=True)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_log_keeps_acknowledged_records_when_power_is_cut_somewhere_in_a_long_history(seed: int) -> None:
    length = 150
    total = steps_of(seed, length)
    for step in Random(seed).sample(range(1, total + 1), 4):
        cut_power(seed, length, step)


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize("seed", range(2000, 2010))
def test_log_is_a_whole_prefix_after_a_crash_when_flush_is_left_to_the_system(seed: int, kill: bool) -> None:
    """A killed process loses nothing; a power cut may take the end of the log, and nothing else."""
    length = 100
    total = steps_of(seed, length, OS_FLUSH)
    for step in Random(seed).sample(range(1, total + 1), 8):
        cut_power(seed, length, step, kill=kill, topic=OS_FLUSH)


def test_history_loses_nothing_when_power_is_never_cut() -> None:
    for seed in range(20):
        history = History(FaultFiles(Random(seed)), seed, steps=200, topic=PLAIN)
        history.run()
        for partition, books in history.books.items():
            log = history.current.manager.get(partition)
            assert log is not None or not books.exists_promised
            if log is not None:
                check_recovered(log, books, f"seed {seed}, {partition}")
