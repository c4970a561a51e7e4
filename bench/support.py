"""What the benchmarks of the storage engine share: the engine on real files, slices in turn, tables.

A *side* is a way of doing something, measured in short slices that take turns with those of the other sides,
each round beginning with another one. So whatever the disk or the machine does meanwhile hits all sides
alike; medians and ratios of slices of the same round are what counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import json
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table as RichTable

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import ThreadBlocking
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.directory import LogDirectory
from tailrace.cluster.storage.files import Files, OsFiles
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.manager import LogManager, OpenReport

KIB = 1 << 10
MIB = 1 << 20
MB = 1_000_000
UNACKNOWLEDGED_BYTES = 32 * MIB

Cell = str | int | float | None
Slice = Callable[[], Awaitable[float]]


# Results.


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A measured number with its target; `at_least` says on which side of it the number should be."""

    what: str
    value: float
    target: float
    unit: str
    at_least: bool

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        verdict = "met" if self.met else "MISSED"
        value, target = shown(self.value), shown(self.target)
        return f"{self.what}: {value}{self.unit}, target {bound} {target}{self.unit}: {verdict}"


@dataclass(slots=True, kw_only=True)
class Section:
    title: str
    note: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def at_least(self, what: str, value: float, target: float, unit: str = "") -> None:
        self.checks.append(Check(what=what, value=value, target=target, unit=unit, at_least=True))

    def at_most(self, what: str, value: float, target: float, unit: str = "") -> None:
        self.checks.append(Check(what=what, value=value, target=target, unit=unit, at_least=False))

    def print_to(self, console: Console) -> None:
        console.print(self.title, style="bold", highlight=False)
        console.print(self.note, style="dim", highlight=False)
        table = RichTable()
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in self.rows:
            table.add_row(*map(shown, row))
        console.print(table)
        for check in self.checks:
            console.print(f"  {check}", style="green" if check.met else "bold red", highlight=False)
        console.print()

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", self.note, ""]
        lines.append("| " + " | ".join(self.columns) + " |")
        lines.append("|---|" + "---:|" * (len(self.columns) - 1))
        lines += ["| " + " | ".join(map(shown, row)) + " |" for row in self.rows]
        lines += ["", *(f"- {check}" for check in self.checks)] if self.checks else []
        return "\n".join(lines) + "\n"

    def document(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "note": self.note,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "checks": [dataclasses.asdict(check) | {"met": check.met} for check in self.checks],
        }


def shown(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_json(path: Path, environment: Mapping[str, Any], sections: Mapping[str, Sequence[Section]]) -> None:
    document = {
        "environment": environment,
        "sections": {name: [one.document() for one in found] for name, found in sections.items()},
    }
    path.write_text(json.dumps(document, indent=2) + "\n")


def put_markdown(path: Path, name: str, text: str) -> None:
    """Put `text` between the marks of `name` in a document, or at its end with marks of its own."""
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    document = path.read_text() if path.exists() else ""
    if first not in document:
        document += f"\n{first}\n{last}\n"
    before, rest = document.split(first, 1)
    _, after = rest.split(last, 1)
    path.write_text(f"{before}{first}\n{text.strip()}\n{last}{after}")


# Measuring.


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the program: where it may write, and how long it may take."""

    directory: Path
    quick: bool

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextlib.contextmanager
    def place(self, name: str) -> Any:
        """A directory that is new and gone afterwards."""
        path = self.directory / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path)


class Samples(dict[str, list[float]]):
    """What each side measured in each round."""

    def median(self, side: str) -> float:
        return statistics.median(self[side])

    def ratio(self, side: str, base: str) -> float:
        """The median of the ratios within the rounds."""
        return statistics.median(one / other for one, other in zip(self[side], self[base], strict=True))


async def interleaved(sides: Mapping[str, Slice], rounds: int) -> Samples:
    """Let the sides take turns, after a round that does not count."""
    samples = Samples({name: [] for name in sides})
    names = list(sides)
    for turn in range(rounds + 1):
        for name in names:
            value = await sides[name]()
            if turn:
                samples[name].append(value)
        names = [*names[1:], names[0]]
        gc.collect()
    return samples


class Stopwatch:
    """Wall and processor seconds of a `with` block; the latter of all threads of this process."""

    wall = 0.0
    cpu = 0.0

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu


# The engine.


def now_ms() -> int:
    return time.time_ns() // MB


def batch_of_size(size: int) -> bytes:
    """A batch that takes exactly `size` bytes: one record of random bytes, as the engine looks no further."""
    overhead = len(encode_batch(values=[bytes(size)], timestamps=now_ms())) - size
    batch = encode_batch(values=[os.urandom(size - overhead)], timestamps=now_ms())
    assert len(batch) == size, f"the batch has {len(batch)} bytes instead of {size}"
    return batch


class Engine:
    """The storage engine as a node runs it: real files, real threads, an event loop as the owner."""

    def __init__(
        self,
        path: Path,
        *,
        files: Files | None = None,
        topic: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.config = StorageConfig(log_dir=str(path), **settings)
        self.topic: TopicConfig = dataclasses.replace(self.config.topic_defaults(), **(topic or {}))
        self.blocking = ThreadBlocking(post=self.loop.call_soon_threadsafe)
        self.manager = LogManager(
            config=self.config,
            files=files if files is not None else OsFiles(),
            blocking=self.blocking,
            throttle=Throttle(float("inf"), clock=time.monotonic, sleep=time.sleep),
            topic_config=lambda topic: self.topic,
        )
        self.report: OpenReport = self.manager.open(now_ms=now_ms())

    @property
    def directory(self) -> LogDirectory:
        return self.manager.directories[0]

    def create(self, topic: str, partition: int = 0, **overrides: Any) -> Log:
        config = dataclasses.replace(self.topic, **overrides)
        partition_id = TopicPartition(topic, partition)
        return self.manager.create(partition_id, UUID(bytes=os.urandom(16)), config, now_ms=now_ms())

    def journal_off(self) -> None:
        """Every append straight into its segment. The setting has a lower bound, so not by the setting."""
        self.directory.writer._direct_bytes = 0

    def append(self, log: Log, batch: bytes) -> asyncio.Future[None]:
        """Done when the batch may be acknowledged."""
        done: asyncio.Future[None] = self.loop.create_future()

        def durable(error: TailraceError | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        log.append_as_leader(batch, leader_epoch=0, now_ms=now_ms())
        log.when_durable(log.end_offset, durable)
        return done

    async def fill(
        self, log: Log, batch: bytes, size: int, *, unacknowledged: int = UNACKNOWLEDGED_BYTES
    ) -> None:
        """Append `size` bytes, with so many on their way at a time."""
        window = max(1, unacknowledged // len(batch))
        count = size // len(batch)
        for first in range(0, count, window):
            waits = [self.append(log, batch) for _ in range(min(window, count - first))]
            await waits[-1]

    async def settled(self) -> None:
        """Everything queued so far has been done."""
        done = asyncio.Event()
        self.directory.writer.queue_call(lambda: None, done.set)
        await done.wait()

    async def close(self) -> None:
        closed = asyncio.Event()
        self.manager.close(closed.set)
        await closed.wait()
        await asyncio.to_thread(self.blocking.close)


@contextlib.asynccontextmanager
async def engine_at(
    path: Path, *, files: Files | None = None, topic: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Engine]:
    """An engine that ticks once a second, closed cleanly afterwards."""
    engine = Engine(path, files=files, topic=topic, **settings)

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            engine.manager.tick(now_ms())

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        try:
            yield engine
        finally:
            ticking.cancel()
            await engine.close()
