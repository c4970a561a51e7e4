"""Starting and keeping house: opening, recovery after a crash, compaction, retention."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from slow_sync import UnsyncedFiles
from support import KIB, MB, MIB, Engine, Run, Section, Stopwatch, batch_of_size, engine_at, now_ms

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.storage.cleaner import clean, discard
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.files import OsFiles
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.upkeep import assess_log, clean_job

READY = "ready"


async def clean_open(run: Run) -> list[Section]:
    rounds = run.pick(5, 2)
    section = Section(
        title="opening a cleanly closed directory",
        note="LogManager.open in a process that runs already, files in the page cache, median of"
        f" {rounds}. Handles: open after opening, and after one append to each log.",
        columns=(
            "partitions",
            "segments each",
            "CPU s",
            "wall s",
            "ms a log",
            "handles",
            "after appends",
            "limit",
        ),
    )
    batch = batch_of_size(KIB)
    for partitions, segments in ((2_000, 1), (run.pick(2_000, 200), 10)):
        with run.place("open") as place:
            topic = {"segment_bytes": 4 * KIB}
            async with engine_at(place, files=UnsyncedFiles(), topic=topic) as engine:
                for number in range(partitions):
                    log = engine.create("log", number)
                    for _ in range(4 * segments - 1):  # The last segment has room for one more.
                        engine.append(log, batch)
                    if number % 100 == 99:
                        await engine.settled()
            os.sync()
            watches: list[Stopwatch] = []
            for _ in range(rounds):
                with Stopwatch() as watch:
                    engine = Engine(place, topic=topic)
                report = engine.report.directories[str(place)]
                assert report.clean, "not closed cleanly"
                assert report.logs == partitions, f"{report.logs} logs"
                watches.append(watch)
                at_open = engine.manager.handles.open_count
                await engine.close()
            engine = Engine(place, topic=topic)
            await asyncio.gather(*(engine.append(log, batch) for log in engine.manager.logs.values()))
            at_append, limit = engine.manager.handles.open_count, engine.manager.handles.limit
            await engine.close()
        cpu = statistics.median(watch.cpu for watch in watches)
        wall = statistics.median(watch.wall for watch in watches)
        section.rows.append(
            (partitions, segments, cpu, wall, cpu / partitions * 1000, at_open, at_append, limit)
        )
        if segments == 1:
            section.at_most(f"{partitions:,} partitions, CPU", cpu, 1.0, " s")
        section.at_most(f"{segments} segments each, handles after an append to each", at_append, limit)
    return [section, await _create_and_close(run)]


async def _create_and_close(run: Run) -> Section:
    logs, rounds = run.pick(300, 100), run.pick(3, 1)
    section = Section(
        title="creating logs, and closing the directory after a write to each",
        note=f"{logs} logs in a new directory, median of {rounds}. Created: found after a power loss. Closed:"
        " recovery points saved and everything synced, so that the next start reads nothing.",
        columns=("what", "wall ms a log", "CPU ms a log"),
    )
    batch = batch_of_size(KIB)
    watches: dict[str, list[Stopwatch]] = {"create": [], "first append to each, at once": [], "close": []}
    for _ in range(rounds):
        with run.place("create") as place:
            engine = Engine(place)
            with Stopwatch() as creating:
                made = [engine.create("log", number) for number in range(logs)]
                await engine.settled()
            with Stopwatch() as appending:
                await asyncio.gather(*(engine.append(log, batch) for log in made))
            with Stopwatch() as closing:
                await engine.close()
            for found, watch in zip(watches.values(), (creating, appending, closing), strict=True):
                found.append(watch)
    for name, found in watches.items():
        wall = statistics.median(watch.wall for watch in found) / logs * 1000
        cpu = statistics.median(watch.cpu for watch in found) / logs * 1000
        section.rows.append((name, wall, cpu))
    return section


# Recovery.


class CrashCase(NamedTuple):
    log_mib: int
    tail_mib: int
    batch_bytes: int

    def arguments(self) -> list[str]:
        return [str(value) for value in self]


async def write_and_wait_for_death(place: Path, case: CrashCase) -> None:
    """In a process of its own: a log, a checkpoint, a tail behind it; then the parent kills us.

    Syncs are left out, because after kill -9 the page cache is all there is anyway.
    """
    engine = Engine(place, files=UnsyncedFiles(), topic={"segment_bytes": 128 * MIB})
    log = engine.create("log")
    batch = batch_of_size(case.batch_bytes)
    await engine.fill(log, batch, (case.log_mib - case.tail_mib) * MIB)
    done = asyncio.Event()
    log.files.checkpoint(lambda: engine.directory.save_checkpoint(done.set))
    await done.wait()
    # So little at a time that small batches go through the journal; large ones never do.
    await engine.fill(log, batch, case.tail_mib * MIB, unacknowledged=64 * KIB)
    await engine.settled()
    print(READY, flush=True)
    await asyncio.Event().wait()


def _crash(place: Path, case: CrashCase) -> None:
    program = str(Path(__file__).with_name("storage.py"))
    writer = subprocess.Popen(
        [sys.executable, program, "--crash-writer", str(place), *case.arguments()],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    said = writer.stdout.readline().strip()
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    if said != READY:
        sys.exit("the process that prepares the recovery ended early; its error stands above")


def _small_files(place: Path) -> dict[Path, bytes]:
    """What a recovery writes: everything but the segments."""
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file() and path.suffix != ".log"}


def _restore(place: Path, saved: dict[Path, bytes]) -> None:
    for path in _small_files(place).keys() - saved.keys():
        path.unlink()
    for path, data in saved.items():
        path.write_bytes(data)


async def recovery(run: Run) -> list[Section]:
    rounds = run.pick(5, 2)
    section = Section(
        title="recovery after kill -9",
        note=f"LogManager.open after a process was killed, files in the page cache, median of {rounds}. The"
        " tail is what was written after the last checkpoint. Batches of 1 KiB went through the journal, in"
        " groups of 64: they are written back from there before the scan.",
        columns=(
            "log MiB",
            "tail MiB",
            "batches",
            "scanned MiB",
            "redone writes",
            "wall s",
            "CPU s",
            "tail MB/s",
        ),
    )
    large = run.pick(1024, 512)
    cases = [
        CrashCase(256, 32, MIB),
        CrashCase(large, 32, MIB),
        CrashCase(large, 128, MIB),
        CrashCase(64, 8, KIB),
        CrashCase(run.pick(256, 128), 8, KIB),
        CrashCase(64, 32, KIB),
    ]
    walls: dict[CrashCase, float] = {}
    for case in cases:
        with run.place("recovery") as place:
            await asyncio.to_thread(_crash, place, case)
            saved = _small_files(place)
            os.sync()
            watches: list[Stopwatch] = []
            for _ in range(rounds):
                _restore(place, saved)
                os.sync()
                with Stopwatch() as watch:
                    engine = Engine(place, topic={"segment_bytes": 128 * MIB})
                report = engine.report.directories[str(place)]
                assert not report.clean and not engine.report.corrupt, f"{engine.report}"
                (log,) = engine.manager.logs.values()
                assert log.end_offset, "nothing was recovered"
                watches.append(watch)
                await engine.close()
        walls[case] = wall = statistics.median(watch.wall for watch in watches)
        cpu = statistics.median(watch.cpu for watch in watches)
        kind = "1 MiB" if case.batch_bytes == MIB else "1 KiB"
        scanned = report.scanned_bytes / MIB
        rate = case.tail_mib * MIB / MB / wall
        section.rows.append(
            (case.log_mib, case.tail_mib, kind, scanned, report.redone_writes, wall, cpu, rate)
        )
    section.at_most("1 MiB batches: large log / small log, same tail", walls[cases[1]] / walls[cases[0]], 1.5)
    section.at_most("1 KiB batches: large log / small log, same tail", walls[cases[4]] / walls[cases[3]], 1.5)
    section.at_most("1 MiB batches: four times the tail", walls[cases[2]] / walls[cases[1]], 5)
    section.at_most("1 KiB batches: four times the tail", walls[cases[5]] / walls[cases[3]], 5)
    return [section]


# Cleaning.


def _keyed_batches(value_size: int, keys: int, count: int) -> list[bytes]:
    """Some different batches of 1,000 records with random keys."""
    rng = random.Random(3)
    return [
        encode_batch(
            keys=[b"%010d" % rng.randrange(keys) for _ in range(1_000)],
            values=[rng.randbytes(value_size) for _ in range(1_000)],
            timestamps=now_ms(),
        )
        for _ in range(count)
    ]


async def _build_keyed(engine: Engine, value_size: int, keys: int, size: int) -> Log:
    log = engine.create("log", cleanup_policy=("compact",))
    batches = _keyed_batches(value_size, keys, min(400, size // (value_size * 1000)))
    number = 0
    while log.size < size:
        wait = engine.append(log, batches[number % len(batches)])
        number += 1
        if number % 64 == 0:
            await wait
    log.roll(now_ms=now_ms())
    await engine.settled()
    log.advance_high_watermark(log.end_offset)
    return log


async def compaction(run: Run) -> list[Section]:
    rounds = run.pick(3, 1)
    size = run.pick(256, 64) * MIB
    section = Section(
        title="compaction",
        note=f"One cleaning of a log of {size // MIB} MiB in segments of 64 MiB, batches of 1,000 records"
        f" with random 10-byte keys, no budget, not swapped in; median of {rounds}. MB/s of log, which both"
        " passes read.",
        columns=("values", "keys", "kept", "wall s", "CPU s", "MB/s", "us CPU a record"),
    )
    no_budget = Throttle(float("inf"), clock=time.monotonic, sleep=time.sleep)
    for value_size, keys in ((100, 100_000), (100, 1_000_000), (1_000, 100_000)):
        with run.place("compaction") as place:
            topic: dict[str, Any] = {"segment_bytes": 64 * MIB, "max_message_bytes": 2 * MIB}
            async with engine_at(
                place, files=UnsyncedFiles(), topic=topic, log_cleaner_enable=False
            ) as engine:
                log = await _build_keyed(engine, value_size, keys, size)
                os.sync()
                watches: list[Stopwatch] = []
                job = clean_job(
                    log,
                    assess_log(log, now_ms=now_ms()),
                    now_ms=now_ms(),
                    key_map_bytes=512 * MIB,
                    chunk_bytes=MIB,
                )
                for _ in range(rounds):
                    with Stopwatch() as watch:
                        result = await asyncio.to_thread(clean, job, OsFiles(), no_budget)
                    watches.append(watch)
                    assert result is not None, "the cleaning was cancelled"
                    assert not result.map_was_full, "the keys did not fit"
                    stats = result.stats
                    discard(OsFiles(), log.directory, result)
        wall = statistics.median(watch.wall for watch in watches)
        cpu = statistics.median(watch.cpu for watch in watches)
        records = stats.records_kept + stats.records_dropped
        kept = f"{stats.records_kept / records:.0%}"
        section.rows.append(
            (f"{value_size} bytes", keys, kept, wall, cpu, size / MB / wall, cpu / records * 1e6)
        )
    return [section, await _retention(run)]


async def _retention(run: Run) -> Section:
    segments = run.pick(4_000, 500)
    section = Section(
        title="retention",
        note="All closed segments of a log expire at once, after a restart. The owner thread decides (and"
        " does nothing else meanwhile), the writer renames the files, and removes them after their delay.",
        columns=("segments", "owner ms", "us a segment", "renamed after ms", "removed after ms"),
    )
    topic = {"segment_bytes": 4 * KIB, "flush": "os", "retention_bytes": 1, "file_delete_delay_ms": 0}
    with run.place("retention") as place:
        async with engine_at(place, files=UnsyncedFiles(), topic=topic) as engine:
            await engine.fill(engine.create("log"), batch_of_size(KIB), segments * 4 * KIB)
        os.sync()
        async with engine_at(place, topic=topic) as engine:
            (log,) = engine.manager.logs.values()
            log.advance_high_watermark(log.end_offset)
            start = time.perf_counter()
            removed = engine.manager.enforce_retention(now_ms())
            decided = time.perf_counter()
            await engine.settled()
            renamed = time.perf_counter()
            engine.directory.now_ms = now_ms()
            engine.directory.remove_due()
            await engine.settled()
            gone = time.perf_counter()
    owner = (decided - start) * 1000
    section.rows.append(
        (removed, owner, owner / removed * 1000, (renamed - start) * 1000, (gone - renamed) * 1000)
    )
    return section
