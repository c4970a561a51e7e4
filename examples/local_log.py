"""Partition logs on this machine: write, follow, close, open again, and check that nothing is missing.

    python examples/local_log.py [--data DIR] [--seconds 10] [--partitions 6]

There are no brokers here, only what a broker is built on: a LogManager with its logs on real files.
Producers append idempotent batches and wait until each is on the disk; readers follow the logs and check
that every batch comes once and in order. One line a second tells how it goes. In the end the logs are closed
and opened again, and everything that was acknowledged must still be there. Ctrl-C ends it early.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from uuid import uuid4

from google_crc32c import value as crc32c

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import ThreadBlocking
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.files import OsFiles
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.manager import LogManager

TOPIC = "demo"
PRODUCERS_PER_PARTITION = 4
RECORDS_PER_BATCH = 100
VALUE_BYTES = 100


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Counted:
    """How many records, and a checksum that does not depend on the order of their batches."""

    records: int = 0
    checksum: int = 0

    def add(self, values: list[bytes | None]) -> None:
        self.records += len(values)
        self.checksum += crc32c(b"".join(value or b"" for value in values))


@dataclass(slots=True)
class Partition:
    log: Log
    start: int
    """Where this run begins: the directory may hold records of earlier runs."""
    acknowledged: Counted = field(default_factory=Counted)
    seen: Counted = field(default_factory=Counted)
    read_to: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Run:
    """What producers, readers and the status line share."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.producing = True
        self.appends_ms: list[float] = []


def open_manager(config: StorageConfig, blocking: ThreadBlocking) -> LogManager:
    throttle = Throttle(config.log_cleaner_io_max_bytes_per_second, clock=time.monotonic, sleep=time.sleep)
    manager = LogManager(config=config, files=OsFiles(), blocking=blocking, throttle=throttle)
    manager.open(now_ms=now_ms())
    return manager


