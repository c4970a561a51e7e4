"""A storage engine on a file system with faults, driven step by step on one thread."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from uuid import UUID

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import encode_marker
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import InlineBlocking
from tailrace.cluster.storage.appending import Appended
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.manager import LogManager, OpenReport
from tests.support.fault_files import FaultFiles

TOPIC_ID = UUID(int=7)
ORDERS = TopicPartition("orders", 0)
START_MS = 1_000_000
_IDS = itertools.count(1)


def no_throttle() -> Throttle:
    return Throttle(1e15, clock=lambda: 0.0, sleep=lambda seconds: None)


class Engine:
    """One life of a process: everything before `crash` happens on the same manager.

    All topics have the settings `topic`, but for those that `topics` names.
    """

    def __init__(
        self,
        files: Files | None = None,
        *,
        topic: TopicConfig | None = None,
        topics: Mapping[str, TopicConfig] | None = None,
        config: StorageConfig | None = None,
        now_ms: int = START_MS,
        blocking: InlineBlocking | None = None,
        new_id: Callable[[], UUID] = lambda: UUID(int=next(_IDS)),
    ) -> None:
        self.files = files if files is not None else FaultFiles(Random(0))
        self.config = config if config is not None else StorageConfig(log_dir="/data")
        self.topic = topic if topic is not None else self.config.topic_defaults()
        self.topics = topics if topics is not None else {}
        self.blocking = blocking if blocking is not None else InlineBlocking()
        self.now_ms = now_ms
        self.offline: dict[str, TailraceError] = {}
        self.manager = LogManager(
            config=self.config,
            files=self.files,
            blocking=self.blocking,
            throttle=no_throttle(),
            topic_config=self.settings_of,
            new_id=new_id,
        )
        self.manager.on_offline = self.offline.__setitem__
        self.report: OpenReport = self.manager.open(now_ms=now_ms)

    def log(self, topic_partition: TopicPartition = ORDERS, topic_id: UUID = TOPIC_ID) -> Log:
        existing = self.manager.get(topic_partition)
        if existing is not None:
            return existing
        config = self.settings_of(topic_partition.topic)
        return self.manager.create(topic_partition, topic_id, config, now_ms=self.now_ms)

    def settings_of(self, topic: str) -> TopicConfig:
        return self.topics.get(topic, self.topic)

    def drain(self) -> None:
        self.blocking.drain()

    def tick(self, ms: int = 1000) -> None:
        self.now_ms += ms
        self.manager.tick(self.now_ms)
        self.drain()

    def close(self) -> None:
        closed: list[bool] = []
        self.manager.close(lambda: closed.append(True))
        self.drain()
        assert closed == [True]


def batch_of(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = START_MS,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    producer_id, epoch, sequence = producer
    return encode_batch(
        values=values,
        keys=keys,
        timestamps=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def append(log: Log, *values: bytes, epoch: int = 0, now_ms: int = START_MS, **batch: object) -> Appended:
    return log.append_as_leader(batch_of(*values, **batch), leader_epoch=epoch, now_ms=now_ms)  # type: ignore[arg-type]


def end_transaction(
    log: Log, producer_id: int, *, commit: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> Appended:
    marker = encode_marker(
        commit=commit,
        producers=[(producer_id, producer_epoch)],
        coordinator_epoch=coordinator_epoch,
        timestamp=START_MS,
    )
    return log.append_as_leader(marker, leader_epoch=0, now_ms=START_MS, internal=True)


def values_of(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """Every record of the log as (offset, value), control batches left out."""
    return [
        (offset, value)
        for batch in log.batches(start)
        if not batch.header.is_control
        for offset, value in zip(batch.offsets(), batch.values(), strict=True)
    ]
