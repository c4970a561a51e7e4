"""A storage engine with real threads, owned by the running event loop; on real files by default."""

from __future__ import annotations

import asyncio
from uuid import UUID

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import ThreadBlocking
from tailrace.cluster.storage.files import Files, OsFiles
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.manager import LogManager, OpenReport
from tests.support.engine import ORDERS, START_MS, TOPIC_ID, batch_of, no_throttle


class ThreadedEngine:
    def __init__(
        self, config: StorageConfig, *, topic: TopicConfig | None = None, files: Files | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.topic = topic if topic is not None else config.topic_defaults()
        self.blocking = ThreadBlocking(loop.call_soon_threadsafe, jobs=4, leaves=4)
        self.manager = LogManager(
            config=config,
            files=files if files is not None else OsFiles(),
            blocking=self.blocking,
            throttle=no_throttle(),
            topic_config=lambda topic: self.topic,
        )
        self.report: OpenReport = self.manager.open(now_ms=START_MS)
        self.now_ms = START_MS

    def log(self, topic_partition: TopicPartition = ORDERS, topic_id: UUID = TOPIC_ID) -> Log:
        existing = self.manager.get(topic_partition)
        if existing is not None:
            return existing
        return self.manager.create(topic_partition, topic_id, self.topic, now_ms=START_MS)

    async def append(self, log: Log, *values: bytes, keys: list[bytes | None] | None = None) -> int:
        """Append and wait until it is durable; returns the base offset."""
        batch = batch_of(*values, keys=keys)
        appended = log.append_as_leader(batch, leader_epoch=0, now_ms=START_MS)
        await self.durable(log, appended.last_offset + 1)
        return appended.base_offset

    async def durable(self, log: Log, offset: int) -> None:
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def callback(error: TailraceError | None) -> None:
            if error is not None:
                told.set_exception(error)
            else:
                told.set_result(None)

        log.when_durable(offset, callback)
        await told

    async def done(self, start: object) -> None:
        """Run something that takes a callback for its end as its only argument, and wait for the end."""
        assert callable(start)
        ended = asyncio.Event()
        start(ended.set)
        await ended.wait()

    async def settle(self, log: Log) -> None:
        """Wait until everything queued so far has been carried out."""
        await self.done(lambda ended: log.home.writer.queue_call(lambda: None, ended))

    async def close(self) -> None:
        await self.done(self.manager.close)
        await asyncio.to_thread(self.blocking.close)
