"""Brokers that come, fall silent, are killed, or are told apart from their successors, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import BrokerImage, ClusterImage, PartitionImage
from tailrace.cluster.controller.active import ActiveController, NotControllerError
from tailrace.cluster.controller.core.cluster import create_cluster
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.sessions import SessionTimes
from tailrace.cluster.controller.keeper import BrokerKeeper
from tailrace.cluster.controller.metadata import MetadataFeed, MetadataMachine
from tailrace.cluster.controller.quorum.outcomes import Leadership
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.local_quorum import LocalQuorum
from tests.support.metadata import directory, endpoints, feature_ranges, incarnation, topic_records
from tests.support.virtual_loop import LoopClock, run_virtually

TIMES = SessionTimes(session_timeout_ms=9_000, heartbeat_interval_ms=2_000)


class Node:
    """A controller with brokers that live or do not."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.feed = MetadataFeed()
        self.quorum = LocalQuorum(MetadataMachine(self.feed.publish))
        self.active = ActiveController(node_id=1, feed=self.feed, quorum=self.quorum, loop=loop)
        self.alive: dict[int, UUID] = {}
        self.asked = 0
        self.keeper = BrokerKeeper(
            active=self.active, clock=LoopClock(loop), times=TIMES, ask_broker=self._ask
        )

    async def _ask(self, broker: BrokerImage) -> bool:
        self.asked += 1
        await asyncio.sleep(0.001)
        return self.alive.get(broker.broker_id) == broker.incarnation

    async def begin(self) -> None:
        self.lead(1)
        await self.active.run(lambda image: create_cluster(image, cluster_id="c"))

    def lead(self, epoch: int) -> None:
        self.quorum.claim(epoch)
        self.active.on_leadership(Leadership(1, epoch, True, self.quorum.version))

    def resign(self, epoch: int) -> None:
        self.active.on_leadership(Leadership(2, epoch, False, self.quorum.version))

    @property
    def image(self) -> ClusterImage:
        return self.feed.image

    @property
    def fenced(self) -> set[int]:
        return {broker.broker_id for broker in self.image.brokers.values() if broker.fenced}

    async def topic(self, *replicas: int) -> None:
        records = topic_records("t", [replicas], active=replicas)
        await self.active.run(lambda image: Decision(None, records))

    @property
    def partition(self) -> PartitionImage:
        topic = self.image.topic("t")
        assert topic is not None
        return topic.partitions[0]

    async def register(self, broker_id: int, life: int = 1) -> wire.RegisterBrokerResponse:
        self.alive[broker_id] = incarnation(broker_id, life)
        return await self.keeper.register(
            wire.RegisterBrokerRequest(
                broker_id=broker_id,
                incarnation=incarnation(broker_id, life).bytes,
                endpoints=endpoints(broker_id),
                host=f"host-{broker_id}",
                log_dirs=[pb.LogDir(id=directory(broker_id).bytes, online=True)],
                features=feature_ranges(),
            )
        )


class Broker:
    """A broker's heartbeat stream: beats until it is told to be silent, to break off, or to stop."""

    def __init__(self, node: Node, broker_id: int, epoch: int) -> None:
        self.node = node
        self.broker_id = broker_id
        self.epoch = epoch
        self.answers: list[wire.HeartbeatResponse] = []
        self.silent = False
        self.wants_shutdown = False
        self._broken = asyncio.Event()
        self.task = asyncio.ensure_future(self._live())

    async def _requests(self) -> AsyncIterator[wire.HeartbeatRequest]:
        while not self._broken.is_set():
            if not self.silent:
                yield wire.HeartbeatRequest(
                    broker_id=self.broker_id,
                    broker_epoch=self.epoch,
                    metadata_version=self.node.image.version,
                    wants_shutdown=self.wants_shutdown,
                )
            try:
                async with asyncio.timeout(TIMES.heartbeat_interval_ms / 1000):
                    await self._broken.wait()
            except TimeoutError:
                continue

    async def _live(self) -> None:
        stream = self.node.keeper.heartbeats(self._requests())
        async for answer in stream:
            self.answers.append(answer)

    async def break_off(self, *, killed: bool) -> None:
        if killed:
            self.node.alive.pop(self.broker_id, None)
        self._broken.set()
        await self.task


async def started(node: Node, broker_id: int, life: int = 1) -> Broker:
    registered = await node.register(broker_id, life)
    assert not registered.HasField("error"), registered.error.message
    broker = Broker(node, broker_id, registered.broker_epoch)
    await asyncio.sleep(0.01)
    return broker


def cluster(test: Coroutine[Any, Any, None]) -> None:
    run_virtually(test)


def now() -> float:
    return asyncio.get_running_loop().time()


