"""Appending: large batches, group commit of small ones, many partitions, preallocation."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count
from pathlib import Path

from slow_sync import SlowSyncFiles
from support import KIB, MB, MIB, Engine, Run, Section, Slice, batch_of_size, engine_at, interleaved

from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.log import Log

PARTITIONS = 1_000
SYNC_DELAYS_MS = (0, 2, 10)
LEADER_BYTES = 32


class BareFile:
    """A growing file, each write followed by its own sync: what the disk gives without an engine."""

    def __init__(self, path: Path, batch: bytes) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
        # In two parts, as the engine writes a batch: the leader's and the producer's.
        self._parts: list[Bytes] = [batch[:LEADER_BYTES], memoryview(batch)[LEADER_BYTES:]]
        self._size = len(batch)
        self._position = 0

    async def appends_per_second(self, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            os.pwritev(self._fd, self._parts, self._position)
            os.fdatasync(self._fd)
            self._position += self._size
        return count / (time.perf_counter() - start)

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def bare_file(path: Path, batch: bytes) -> Iterator[BareFile]:
    file = BareFile(path, batch)
    try:
        yield file
    finally:
        file.close()


async def appends_per_second(engine: Engine, logs: list[Log], batch: bytes, count: int) -> float:
    """One appender for each of `logs` (which may name a log several times), `count` appends together."""

    async def appender(log: Log) -> None:
        for _ in range(count // len(logs)):
            await engine.append(log, batch)

    start = time.perf_counter()
    if len(logs) == 1:
        await appender(logs[0])
    else:
        async with asyncio.TaskGroup() as group:
            for log in logs:
                group.create_task(appender(log))
    return (count // len(logs)) * len(logs) / (time.perf_counter() - start)


async def large_appends(run: Run) -> list[Section]:
    batch = batch_of_size(MIB)
    appends, rounds = run.pick(16, 8), run.pick(15, 4)
    section = Section(
        title="append of 1 MiB batches",
        note=f"Fresh files that grow, {appends} appends a slice, {rounds} slices each in turn. The bare loop"
        " is pwritev + fdatasync. In the engine an append is done when it is durable.",
        columns=("side", "MB/s", "of bare"),
    )
    with run.place("large") as place, bare_file(place / "bare", batch) as bare:
        async with engine_at(place / "engine") as engine:
            one, four = engine.create("one"), engine.create("four")
            await engine.settled()
            sides: dict[str, Slice] = {
                "bare loop": lambda: bare.appends_per_second(appends),
                "engine, 1 in flight": lambda: appends_per_second(engine, [one], batch, appends),
                "engine, 4 in flight": lambda: appends_per_second(engine, [four] * 4, batch, appends),
            }
            samples = await interleaved(sides, rounds)
    for name in sides:
        section.rows.append((name, samples.median(name) * MIB / MB, samples.ratio(name, "bare loop")))
    section.at_least("engine, 1 in flight, of bare", samples.ratio("engine, 1 in flight", "bare loop"), 0.85)
    section.at_least("engine, 4 in flight, of bare", samples.ratio("engine, 4 in flight", "bare loop"), 0.85)
    return [section]


async def group_commit(run: Run) -> list[Section]:
    batch = batch_of_size(KIB)
    alone, together, rounds = run.pick(400, 200), run.pick(3200, 1600), run.pick(9, 3)
    section = Section(
        title="16 concurrent appenders of 1 KiB batches",
        note="An appender sends its next batch when the last one is durable. The bare loop is pwritev +"
        f" fdatasync of one growing file. {rounds} slices each, in turn.",
        columns=("side", "appends/s", "of bare"),
    )
    with run.place("group") as place, bare_file(place / "bare", batch) as bare:
        async with engine_at(place / "engine") as engine:
            one, shared = engine.create("one"), engine.create("shared")
            own = [engine.create("own", number) for number in range(16)]
            await engine.settled()
            sides: dict[str, Slice] = {
                "bare, a sync for each append": lambda: bare.appends_per_second(alone),
                "engine, 1 appender": lambda: appends_per_second(engine, [one], batch, alone),
                "engine, 16 on one partition": lambda: appends_per_second(
                    engine, [shared] * 16, batch, together
                ),
                "engine, 16 on 16 partitions": lambda: appends_per_second(engine, own, batch, together),
            }
            samples = await interleaved(sides, rounds)
    base = "bare, a sync for each append"
    for name in sides:
        section.rows.append((name, samples.median(name), samples.ratio(name, base)))
    for name in list(sides)[2:]:
        section.at_least(f"{name}, times bare", samples.ratio(name, base), 5)
    return [section]


class ManyPartitions:
    """An appender on each of 1,000 partitions, with one batch in flight."""

    def __init__(self, engine: Engine, files: SlowSyncFiles, batch: bytes) -> None:
        self._engine = engine
        self._files = files
        self._batch = batch
        self._logs = [engine.create("many", number) for number in range(PARTITIONS)]
        self.latencies: dict[int, list[float]] = {delay: [] for delay in SYNC_DELAYS_MS}

    async def slice(self, delay_ms: int, seconds: float) -> float:
        await self._engine.settled()
        self._files.delay_seconds = delay_ms / 1000
        latencies: list[float] = []
        start = time.perf_counter()
        deadline = start + seconds

        async def appender(log: Log) -> None:
            began = time.perf_counter()
            while began < deadline:
                await self._engine.append(log, self._batch)
                ended = time.perf_counter()
                latencies.append(ended - began)
                began = ended

        async with asyncio.TaskGroup() as group:
            for log in self._logs:
                group.create_task(appender(log))
        elapsed = time.perf_counter() - start
        self._files.delay_seconds = 0
        self.latencies[delay_ms] += latencies
        return len(latencies) / elapsed


async def many_partitions(run: Run) -> list[Section]:
    seconds, rounds = run.pick(4, 2), run.pick(3, 1)
    section = Section(
        title=f"{PARTITIONS:,} active partitions, 1 KiB appends",
        note="One append in flight on each partition. The delay is added to every fdatasync. 'direct' syncs"
        f" every segment by itself, 16 at a time. {rounds} slices of {seconds} s each, in turn.",
        columns=("delay of a sync", "way", "appends/s", "p50 ms", "p99 ms", "largest ms"),
    )
    batch = batch_of_size(KIB)
    with run.place("many") as place:
        async with AsyncExitStack() as stack:
            ways: dict[str, ManyPartitions] = {}
            for name in ("journal", "direct"):
                files = SlowSyncFiles()
                engine = await stack.enter_async_context(engine_at(place / name, files=files))
                if name == "direct":
                    engine.journal_off()
                ways[name] = ManyPartitions(engine, files, batch)
                await engine.settled()
            sides: dict[str, Slice] = {
                f"{delay} {name}": _bound(way.slice, delay, seconds)
                for delay in SYNC_DELAYS_MS
                for name, way in ways.items()
            }
            samples = await interleaved(sides, rounds)
    for delay in SYNC_DELAYS_MS:
        for name, way in ways.items():
            taken = sorted(way.latencies[delay])
            section.rows.append(
                (
                    f"{delay} ms",
                    name,
                    samples.median(f"{delay} {name}"),
                    statistics.median(taken) * 1000,
                    taken[int(len(taken) * 0.99)] * 1000,
                    taken[-1] * 1000,
                )
            )
    return [section]


def _bound(call: Callable[[int, float], Awaitable[float]], delay_ms: int, seconds: float) -> Slice:
    return lambda: call(delay_ms, seconds)


class FreshLogs:
    """Appends to a new log, with and without preallocation."""

    def __init__(self, engine: Engine, batch: bytes, appends: int) -> None:
        self._engine = engine
        self._batch = batch
        self._appends = appends
        self._numbers = count()

    async def without(self) -> float:
        return await self._slice(preallocate=False)

    async def preallocated(self) -> float:
        return await self._slice(preallocate=True)

    async def _slice(self, *, preallocate: bool) -> float:
        log = self._engine.create("new", next(self._numbers), preallocate=preallocate)
        await self._engine.append(log, self._batch)
        return await appends_per_second(self._engine, [log], self._batch, self._appends)


async def preallocation(run: Run) -> list[Section]:
    rounds = run.pick(9, 3)
    section = Section(
        title="preallocated segments",
        note="segment.bytes 256 MiB, a new log for each slice, whose creation is not counted."
        f" {rounds} slices each, in turn.",
        columns=("appends", "off", "on", "unit", "on / off"),
    )
    large, small = batch_of_size(MIB), batch_of_size(KIB)
    cases = {
        "1 MiB": (large, run.pick(64, 16), MIB / MB, "MB/s", False),
        "1 KiB, direct": (small, run.pick(600, 200), 1.0, "appends/s", True),
        "1 KiB, journal": (small, run.pick(600, 200), 1.0, "appends/s", False),
    }
    for name, (batch, appends, factor, unit, direct) in cases.items():
        with run.place("preallocation") as place:
            async with engine_at(place, topic={"segment_bytes": 256 * MIB}) as engine:
                if direct:
                    engine.journal_off()
                fresh = FreshLogs(engine, batch, appends)
                samples = await interleaved({"off": fresh.without, "on": fresh.preallocated}, rounds)
        off, on = samples.median("off") * factor, samples.median("on") * factor
        section.rows.append((name, off, on, unit, samples.ratio("on", "off")))
    return [section]
