"""Random histories of a storage engine, with what they promise: drives an engine and keeps the books.

A `History` repeats byte for byte from its seed, so a test can run it once to count the steps of its file
system and then once for each step, cutting the power there. `Books` know, at every moment, what may be
found after a crash: every acknowledged record, nothing that was never appended, and after a truncation
either the old or the new log until the truncation is durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.log import Log
from tests.support.engine import Engine, batch_of, end_transaction

SMALL = StorageConfig(
    log_dir="/data",
    journal_bytes=16 * 1024,
    journal_max_append_bytes=700,
    log_checkpoint_interval_ms=3000,
    log_retention_check_interval_ms=5000,
    num_recovery_threads_per_data_dir=1,
)
PLAIN = TopicConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=1000)

Record = tuple[int, bytes | None]


@dataclass
class Version:
    """A log's records as appended, between two truncations; `acked` is the end of what was promised."""

    records: dict[int, bytes | None] = field(default_factory=dict)
    acked: int = 0


@dataclass
class Books:
    """What may be found of one log."""

    topic_id: UUID
    versions: list[Version] = field(default_factory=lambda: [Version()])
    start_promised: int = 0
    start_asked: int = 0
    exists_promised: bool = False

    @property
    def latest(self) -> Version:
        return self.versions[-1]

    def promise_nothing(self) -> None:
        """Under flush=os a power cut may take whatever was not synced yet."""
        self.exists_promised = False
        for version in self.versions:
            version.acked = 0

    def appended(self, base: int, values: list[bytes | None]) -> Version:
        version = self.latest
        version.records.update(zip(range(base, base + len(values)), values, strict=True))
        return version

    def marker(self, offset: int) -> Version:
        return self.latest

    def truncated(self, end: int) -> Callable[[], None]:
        """A truncation begins; the returned call says that it is durable."""
        old = self.latest
        kept = {offset: value for offset, value in old.records.items() if offset < end}
        new = Version(kept, min(old.acked, end))
        for version in self.versions:
            version.acked = min(version.acked, end)
        self.versions.append(new)

        def done() -> None:
            if new in self.versions:
                del self.versions[: self.versions.index(new)]

        return done

    def acknowledge(self, version: Version, end: int) -> None:
        if version is self.latest:
            version.acked = max(version.acked, end)
            self.exists_promised = True