async def durable(log: Log, end_offset: int) -> None:
    """Wait until the log is on the disk up to `end_offset`: only then may anyone be told."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(error: TailraceError | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    log.when_durable(end_offset, settle)
    await done


async def produce(run: Run, partition: Partition, producer_id: int) -> None:
    log, sequence = partition.log, 0
    while not run.stop.is_set():
        data = os.urandom(RECORDS_PER_BATCH * VALUE_BYTES)
        values: list[bytes | None] = [data[at : at + VALUE_BYTES] for at in range(0, len(data), VALUE_BYTES)]
        batch = encode_batch(
            values=values,
            timestamps=now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        started = time.perf_counter()
        appended = log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms())
        await durable(log, appended.last_offset + 1)
        run.appends_ms.append((time.perf_counter() - started) * 1000)
        # With replicas, a record is committed when all in sync have it; here there is only this one.
        log.advance_high_watermark(appended.last_offset + 1)
        sequence += len(values)
        partition.acknowledged.add(values)
        partition.news.set()


async def follow(run: Run, partition: Partition) -> None:
    log = partition.log
    next_sequence: dict[int, int] = {}
    while run.producing or partition.read_to < log.high_watermark:
        await partition.news.wait()
        partition.news.clear()
        for batch in log.batches(partition.read_to, log.high_watermark):
            header = batch.header
            expected = next_sequence.get(header.producer_id, 0)
            if header.base_offset != partition.read_to or header.base_sequence != expected:
                raise AssertionError(
                    f"{log.topic_partition}: offset {header.base_offset} and sequence {header.base_sequence} "
                    f"came where offset {partition.read_to} and sequence {expected} were due"
                )
            next_sequence[header.producer_id] = header.last_sequence + 1
            partition.read_to = header.next_offset
            partition.seen.add(batch.values())


async def show_status(run: Run, manager: LogManager, partitions: list[Partition], seconds: float) -> None:
    """A line and a tick of the manager each second, until the time is over or somebody stops the run."""
    stats = manager.directories[0].writer.stats
    deadline = time.monotonic() + seconds
    records = groups = 0
    last = time.monotonic()
    while not run.stop.is_set() and (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(run.stop.wait(), min(1.0, left))
        manager.tick(now_ms())
        elapsed, last = time.monotonic() - last, time.monotonic()
        total = sum(partition.acknowledged.records for partition in partitions)
        latencies, run.appends_ms = sorted(run.appends_ms), []
        if latencies:
            rate = (total - records) / elapsed
            lag = sum(partition.log.high_watermark - partition.read_to for partition in partitions)
            print(
                f"{rate:9,.0f} records/s  {rate * VALUE_BYTES / 1e6:6.1f} MB/s  "
                f"{len(latencies) / max(stats.groups - groups, 1):5.1f} appends a sync  "
                f"p50 {latencies[len(latencies) // 2]:6.2f} ms  "
                f"p99 {latencies[len(latencies) * 99 // 100]:6.2f} ms  readers lag {lag} records",
                flush=True,
            )
        records, groups = total, stats.groups
    run.stop.set()


async def write_and_follow(manager: LogManager, count: int, seconds: float) -> list[Partition]:
    topic_id, partitions = uuid4(), []
    for number in range(count):
        name = TopicPartition(TOPIC, number)
        log = manager.get(name) or manager.create(name, topic_id, now_ms=now_ms())
        log.advance_high_watermark(log.end_offset)
        partitions.append(Partition(log, start=log.end_offset, read_to=log.end_offset))
    run = Run()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.stop.set)
    first_id = now_ms()  # Producer ids are never used twice, so that a later run is not taken for a retry.
    async with asyncio.TaskGroup() as readers:
        for partition in partitions:
            readers.create_task(follow(run, partition))
        async with asyncio.TaskGroup() as producers:
            producers.create_task(show_status(run, manager, partitions, seconds))
            for number, partition in enumerate(partitions * PRODUCERS_PER_PARTITION):
                producers.create_task(produce(run, partition, first_id + number))
        run.producing = False
        for partition in partitions:
            partition.news.set()
    return partitions


async def close(manager: LogManager) -> None:
    closed = asyncio.Event()
    manager.close(closed.set)
    await closed.wait()


def find_faults(manager: LogManager, partitions: list[Partition]) -> list[str]:
    """What differs between the acknowledged records and those in the logs, which were opened again."""
    faults = []
    for partition in partitions:
        name = partition.log.topic_partition
        stored, log = Counted(), manager.get(name)
        if log is not None:
            for batch in log.batches(partition.start):
                stored.add(batch.values())
        for what, found in (("stored", stored), ("read", partition.seen)):
            if found != partition.acknowledged:
                faults.append(f"{name}: acknowledged {partition.acknowledged}, {what} {found}")
    return faults


async def main(data: str, seconds: float, count: int) -> int:
    config = StorageConfig(log_dir=data)
    blocking = ThreadBlocking(post=asyncio.get_running_loop().call_soon_threadsafe)
    print(f"{count} partitions, {count * PRODUCERS_PER_PARTITION} producers, logs in {data}", flush=True)
    manager = open_manager(config, blocking)
    partitions = await write_and_follow(manager, count, seconds)
    await close(manager)

    manager = open_manager(config, blocking)
    faults = find_faults(manager, partitions)
    await close(manager)
    blocking.close()
    total = sum(partition.acknowledged.records for partition in partitions)
    checksum = sum(partition.acknowledged.checksum for partition in partitions)
    for fault in faults:
        print(f"FAULT  {fault}")
    if faults or not total:
        print(f"FAILED: {len(faults)} faults, {total:,} records acknowledged")
        return 1
    print(
        f"OK: closed, opened again, and all {total:,} acknowledged records are there (checksum {checksum:x})"
    )
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write, follow, close and check logs on this machine.")
    parser.add_argument(
        "--data", metavar="DIR", help="log directory to use and keep (default: a temporary one)"
    )
    parser.add_argument("--seconds", type=float, default=10, help="how long to write (default: 10)")
    parser.add_argument("--partitions", type=int, default=6, help="how many partitions (default: 6)")
    options = parser.parse_args()
    if options.seconds <= 0 or options.partitions < 1:
        parser.error("--seconds must be more than 0 and --partitions at least 1")
    if options.data is not None:
        sys.exit(asyncio.run(main(options.data, options.seconds, options.partitions)))
    with tempfile.TemporaryDirectory(prefix="tailrace-") as temporary:
        sys.exit(asyncio.run(main(temporary, options.seconds, options.partitions)))
