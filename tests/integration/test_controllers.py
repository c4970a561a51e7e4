"""Whole controllers as processes: what was acknowledged survives kills, and all of them agree on it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from tailrace import Admin, ConfigChange, ConfigResource, NewTopic
from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.image import EMPTY_IMAGE, ClusterImage
from tailrace.cluster.common.image_records import digest_of
from tailrace.cluster.common.replay import image_from_records, replay
from tailrace.cluster.controller.core.features import feature_ranges
from tailrace.cluster.controller.quorum.recover import recover_directory
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tailrace.cluster.rpc.node_service import node_service
from tailrace.cluster.rpc.transport import Listener, call_to
from tailrace.cluster.storage.files import OsFiles
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1.metadata_pb2 import Endpoint, LogDir, MetadataRecord
from tests.integration.controllers import Controllers, controllers, eventually

FOLLOW = call_to("Controller", "FollowMetadata", wire.FollowMetadataRequest, wire.MetadataUpdate)
REGISTER = call_to("Controller", "RegisterBroker", wire.RegisterBrokerRequest, wire.RegisterBrokerResponse)
HEARTBEAT = call_to("Controller", "Heartbeat", wire.HeartbeatRequest, wire.HeartbeatResponse)

pytestmark = pytest.mark.timeout(240)


async def image_of(port: int, version: int) -> ClusterImage:
    """What a follower of this one controller replays, up to `version`."""
    channel = GrpcTransport().channel(Address("127.0.0.1", port))
    stream = channel.stream(FOLLOW)
    image, parts = EMPTY_IMAGE, list[MetadataRecord]()
    try:
        async with asyncio.timeout(60):
            await stream.send(wire.FollowMetadataRequest())
            while image.version < version:
                update = await anext(stream)
                for one in update.batches.batches:
                    image, _ = replay(
                        image, one.batch.records, version=one.version, controller_epoch=one.controller_epoch
                    )
                if update.HasField("snapshot"):
                    part = update.snapshot
                    parts = [*([] if part.first else parts), *part.records]
                    if part.last:
                        image = image_from_records(
                            parts, version=part.version, controller_epoch=part.controller_epoch
                        )
    finally:
        stream.cancel()
        await channel.close()
    return image


def images(cluster: Controllers) -> list[ClusterImage]:
    """Of every controller, at one version that all of them reach."""
    with Admin(bootstrap_controllers=cluster.bootstrap) as admin:
        version = admin.describe_cluster().metadata_version

    async def all_images() -> list[ClusterImage]:
        return list(await asyncio.gather(*(image_of(port, version) for port in cluster.ports.values())))

    return asyncio.run(all_images())


def change(admin: Admin, number: int) -> None:
    resource = ConfigResource.broker_defaults()
    admin.alter_configs({resource: [ConfigChange.set("log.retention.ms", str(1_000_000 + number))]})


def test_acknowledged_changes_survive_and_controllers_agree_when_controllers_are_killed(
    tmp_path: Path,
) -> None:
    with controllers(tmp_path) as cluster, Admin(bootstrap_controllers=cluster.bootstrap) as admin:
        eventually(lambda: admin.describe_cluster().cluster_id or None, "the founding of the cluster")
        acknowledged = 0
        for victims in ("leader", "two", "all"):
            for _ in range(10):
                change(admin, acknowledged + 1)
                acknowledged += 1
            leader = cluster.leader()
            others = [node_id for node_id in cluster.ports if node_id != leader]
            killed = {"leader": [leader], "two": [leader, others[0]], "all": list(cluster.ports)}[victims]
            cluster.kill(*killed)
            if victims == "leader":
                change(admin, acknowledged + 1)
                acknowledged += 1
            cluster.start(*killed)
            cluster.leader()
            described = admin.describe_configs([ConfigResource.broker_defaults()])
            values = {
                entry.name: entry.value for entry in described[ConfigResource.broker_defaults()].values()
            }
            assert values["log.retention.ms"] == str(1_000_000 + acknowledged)
        found = images(cluster)
        assert len({digest_of(image) for image in found}) == 1
        assert found[0].version >= acknowledged
        assert sorted(found[0].controllers) == [1, 2, 3]


def test_leadership_moves_on_and_the_process_ends_well_when_it_is_told_to_stop(tmp_path: Path) -> None:
    with controllers(tmp_path) as cluster, Admin(bootstrap_controllers=cluster.bootstrap) as admin:
        first = cluster.leader()
        assert cluster.terminate(first) == 0, cluster.log_of(first)
        second = cluster.leader()
        assert second != first
        change(admin, 1)
        cluster.start(first)
        eventually(
            lambda: cluster.quorum(first).metadata_version == cluster.quorum(second).metadata_version or None,
            "catching up",
        )


def test_controller_is_filled_again_and_a_quorum_recovered_when_directories_are_lost(tmp_path: Path) -> None:
    with controllers(tmp_path) as cluster, Admin(bootstrap_controllers=cluster.bootstrap) as admin:
        leader = cluster.leader()
        change(admin, 7)
        wiped = next(node_id for node_id in cluster.ports if node_id != leader)
        cluster.kill(wiped)
        shutil.rmtree(cluster.metadata_directory(wiped))
        cluster.start(wiped)
        version = cluster.quorum(leader).metadata_version
        eventually(lambda: cluster.quorum(wiped).metadata_version >= version or None, "filling it again")
        cluster.kill(*cluster.ports)
        survivor = tmp_path / "survivor"
        cluster.metadata_directory(wiped).rename(survivor)
        for node_id in cluster.ports:
            target = cluster.metadata_directory(node_id)
            shutil.rmtree(target, ignore_errors=True)
            recover_directory(OsFiles(), str(survivor), str(target), node_id)
        cluster.start()
        cluster.leader()
        resource = ConfigResource.broker_defaults()
        entries = admin.describe_configs([resource])[resource].values()
        assert {entry.name: entry.value for entry in entries}["log.retention.ms"] == "1000007"


class StandInBroker:
    """The controller's side of a broker's life: registers, answers who it is, and sends heartbeats."""

    def __init__(self, broker_id: int, controller_port: int) -> None:
        self.broker_id = broker_id
        self.incarnation = uuid4()
        self._transport = GrpcTransport()
        self._controller = self._transport.channel(Address("127.0.0.1", controller_port))
        self._beating: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        identity = node_service(
            node_id=self.broker_id, incarnation=self.incarnation, release="test", cluster_id=lambda: ""
        )
        server = self._transport.server([Listener(address=Address("127.0.0.1", 0))], [identity])
        (port,) = await server.start()
        registered = await self._controller.unary(REGISTER, self._registration(port), 30)
        assert not registered.HasField("error"), registered.error.message
        self._beating = asyncio.ensure_future(self._beat(registered))
        try:
            yield
        finally:
            # As a process that is killed: its ports close, its streams break.
            await server.stop(0)
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
            await self._controller.close()

    def _registration(self, port: int) -> wire.RegisterBrokerRequest:
        return wire.RegisterBrokerRequest(
            broker_id=self.broker_id,
            incarnation=self.incarnation.bytes,
            endpoints=[Endpoint(listener="CLUSTER", host="127.0.0.1", port=port)],
            host="127.0.0.1",
            log_dirs=[LogDir(id=uuid4().bytes, online=True)],
            features=feature_ranges(),
        )

    async def _beat(self, registered: wire.RegisterBrokerResponse) -> None:
        stream = self._controller.stream(HEARTBEAT)
        try:
            while True:
                await stream.send(
                    wire.HeartbeatRequest(
                        broker_id=self.broker_id,
                        broker_epoch=registered.broker_epoch,
                        metadata_version=registered.metadata_version,
                    )
                )
                answer = await anext(stream)
                await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
        finally:
            stream.cancel()


def test_leader_moves_to_another_broker_when_its_broker_is_killed(tmp_path: Path) -> None:
    with controllers(tmp_path, count=1) as cluster, Admin(bootstrap_controllers=cluster.bootstrap) as admin:
        cluster.leader()

        async def until(attempt: object, what: str) -> None:
            await asyncio.to_thread(eventually, attempt, what)  # type: ignore[arg-type]

        def states() -> dict[int, str]:
            return {broker.broker_id: broker.state.value for broker in admin.describe_cluster().brokers}

        def leader() -> int | None:
            return admin.describe_topics(["t"])["t"].partitions[0].leader

        async def lives() -> None:
            brokers = [StandInBroker(broker_id, cluster.ports[1]) for broker_id in (1, 2)]
            async with brokers[1].running():
                async with brokers[0].running():
                    await until(lambda: list(states().values()) == ["active", "active"] or None, "opening")
                    topic = NewTopic("t", replica_assignment=[[1, 2]])
                    await asyncio.to_thread(admin.create_topics, [topic])
                    assert await asyncio.to_thread(leader) == 1
                await until(lambda: leader() == 2 or None, "the change of leaders")
                assert (await asyncio.to_thread(states))[1] == "fenced"

        asyncio.run(lives())
