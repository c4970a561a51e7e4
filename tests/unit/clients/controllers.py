"""Controllers for tests of clients: the real services on a quorum in memory, over any transport.

All controllers replay one metadata log. Who is active is what the test says; a proposal of another one is
refused by the log's guard, as in a real quorum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from tailrace.clients.admin_config import AdminConfig
from tailrace.clients.async_admin import AsyncAdmin
from tailrace.clients.controller_link import ControllerLink
from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.image import ClusterImage, PartitionImage
from tailrace.cluster.controller.active import ActiveController
from tailrace.cluster.controller.core.cluster import create_cluster
from tailrace.cluster.controller.core.controllers import register_controller
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.features import feature_ranges
from tailrace.cluster.controller.core.sessions import SessionTimes
from tailrace.cluster.controller.keeper import BrokerKeeper
from tailrace.cluster.controller.metadata import MetadataFeed, MetadataMachine
from tailrace.cluster.controller.quorum.machine import AppliedEntry
from tailrace.cluster.controller.quorum.outcomes import Leadership
from tailrace.cluster.controller.services import AdminService, Choices, admin_service
from tailrace.cluster.rpc.authorizer import AllowAll
from tailrace.cluster.rpc.service import CallContext, Method, Service, service
from tailrace.cluster.rpc.tls import TlsSettings
from tailrace.cluster.rpc.transport import Listener, RpcServer, Transport
from tailrace.cluster.runtime.clock import SystemClock
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import metadata_pb2 as pb
from tailrace.v1.errors_pb2 import Error
from tests.support.local_quorum import LocalQuorum
from tests.support.metadata import broker, topic_records

NO_SESSION_ENDS = SessionTimes(session_timeout_ms=10**9, heartbeat_interval_ms=2_000)

# Sees each request before the service, with its node; raises what the caller is to get instead of an answer.
Before = Callable[[int, str, Any], None]
# Sees each answer before it leaves, likewise.
After = Callable[[int, str, Any], None]


class _Machines:
    """One log, replayed by all."""

    def __init__(self, machines: Sequence[MetadataMachine]) -> None:
        self._machines = machines

    def apply(self, entry: AppliedEntry) -> None:
        for one in self._machines:
            one.apply(entry)


class Controller:
    def __init__(self, node_id: int, transport: Transport, host: str) -> None:
        self.node_id = node_id
        self.transport = transport
        self.feed = MetadataFeed()
        self.machine = MetadataMachine(self.feed.publish)
        self.address = Address(host, 0)
        self.active: ActiveController
        self.keeper: BrokerKeeper
        self.server: RpcServer


class Controllers:
    """`asked` lists what was asked of whom, in order; `before` and `after` may be replaced by a test."""

    def __init__(
        self, transports: Mapping[str, Transport], *, automatic: bool = True, tls: TlsSettings | None = None
    ) -> None:
        self._tls = tls
        self.nodes = {
            number: Controller(number, transport, host)
            for number, (host, transport) in enumerate(transports.items(), 1)
        }
        machines = _Machines([one.machine for one in self.nodes.values()])
        self.quorum = LocalQuorum(machines, automatic=automatic)
        self.asked: list[tuple[int, str]] = []
        self.before: Before = lambda node_id, method, request: None
        self.after: After = lambda node_id, method, response: None

    async def start(self, loop: Any) -> None:
        for node in self.nodes.values():
            node.active = ActiveController(
                node_id=node.node_id, feed=node.feed, quorum=self.quorum, loop=loop
            )
            node.keeper = BrokerKeeper(
                active=node.active, clock=SystemClock(), times=NO_SESSION_ENDS, ask_broker=_is_there
            )
            listener = Listener(address=node.address, tls=self._tls)
            node.server = node.transport.server([listener], [self._service(node)])
            [port] = await node.server.start()
            node.address = Address(node.address.host, port)

    def _service(self, node: Controller) -> Service:
        handlers = AdminService(
            active=node.active,
            keeper=node.keeper,
            authorizer=AllowAll(),
            static={},
            choices=Choices(new_id=_ids(node.node_id), random=Random(node.node_id)),
            voters=list(self.nodes),
            describe_quorum=lambda: self._quorum_as_seen_by(node),
        )
        real = admin_service(handlers)
        return service(real.name, *(self._watched(node.node_id, one) for one in real.methods.values()))

    def _watched(self, node_id: int, method: Method) -> Method:
        handler = method.unary
        assert handler is not None

        async def unary(request: Any, context: CallContext) -> Any:
            self.asked.append((node_id, method.name))
            self.before(node_id, method.name, request)
            response = await handler(request, context)
            self.after(node_id, method.name, response)
            return response

        return Method(name=method.name, request=method.request, response=method.response, unary=unary)

    def _quorum_as_seen_by(self, node: Controller) -> admin.DescribeQuorumResponse:
        leader = node.active.leadership.leader_id
        return admin.DescribeQuorumResponse(
            node_id=node.node_id,
            leader_id=-1 if leader is None else leader,
            controller_epoch=node.active.epoch,
            term=node.active.epoch,
            last_index=self.quorum.index,
            commit_index=self.quorum.index,
            applied_index=self.quorum.index,
            metadata_version=self.quorum.version,
            voters=[
                admin.DescribeQuorumResponse.Voter(
                    node_id=one.node_id,
                    host=one.address.host,
                    port=one.address.port,
                    connected=True,
                    match_index=self.quorum.index if leader == node.node_id else -1,
                    lag=0 if leader == node.node_id else -1,
                    last_contact_ms=0 if one is node else -1,
                )
                for one in self.nodes.values()
            ],
            snapshot_version=-1,
            snapshot_age_ms=-1,
        )

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.keeper.close()
            await node.server.stop(0)

    # What happens to the cluster.

    def lead(self, node_id: int) -> None:
        self.quorum.claim(self.quorum.epoch + 1)
        for node in self.nodes.values():
            told = Leadership(node_id, self.quorum.epoch, node.node_id == node_id, self.quorum.version)
            node.active.on_leadership(told)

    def lose_leader(self) -> None:
        """Nobody leads, and everybody knows it."""
        for node in self.nodes.values():
            node.active.on_leadership(Leadership(None, self.quorum.epoch, False, self.quorum.version))

    @property
    def image(self) -> ClusterImage:
        return next(iter(self.nodes.values())).feed.image

    async def run(self, operation: Callable[[ClusterImage], Decision[Any]]) -> Any:
        """An operation of the active controller."""
        [active] = [node.active for node in self.nodes.values() if node.active.leadership.active]
        return await active.run(operation)

    async def write(self, records: Iterable[pb.MetadataRecord]) -> None:
        written = list(records)
        await self.run(lambda image: Decision(None, written))

    async def create_cluster(self, advertised: Mapping[int, Address] | None = None) -> None:
        """Lets node 1 lead, and every controller be known by its address, or the one it is said to have."""
        self.lead(1)
        await self.run(lambda image: create_cluster(image, cluster_id="test-cluster"))
        for node in self.nodes.values():
            address = (advertised or {}).get(node.node_id, node.address)
            registration = pb.ControllerRegistered(
                node_id=node.node_id,
                incarnation=UUID(int=node.node_id).bytes,
                endpoints=[pb.Endpoint(listener="CONTROLLER", host=address.host, port=address.port)],
                features=feature_ranges(),
            )
            error = await self.run(partial(_registered, request=registration, voters=list(self.nodes)))
            assert not error.code, error.message

    async def add_brokers(self, *brokers: int | pb.BrokerRegistered) -> None:
        records = []
        for epoch, one in enumerate(brokers, self.image.next_broker_epoch):
            registered = broker(one) if isinstance(one, int) else one
            registered.broker_epoch = epoch
            records.append(pb.MetadataRecord(broker_registered=registered))
        await self.write(records)

    async def add_topic(self, name: str, *partitions: Sequence[int] | PartitionImage) -> None:
        active = {one.broker_id for one in self.image.brokers.values() if one.active}
        await self.write(topic_records(name, partitions, active=active))

    # Clients.

    def addresses(self, *node_ids: int) -> str:
        return ",".join(str(self.nodes[one].address) for one in node_ids or self.nodes)

    def client(self, transport: Transport, *node_ids: int, **options: object) -> AsyncAdmin:
        """A client that knows the addresses of these controllers, or of all."""
        given = {name.replace("_", "."): value for name, value in options.items()}
        config = AdminConfig.from_names({"bootstrap.controllers": self.addresses(*node_ids), **given})
        return AsyncAdmin.on(ControllerLink(config, transport))


def _registered(
    image: ClusterImage, *, request: pb.ControllerRegistered, voters: list[int]
) -> Decision[Error]:
    return register_controller(image, request, voters=voters)


async def _is_there(_: object) -> bool:
    return True


def _ids(node_id: int) -> Callable[[], UUID]:
    random = Random(f"ids of node {node_id}")
    return lambda: UUID(int=random.getrandbits(128), version=4)
