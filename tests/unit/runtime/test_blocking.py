"""Jobs and their owner, inline and on threads; the storage engine's main paths on real threads and files."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import InlineBlocking, Job, ThreadBlocking
from tests.support.driving import offsets_of
from tests.support.engine import ORDERS, START_MS, values_of
from tests.support.fault_files import FaultFiles, on
from tests.support.threaded import ThreadedEngine

ROOT = Path(__file__).parents[3]


# Inline.


def test_inline_runs_jobs_and_posts_in_order_when_drained() -> None:
    blocking, seen = InlineBlocking(), []

    def job(name: str) -> Job:
        def run() -> None:
            seen.append(name)
            if name == "a":
                blocking.post(job("posted by a"))

        return run

    for name in ("a", "b"):
        blocking.start(job(name))
    assert seen == []
    assert blocking.run_one()
    assert seen == ["a"]
    blocking.drain()
    assert seen == ["a", "b", "posted by a"]
    assert not blocking.run_one()


def test_inline_hands_jobs_to_the_schedule_when_it_has_one() -> None:
    scheduled: list[Job] = []
    blocking = InlineBlocking(scheduled.append)
    ran: list[int] = []
    blocking.start(lambda: ran.append(1))
    blocking.post(lambda: ran.append(2))
    assert ran == []
    for job in reversed(scheduled):
        job()
    assert ran == [2, 1]


def test_inline_gather_runs_at_once_and_raises_when_a_job_does() -> None:
    ran: list[int] = []

    def fail() -> None:
        raise OSError(errno.EIO, "no")

    InlineBlocking().gather([lambda: ran.append(1), lambda: ran.append(2)])
    assert ran == [1, 2]
    with pytest.raises(OSError, match="no"):
        InlineBlocking().gather([fail])


# Threads.


def with_threads(test: Callable[[ThreadBlocking], None], *, jobs: int = 2, leaves: int = 2) -> None:
    blocking = ThreadBlocking(lambda call: call(), jobs=jobs, leaves=leaves)
    try:
        test(blocking)
    finally:
        blocking.close()


def test_gather_runs_jobs_side_by_side_when_there_are_threads() -> None:
    meeting = threading.Barrier(3)

    def meet() -> None:
        meeting.wait(30)  # Passes only when all three are here at once.

    def check(blocking: ThreadBlocking) -> None:
        blocking.gather([meet] * 3)

    with_threads(check)
    assert not meeting.broken


def test_gather_waits_for_all_and_raises_the_first_error_when_several_fail() -> None:
    ended: list[str] = []
    hold = threading.Event()

    def slow() -> None:
        hold.wait(30)
        ended.append("slow")

    def fail(name: str) -> None:
        ended.append(name)
        hold.set()
        raise OSError(errno.EIO, name)

    def check(blocking: ThreadBlocking) -> None:
        with pytest.raises(OSError, match="first"):
            blocking.gather([lambda: fail("first"), slow, lambda: fail("third")])
        assert sorted(ended) == ["first", "slow", "third"]

    with_threads(check)


def test_gather_ends_when_more_jobs_gather_than_there_are_threads() -> None:
    finished = threading.Semaphore(0)

    def check(blocking: ThreadBlocking) -> None:
        def job() -> None:
            blocking.gather([lambda: None] * 5)
            finished.release()

        for _ in range(20):
            blocking.start(job)
        for _ in range(20):
            assert finished.acquire(timeout=30)

    with_threads(check, jobs=2, leaves=1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_error_of_a_job_is_said_aloud_and_others_go_on_when_it_breaks_its_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: said.append(str(args.exc_value)))
    ran = threading.Event()

    def breaks() -> None:
        raise LookupError("broken promise")

    def check(blocking: ThreadBlocking) -> None:
        blocking.start(breaks)
        blocking.start(ran.set)
        assert ran.wait(30)

    with_threads(check, jobs=1)
    assert said == ["broken promise"]


# The engine on an event loop.


def run_engine(
    path: Path, story: Callable[[ThreadedEngine], object], topic: TopicConfig | None = None
) -> None:
    async def life() -> None:
        engine = ThreadedEngine(StorageConfig(log_dir=f"{path}/data"), topic=topic)
        try:
            result = story(engine)
            assert asyncio.iscoroutine(result)
            await result
        finally:
            await engine.close()

    asyncio.run(asyncio.wait_for(life(), 60))


def test_sixteen_appenders_share_syncs_and_lose_nothing_when_they_append_at_once(tmp_path: Path) -> None:
    found: dict[int, list[tuple[int, bytes | None]]] = {}

    async def write(engine: ThreadedEngine) -> None:
        async def appender(number: int) -> None:
            log = engine.log(TopicPartition("t", number % 4))
            for step in range(25):
                value = b"%d:%d" % (number, step)
                offset = await engine.append(log, value)
                assert (offset, value) in values_of(log, offset)[:1]
                assert log.durable_end > offset

        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(appender(number))
        stats = engine.manager.directories[0].writer.stats
        assert stats.journal_frames < 200, "400 appends of 16 appenders must share syncs"
        for number in range(4):
            found[number] = values_of(engine.log(TopicPartition("t", number)))

    async def read(engine: ThreadedEngine) -> None:
        assert engine.report.directories[f"{tmp_path}/data"].clean
        for number in range(4):
            log = engine.log(TopicPartition("t", number))
            assert values_of(log) == found[number]
            assert offsets_of(log) == list(range(100))
            for appender in range(number, 16, 4):
                steps = [
                    value for _, value in values_of(log) if value and value.startswith(b"%d:" % appender)
                ]
                assert steps == [b"%d:%d" % (appender, step) for step in range(25)]

    run_engine(tmp_path, write)
    run_engine(tmp_path, read)


def test_log_is_cut_rolled_and_removed_on_a_real_disk_when_asked(tmp_path: Path) -> None:
    topic = TopicConfig(segment_bytes=2000, retention_bytes=3000, file_delete_delay_ms=0)

    async def write(engine: ThreadedEngine) -> None:
        log = engine.log()
        for number in range(60):
            await engine.append(log, b"%d" % number * 100)
        log.truncate_to(50, now_ms=START_MS)
        assert await engine.append(log, b"other") == 50
        log.advance_high_watermark(51)
        assert engine.manager.enforce_retention(START_MS) > 0
        await engine.done(lambda ended: log.delete_records(45, lambda _: ended()))
        engine.manager.tick(START_MS + 400_000)
        await engine.settle(log)

    async def read(engine: ThreadedEngine) -> None:
        log = engine.log()
        assert log.log_start_offset == 45
        records = [(number, b"%d" % number * 100) for number in range(45, 50)]
        assert [one for one in values_of(log) if one[0] >= 45] == [*records, (50, b"other")]
        assert not list((tmp_path / "data").rglob("*.deleted"))

    run_engine(tmp_path, write, topic)
    run_engine(tmp_path, read, topic)


def test_log_is_compacted_on_a_real_disk_when_appends_go_on(tmp_path: Path) -> None:
    topic = TopicConfig(
        cleanup_policy=("compact",), segment_bytes=1500, min_cleanable_dirty_ratio=0.0, file_delete_delay_ms=0
    )
    last: dict[bytes, bytes] = {}

    async def write(engine: ThreadedEngine) -> None:
        log = engine.log()
        now_ms = START_MS
        for number in range(120):
            key, value = b"k%d" % (number % 7), b"%d" % number * 20
            await engine.append(log, value, keys=[key])
            last[key] = value
            if number % 10 == 9:
                log.advance_high_watermark(log.durable_end)
                now_ms += 20_000
                engine.manager.tick(now_ms)
        await engine.settle(log)

    async def read(engine: ThreadedEngine) -> None:
        found: dict[bytes | None, bytes | None] = {}
        for batch in engine.log().batches():
            found.update(zip(batch.keys(), batch.values(), strict=True))
        assert found == last

    run_engine(tmp_path, write, topic)
    run_engine(tmp_path, read, topic)


def test_next_group_takes_all_that_came_meanwhile_when_a_sync_is_slow() -> None:
    """Real threads, and no luck: the journal's first sync waits until a hundred appends are queued."""
    files = FaultFiles(Random(0))
    syncing, go_on = threading.Event(), threading.Event()

    async def life() -> None:
        engine = ThreadedEngine(StorageConfig(log_dir="/data"), files=files)
        log = engine.log()
        await engine.settle(log)
        stats = engine.manager.directories[0].writer.stats
        groups = stats.groups

        def before_sync(path: str) -> None:
            if path.endswith("journal-1"):
                syncing.set()
                assert go_on.wait(30)

        files.before_sync = before_sync
        first = asyncio.ensure_future(engine.append(log, b"first"))
        await asyncio.to_thread(syncing.wait, 30)
        rest = [asyncio.ensure_future(engine.append(log, b"%d" % number)) for number in range(100)]
        await asyncio.sleep(0)
        assert (log.end_offset, log.durable_end) == (101, 0)
        assert len(values_of(log)) == 101, "readers need not wait for the disk"
        go_on.set()
        assert await first == 0
        assert await asyncio.gather(*rest) == list(range(1, 101))
        assert stats.groups - groups == 2
        await engine.close()

    asyncio.run(asyncio.wait_for(life(), 60))