class History:
    """`steps` operations on a few logs; `run` raises PowerLost when the file system does."""

    def __init__(self, files: Files, seed: int, *, steps: int, topic: TopicConfig = PLAIN) -> None:
        self.rng = Random(seed)
        self.files = files
        self.steps = steps
        self.topic = topic
        self.books: dict[TopicPartition, Books] = {}
        self.trace: list[str] = []
        self.engine: Engine | None = None
        self._serial = 0
        self._sequences: dict[tuple[TopicPartition, int], int] = {}
        self._open: dict[TopicPartition, dict[int, int]] = {}
        self._epochs: dict[tuple[TopicPartition, int], int] = {}
        self._leader_epoch = 0
        self._next_topic_id = 100

    def run(self) -> None:
        self.engine = Engine(self.files, config=SMALL, topic=self.topic)
        for _ in range(self.steps):
            self.step()
        self.engine.drain()

    def step(self) -> None:
        operations: list[tuple[int, Callable[[], None]]] = [
            (40, self.append),
            (8, self.append_in_transaction),
            (6, self.end_transaction),
            (5, self.repeat_append),
            (20, self.run_some_jobs),
            (10, self.tick),
            (4, self.truncate),
            (3, self.delete_records),
            (2, self.restart_cleanly),
            (2, self.delete_topic),
            (2, self.new_leader_epoch),
        ]
        weights = [weight for weight, _ in operations]
        operation = self.rng.choices([call for _, call in operations], weights)[0]
        self.trace.append(operation.__name__)
        operation()

    # What the operations work on.

    @property
    def current(self) -> Engine:
        assert self.engine is not None
        return self.engine

    def pick(self) -> tuple[Log, Books]:
        partition = TopicPartition("orders", self.rng.randrange(3))
        if partition not in self.books:
            self._next_topic_id += 1
            self.books[partition] = Books(UUID(int=self._next_topic_id))
        books = self.books[partition]
        return self.current.log(partition, books.topic_id), books

    def value(self) -> bytes:
        self._serial += 1
        size = self.rng.choice([5, 40, 300, 900])
        return b"%d:" % self._serial + self.rng.randbytes(size)

    # Operations.

    def append(self) -> None:
        log, books = self.pick()
        values: list[bytes | None] = [self.value() for _ in range(self.rng.randint(1, 3))]
        producer = self.rng.choice([None, 1, 2])
        if producer is None or producer in self._open.get(log.topic_partition, {}):
            self._append(log, books, values, (-1, -1, -1))
        else:
            key = (log.topic_partition, producer)
            sequence = self._sequences.get(key, 0)
            self._append(log, books, values, (producer, self._epochs.get(key, 0), sequence))
            self._sequences[key] = sequence + len(values)

    def repeat_append(self) -> None:
        """An idempotent producer sends a batch twice: the second must change nothing."""
        log, books = self.pick()
        key = (log.topic_partition, 1)
        if 1 in self._open.get(log.topic_partition, {}):
            return
        sequence = self._sequences.get(key, 0)
        values: list[bytes | None] = [self.value()]
        producer = (1, self._epochs.get(key, 0), sequence)
        first = self._append(log, books, values, producer)
        self._sequences[key] = sequence + 1
        batch = batch_of(*values, producer=producer)
        again = log.append_as_leader(batch, leader_epoch=self._leader_epoch, now_ms=self.current.now_ms)
        assert again.duplicate
        assert again.base_offset == first

    def _append(
        self,
        log: Log,
        books: Books,
        values: list[bytes | None],
        producer: tuple[int, int, int],
        transactional: bool = False,
    ) -> int:
        batch = batch_of(*values, producer=producer, transactional=transactional)
        appended = log.append_as_leader(batch, leader_epoch=self._leader_epoch, now_ms=self.current.now_ms)
        version = books.appended(appended.base_offset, values)
        self._await(log, books, version, appended.last_offset + 1)
        log.advance_high_watermark(self.rng.randint(log.high_watermark, log.durable_end))
        return appended.base_offset

    def _await(self, log: Log, books: Books, version: Version, end: int) -> None:
        def told(error: TailraceError | None) -> None:
            if error is None:
                books.acknowledge(version, end)

        log.when_durable(end, told)

    def append_in_transaction(self) -> None:
        log, books = self.pick()
        partition = log.topic_partition
        producer = self.rng.choice([11, 12])
        key = (partition, producer)
        sequence = self._sequences.get(key, 0)
        values: list[bytes | None] = [self.value()]
        self._append(log, books, values, (producer, self._epochs.get(key, 0), sequence), True)
        self._sequences[key] = sequence + 1
        self._open.setdefault(partition, {}).setdefault(producer, 0)

    def end_transaction(self) -> None:
        log, books = self.pick()
        open_here = self._open.get(log.topic_partition, {})
        if not open_here:
            return
        producer = self.rng.choice(sorted(open_here))
        key = (log.topic_partition, producer)
        if self._leader_epoch:
            return  # Markers of the support code carry leader epoch 0.
        epoch = self._epochs.get(key, 0)
        appended = end_transaction(log, producer, commit=self.rng.random() < 0.5, producer_epoch=epoch)
        self._await(log, books, books.marker(appended.base_offset), appended.last_offset + 1)
        del open_here[producer]
        self._epochs[key] = epoch + 1
        self._sequences[key] = 0

    def run_some_jobs(self) -> None:
        if self.rng.random() < 0.5:
            self.current.drain()
        else:
            for _ in range(self.rng.randint(1, 3)):
                self.current.blocking.run_one()

    def tick(self) -> None:
        engine = self.current
        engine.now_ms += self.rng.choice([500, 3000, 6000])
        engine.manager.tick(engine.now_ms)

    def truncate(self) -> None:
        log, books = self.pick()
        if log.end_offset == log.log_start_offset:
            return
        offset = self.rng.randint(max(log.high_watermark, log.log_start_offset), log.end_offset)
        probe = log.end_offset
        done: list[Callable[[], None]] = []

        def durable(error: TailraceError | None) -> None:
            for call in done if error is None else ():
                call()

        end = log.truncate_to(offset, now_ms=self.current.now_ms, done=durable)
        if end < probe:
            done.append(books.truncated(end))
        self._forget_producers(log)

    def _forget_producers(self, log: Log) -> None:
        """Go on where the log now says that each producer stands."""
        partition = log.topic_partition
        for key in [key for key in self._sequences if key[0] == partition]:
            del self._sequences[key]
        for key in [key for key in self._epochs if key[0] == partition]:
            del self._epochs[key]
        self._open[partition] = {}
        for one in log.producers.describe():
            key = (partition, one.producer_id)
            self._epochs[key] = one.producer_epoch
            self._sequences[key] = one.last_sequence + 1 if one.last_sequence >= 0 else 0
            if one.transaction_start_offset >= 0:
                self._open[partition][one.producer_id] = 0
            elif one.producer_id >= 11:
                self._epochs[key] += 1
                self._sequences[key] = 0

    def delete_records(self) -> None:
        log, books = self.pick()
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        books.start_asked = max(books.start_asked, offset)

        def done(error: TailraceError | None) -> None:
            if error is None:
                books.start_promised = max(books.start_promised, offset)

        log.delete_records(offset, done)

    def new_leader_epoch(self) -> None:
        self._leader_epoch += 1

    def restart_cleanly(self) -> None:
        engine = self.current
        engine.drain()
        engine.close()
        self.engine = Engine(self.files, config=SMALL, topic=self.topic, now_ms=engine.now_ms)
        assert self.engine.report.directories["/data"].clean
        assert not self.engine.report.corrupt

    def delete_topic(self) -> None:
        partition = TopicPartition("orders", self.rng.randrange(3))
        if self.current.manager.get(partition) is None:
            return
        self.current.manager.delete(partition)
        del self.books[partition]
        self._open.pop(partition, None)
        for table in (self._sequences, self._epochs):
            for key in [key for key in table if key[0] == partition]:
                del table[key]
