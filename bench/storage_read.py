"""Reading: sequentially, and by offset in logs of few and of many segments."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from slow_sync import UnsyncedFiles
from support import KIB, MB, MIB, Engine, Run, Section, Slice, batch_of_size, engine_at, interleaved

from tailrace.cluster.storage.log import Log

BATCHES_A_SEGMENT = 16
FEW, MANY = 10, 10_000


def _bare_read(path: Path) -> float:
    """Megabytes a second of plain preads over the file."""
    fd = os.open(path, os.O_RDONLY)
    try:
        start = time.perf_counter()
        position = 0
        while data := os.pread(fd, MIB, position):
            position += len(data)
        return position / MB / (time.perf_counter() - start)
    finally:
        os.close(fd)


def _engine_read(log: Log) -> float:
    start = time.perf_counter()
    offset, total = 0, 0
    while offset < log.end_offset:
        data, offset = log.read(offset, max_bytes=MIB)
        total += len(data)
    assert total == log.size, f"{total} bytes read of {log.size}"
    return total / MB / (time.perf_counter() - start)


class Passes:
    """Both ways to read the only segment of a log from its beginning to its end."""

    def __init__(self, log: Log, *, cold: bool) -> None:
        self._log = log
        self._path = Path(log.active.path)
        self._cold = cold

    async def bare(self) -> float:
        if self._cold:
            _drop_cached(self._path)
        return _bare_read(self._path)

    async def engine(self) -> float:
        if self._cold:
            _drop_cached(self._path)
        return _engine_read(self._log)


def _drop_cached(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


async def sequential_read(run: Run) -> list[Section]:
    rounds = run.pick(15, 5)
    section = Section(
        title="sequential read in chunks of 1 MiB",
        note="log.read with max_bytes = 1 MiB from the first offset to the last, against os.pread of 1 MiB"
        f" over the same file. {rounds} passes each, in turn; 'cold': dropped from the page cache before.",
        columns=("log", "bare MB/s", "engine MB/s", "of bare"),
    )
    cases = (
        ("1 MiB batches", MIB, run.pick(512, 128) * MIB, False),
        ("1 KiB batches", KIB, run.pick(64, 16) * MIB, False),
        ("1 MiB batches, cold", MIB, run.pick(512, 128) * MIB, True),
    )
    for name, batch_size, size, cold in cases:
        with run.place("read") as place:
            async with engine_at(place, topic={"flush": "os"}) as engine:
                log = engine.create("log")
                await engine.fill(log, batch_of_size(batch_size), size)
                await engine.settled()
                os.sync()
                passes = Passes(log, cold=cold)
                sides: dict[str, Slice] = {"bare": passes.bare, "engine": passes.engine}
                samples = await interleaved(sides, min(rounds, 5) if cold else rounds)
        ratio = samples.ratio("engine", "bare")
        section.rows.append((name, samples.median("bare"), samples.median("engine"), ratio))
        section.at_least(f"{name}, of bare", ratio, 0.85)
    return [section]


async def _build_segments(engine: Engine, segments: int) -> None:
    log = engine.create("log", segments)
    await engine.fill(log, batch_of_size(KIB), segments * BATCHES_A_SEGMENT * KIB)
    assert len(log.segments) == segments, f"{len(log.segments)} segments instead of {segments}"


class Lookups:
    """Reads of one batch at random offsets within the last `window` segments of a log."""

    def __init__(self, log: Log, window: int, count: int) -> None:
        self._log = log
        self._first = log.bases[-window]
        self._random = random.Random(1)
        self._count = count

    async def microseconds(self) -> float:
        offsets = [self._random.randrange(self._first, self._log.end_offset) for _ in range(self._count)]
        read = self._log.read
        start = time.perf_counter()
        for offset in offsets:
            read(offset, max_bytes=1)
        return (time.perf_counter() - start) / self._count * 1e6


def _first_lookups(log: Log, count: int) -> float:
    """Microseconds for the first look into a segment, whose index must be loaded."""
    bases = random.Random(2).sample(log.bases[:-1], min(count, len(log.bases) - 1))
    start = time.perf_counter()
    for base in bases:
        log.read(base + BATCHES_A_SEGMENT // 2, max_bytes=1)
    return (time.perf_counter() - start) / len(bases) * 1e6


async def offset_lookup(run: Run) -> list[Section]:
    few, many = FEW, run.pick(MANY, 2_000)
    rounds, count = run.pick(9, 3), run.pick(2_000, 500)
    section = Section(
        title=f"offset lookup in {many:,} segments and in {few}",
        note="log.read of one 1 KiB batch at a random offset, segments of 16 batches, everything in the page"
        f" cache. Warm: indexes loaded. {rounds} slices of {count:,} lookups each, in turn. In the second row"
        " log.max.open.files is 512, so that most lookups open their segment.",
        columns=("lookup", f"{few} segments, us", f"{many:,} segments, us", "many / few"),
    )
    topic = {"segment_bytes": BATCHES_A_SEGMENT * KIB, "flush": "os"}
    with run.place("lookup") as place:
        async with engine_at(place, files=UnsyncedFiles(), topic=topic) as engine:
            await _build_segments(engine, few)
            await _build_segments(engine, many)
        os.sync()
        for limit, title in ((2 * many, "warm, segments open"), (512, "warm, 512 files open")):
            async with engine_at(place, log_max_open_files=limit, topic=topic) as engine:
                logs = {log.topic_partition.partition: log for log in engine.manager.logs.values()}
                cold = [_first_lookups(logs[few], few), _first_lookups(logs[many], count)]
                for segment in logs[many].segments:
                    assert len(segment.index), "an index without entries"
                    segment.read(0, 1)
                windows: dict[str, Slice] = {
                    "few": Lookups(logs[few], few, count).microseconds,
                    "many": Lookups(logs[many], many, count).microseconds,
                    "end": Lookups(logs[many], few, count).microseconds,
                }
                samples = await interleaved(windows, rounds)
            ratio = samples.ratio("many", "few")
            section.rows.append((title, samples.median("few"), samples.median("many"), ratio))
            section.at_most(f"{title}, many / few", ratio, 2)
        ratio = samples.ratio("end", "few")
        section.rows.append(
            (f"warm, in the last {few} segments", samples.median("few"), samples.median("end"), ratio)
        )
        section.at_most(f"warm, in the last {few} segments, many / few", ratio, 2)
        section.rows.append(("first in a segment (index is loaded)", *cold, cold[1] / cold[0]))
    return [section]