def test_every_waiter_is_told_when_the_disk_fails_under_sixteen_appenders() -> None:
    files = FaultFiles(Random(0))

    async def life() -> None:
        engine = ThreadedEngine(StorageConfig(log_dir="/data"), files=files)
        acknowledged: list[tuple[int, bytes]] = []
        refused: list[ErrorCode] = []

        async def appender(number: int) -> None:
            try:
                for step in range(1000):
                    value = b"%d:%d" % (number, step)
                    acknowledged.append((await engine.append(engine.log(), value), value))
            except TailraceError as error:
                refused.append(error.code)

        await engine.append(engine.log(), b"safe")
        files.fail(errno.EIO, on("datasync", "journal-1"), skip=5)
        async with asyncio.TaskGroup() as group:
            for number in range(16):
                group.create_task(appender(number))
        assert refused == [ErrorCode.STORAGE_ERROR] * 16
        await engine.close()
        disk = files.crash(Random(1))
        again = ThreadedEngine(StorageConfig(log_dir="/data"), files=disk)
        found = values_of(again.log())
        assert found[0] == (0, b"safe")
        assert set(acknowledged) <= set(found)
        await again.close()

    asyncio.run(asyncio.wait_for(life(), 60))


KILLED = """
import asyncio, os, signal, sys
from tailrace.cluster.common.storage_config import StorageConfig
from tests.support.threaded import ThreadedEngine

async def life():
    engine = ThreadedEngine(StorageConfig(log_dir=sys.argv[1]))
    count = 0
    async def appender(number):
        nonlocal count
        for step in range(1000):
            offset = await engine.append(engine.log(), b"%d:%d" % (number, step))
            os.write(1, b"%d %d:%d\\n" % (offset, number, step))
            count += 1
            if count == 150:
                os.kill(os.getpid(), signal.SIGKILL)
    async with asyncio.TaskGroup() as group:
        for number in range(16):
            group.create_task(appender(number))

asyncio.run(life())
"""


def test_acknowledged_records_are_there_when_the_process_was_killed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, f"{tmp_path}/data"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    lines = [line.split(b" ", 1) for line in ended.stdout.splitlines()]
    acknowledged = {(int(offset), value) for offset, value in lines}
    assert len(acknowledged) == 150

    async def read(engine: ThreadedEngine) -> None:
        report = engine.report.directories[f"{tmp_path}/data"]
        assert not report.clean
        log = engine.log()
        found = values_of(log)
        assert acknowledged <= {(offset, value) for offset, value in found if value is not None}
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert await engine.append(log, b"after") == len(found)

    run_engine(tmp_path, read)
    run_engine(tmp_path, lambda engine: _ends_with(engine, b"after"))


async def _ends_with(engine: ThreadedEngine, value: bytes) -> None:
    assert engine.report.directories[engine.config.log_dir].clean
    assert values_of(engine.log(ORDERS))[-1][1] == value