async def until_fenced(node: Node, broker_id: int, limit: float = 60) -> float:
    began = now()
    while not node.image.brokers[broker_id].fenced:
        assert now() - began < limit, "the broker was not fenced"
        await asyncio.sleep(0.01)
    return now() - began


def test_broker_is_opened_and_stays_so_when_it_beats() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        registered = await node.register(1)
        assert node.fenced == {1}
        broker = Broker(node, 1, registered.broker_epoch)
        await asyncio.sleep(60)
        assert node.fenced == set()
        assert len(broker.answers) >= 29
        assert not broker.answers[-1].fenced
        broker.silent = True
        await node.keeper.close()

    cluster(test())


def test_broker_is_fenced_after_the_session_timeout_when_it_is_silent() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        brokers = [await started(node, broker_id) for broker_id in (1, 2)]
        await node.topic(1, 2)
        brokers[0].silent = True
        took = await until_fenced(node, 1)
        assert 6.5 <= took <= 11.5
        assert (node.partition.leader, node.partition.leader_epoch) == (2, 1)
        assert not node.image.brokers[2].fenced
        assert node.asked == 0
        await node.keeper.close()

    cluster(test())


def test_broker_is_fenced_at_once_when_its_connection_breaks_and_nobody_is_there() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        brokers = [await started(node, broker_id) for broker_id in (1, 2)]
        await node.topic(1, 2)
        await brokers[0].break_off(killed=True)
        assert await until_fenced(node, 1) < 0.1
        assert node.partition.leader == 2
        await node.keeper.close()

    cluster(test())


def test_broker_keeps_its_session_when_only_its_connection_broke() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        broker = await started(node, 1)
        await broker.break_off(killed=False)
        await asyncio.sleep(5)
        assert not node.image.brokers[1].fenced
        again = Broker(node, 1, broker.epoch)
        await asyncio.sleep(30)
        assert not node.image.brokers[1].fenced
        again.silent = True
        await node.keeper.close()

    cluster(test())


def test_restarted_broker_takes_over_its_id_when_the_old_process_is_gone() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        old = await started(node, 1)
        await node.topic(1)
        old.silent = True
        new = await started(node, 1, life=2)
        assert new.epoch > old.epoch
        assert node.partition.leader_epoch > 0
        assert node.partition.leader == 1
        old.silent = False
        await asyncio.sleep(5)
        assert code_of(old.answers[-1]) is ErrorCode.STALE_BROKER_EPOCH
        assert not node.image.brokers[1].fenced
        await node.keeper.close()

    cluster(test())


def test_second_broker_of_the_same_id_is_refused_when_the_first_is_alive() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        await started(node, 1)
        first = node.alive[1]
        await_second = node.register(1, life=2)

        async def first_answers(broker: BrokerImage) -> bool:
            return broker.incarnation == first

        node.keeper._ask_broker = first_answers
        refused = await await_second
        assert code_of(refused) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert node.image.brokers[1].incarnation == first
        await node.keeper.close()

    cluster(test())


def test_every_broker_gets_a_full_session_when_another_controller_takes_over() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        brokers = [await started(node, broker_id) for broker_id in (1, 2)]
        for broker in brokers:
            broker.silent = True
        await asyncio.sleep(8)
        node.resign(2)
        with pytest.raises(NotControllerError):
            await node.register(3)
        await asyncio.sleep(30)
        assert not any(broker.fenced for broker in node.image.brokers.values())
        node.lead(3)
        took = await until_fenced(node, 1)
        assert 6.5 <= took <= 11.5
        await node.keeper.close()

    cluster(test())


def test_unfinished_fencing_is_finished_when_another_controller_takes_over() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        for broker_id in (1, 2):
            await started(node, broker_id)
        await node.topic(1, 2)
        epoch = node.image.brokers[1].epoch
        half = pb.MetadataRecord(
            broker_changed=pb.BrokerChanged(broker_id=1, broker_epoch=epoch, fenced=True)
        )
        node.alive.clear()
        await node.active.run(lambda image: Decision(None, [half]))
        assert node.partition.leader == 1
        node.resign(2)
        node.lead(3)
        await asyncio.sleep(0.1)
        assert node.partition.leader == 2
        await node.keeper.close()

    cluster(test())


def test_broker_may_stop_when_its_leaders_have_moved() -> None:
    async def test() -> None:
        node = Node()
        await node.begin()
        brokers = [await started(node, broker_id) for broker_id in (1, 2)]
        await node.topic(1, 2)
        brokers[0].wants_shutdown = True
        await asyncio.sleep(5)
        assert brokers[0].answers[-1].may_stop
        assert node.partition.leader == 2
        assert not brokers[1].answers[-1].may_stop
        await node.keeper.close()

    cluster(test())
