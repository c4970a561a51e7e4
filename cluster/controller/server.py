"""A controller as a process runs it: everything wired together, started in order and stopped in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.controller.active import ActiveController
from tailrace.cluster.controller.core.cluster import cluster_id_from
from tailrace.cluster.controller.core.controllers import register_controller
from tailrace.cluster.controller.core.features import feature_ranges
from tailrace.cluster.controller.core.sessions import SessionTimes
from tailrace.cluster.controller.duties import ControllerDuties
from tailrace.cluster.controller.keeper import BrokerKeeper
from tailrace.cluster.controller.metadata import Applied, MetadataFeed, MetadataMachine
from tailrace.cluster.controller.peers import PeerCalls
from tailrace.cluster.controller.quorum.grpc_links import GrpcRaftLinks
from tailrace.cluster.controller.quorum.quorum import Leadership, Quorum, QuorumSettings, Voter
from tailrace.cluster.controller.services import (
    AdminService,
    Choices,
    ControllerService,
    admin_service,
    controller_service,
)
from tailrace.cluster.controller.status import quorum_response
from tailrace.cluster.rpc.authorizer import AllowAll, Authorizer
from tailrace.cluster.rpc.node_service import node_service
from tailrace.cluster.rpc.tls import TlsSettings
from tailrace.cluster.rpc.transport import Listener, RpcServer, Transport
from tailrace.cluster.runtime.blocking import ThreadBlocking
from tailrace.cluster.runtime.clock import Clock
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import Files
from tailrace.v1.metadata_pb2 import ControllerRegistered, Endpoint

events = get_logger(__name__)

CONTROLLER_LISTENER = "CONTROLLER"
METADATA_DIRECTORY = "__metadata"
STOP_GRACE_SECONDS = 1.0


class ControllerServer:
    """`given` are the settings that somebody set, as text. `on_failure` is called, on the event loop, when
    the controller cannot go on; stop it then.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        given: Mapping[str, str],
        transport: Transport,
        files: Files,
        clock: Clock,
        random: Random,
        release: str,
        on_failure: Callable[[TailraceError], None],
        authorizer: Authorizer | None = None,
    ) -> None:
        self._config = config
        self._given = given
        self._transport = transport
        self._files = files
        self._clock = clock
        self._random = random
        self._release = release
        self._on_failure = on_failure
        self._authorizer = authorizer if authorizer is not None else AllowAll()
        self._node_id = _checked_node_id(config)
        self._incarnation = UUID(int=random.getrandbits(128), version=4)
        self._tls = tls_of(config)
        self.feed: MetadataFeed
        self.active: ActiveController
        self.quorum: Quorum
        self.port = 0
        self.raft_port = 0
        self._links: GrpcRaftLinks
        self._keeper: BrokerKeeper
        self._duties: ControllerDuties
        self._rpc: RpcServer
        self._registering: asyncio.Task[None] | None = None

    # Starting.

    async def start(self) -> None:
        """Listens and takes part in the quorum. TailraceError, with nothing left running, if it cannot."""
        loop = asyncio.get_running_loop()
        self.feed = MetadataFeed()

        def hand_over(applied: Applied) -> None:
            _call_soon(loop, lambda: self.feed.publish(applied))

        voters = self._voters()
        self._links = self._make_links(voters)
        self.raft_port = self._links.bind()
        self.quorum = Quorum(
            node_id=self._node_id,
            voters=voters,
            directory=metadata_directory(self._config),
            files=self._files,
            machine=MetadataMachine(hand_over),
            links=self._links,
            settings=quorum_settings(self._config),
            on_leadership=lambda told: _call_soon(loop, lambda: self._on_leadership(told)),
            on_failure=lambda error: _call_soon(loop, lambda: self._on_failure(error)),
            clock=self._clock,
            rng=Random(self._random.getrandbits(64)),
        )
        self.active = ActiveController(node_id=self._node_id, feed=self.feed, quorum=self.quorum, loop=loop)
        peers = PeerCalls(
            transport=self._transport,
            tls=self._tls,
            allow_plaintext=self._config.server.security_allow_plaintext,
        )
        self._keeper = BrokerKeeper(
            active=self.active, clock=self._clock, times=_times(self._config), ask_broker=peers.is_there
        )
        await self._listen(voters)
        self._duties = self._make_duties(peers, [voter.node_id for voter in voters])
        try:
            self.quorum.start()
        except BaseException:
            await self._rpc.stop(0)
            self._links.stop()
            raise
        self._registering = loop.create_task(self._duties.keep_registered())
        events.info("controller_started", node_id=self._node_id, port=self.port, raft_port=self.raft_port)

    def _voters(self) -> list[Voter]:
        found = [
            Voter(node_id=one.node_id, host=one.address.host, port=one.address.port)
            for one in self._config.controller.voters
        ]
        if self._node_id not in [voter.node_id for voter in found]:
            raise TailraceError(
                ErrorCode.INVALID_CONFIG,
                f"node {self._node_id} has the role controller and is not in controller.quorum.voters "
                f"({', '.join(self._config.controller.controller_quorum_voters) or 'which is empty'}); add "
                "it there, on every controller, or take the role from it",
            )
        return found

    def _make_links(self, voters: list[Voter]) -> GrpcRaftLinks:
        addresses = {voter.node_id: str(Address(voter.host, voter.port)) for voter in voters}
        return GrpcRaftLinks(
            node_id=self._node_id,
            voters=addresses,
            listen=addresses[self._node_id],
            tls=self._tls,
            allow_plaintext=self._config.server.security_allow_plaintext,
            cluster_id=lambda: self.feed.image.cluster_id,
            clock=self._clock,
        )

    async def _listen(self, voters: list[Voter]) -> None:
        ids = [voter.node_id for voter in voters]
        controller = ControllerService(
            active=self.active,
            keeper=self._keeper,
            feed=self.feed,
            authorizer=self._authorizer,
            voters=ids,
        )
        admin = AdminService(
            active=self.active,
            keeper=self._keeper,
            authorizer=self._authorizer,
            static=self._given,
            choices=Choices(
                new_id=lambda: UUID(int=self._random.getrandbits(128), version=4), random=self._random
            ),
            voters=ids,
            describe_quorum=lambda: quorum_response(self.quorum.status(), voters),
        )
        node = node_service(
            node_id=self._node_id,
            incarnation=self._incarnation,
            release=self._release,
            cluster_id=lambda: self.feed.image.cluster_id,
        )
        listener = Listener(
            address=self._controller_address(),
            tls=self._tls,
            allow_plaintext=self._config.server.security_allow_plaintext,
        )
        services = [controller_service(controller), admin_service(admin), node]
        self._rpc = self._transport.server([listener], services)
        try:
            (self.port,) = await self._rpc.start()
        except BaseException:
            self._links.stop()
            raise

    def _controller_address(self) -> Address:
        address = self._config.server.listens.get(CONTROLLER_LISTENER)
        if address is None:
            raise TailraceError(
                ErrorCode.INVALID_CONFIG,
                "a controller needs a listener for brokers and administrators: set listeners, for example to "
                f"{CONTROLLER_LISTENER}://127.0.0.1:9093",
            )
        return address

    def _make_duties(self, peers: PeerCalls, voters: list[int]) -> ControllerDuties:
        async def send(registration: ControllerRegistered) -> None:
            if not self.active.is_active:
                await peers.register(self.active, registration)
                return
            refused = await self.active.run(
                lambda image: register_controller(image, registration, voters=voters)
            )
            if refused.code:
                events.error("controller_registration_refused", reason=refused.message)

        return ControllerDuties(
            active=self.active,
            feed=self.feed,
            static=self._given,
            registration=self._registration(),
            send_registration=send,
            new_cluster_id=lambda: cluster_id_from(UUID(int=self._random.getrandbits(128), version=4)),
        )

    def _registration(self) -> ControllerRegistered:
        advertised = self._config.server.advertises[CONTROLLER_LISTENER]
        return ControllerRegistered(
            node_id=self._node_id,
            incarnation=self._incarnation.bytes,
            endpoints=[
                Endpoint(
                    listener=CONTROLLER_LISTENER,
                    host=advertised.host,
                    port=advertised.port or self.port,
                    tls=self._tls is not None,
                )
            ],
            features=feature_ranges(),
        )

    def _on_leadership(self, leadership: Leadership) -> None:
        self.active.on_leadership(leadership)

    # Stopping.

    async def stop(self) -> None:
        """Hands leadership over if it has it, then lets go of everything."""
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)
        await self._stop_quorum()
        await self._duties.close()
        await self._keeper.close()
        await self._rpc.stop(STOP_GRACE_SECONDS)
        events.info("controller_stopped", node_id=self._node_id)

    async def _stop_quorum(self) -> None:
        loop = asyncio.get_running_loop()
        stopped: asyncio.Future[None] = loop.create_future()
        thread = ThreadBlocking(loop.call_soon_threadsafe, jobs=1, leaves=1)

        def stop() -> None:
            try:
                self.quorum.stop()
            finally:
                thread.post(lambda: stopped.set_result(None))

        thread.start(stop)
        await stopped
        thread.close()


def tls_of(config: NodeConfig) -> TlsSettings | None:
    """TLS between nodes; None for plain text."""
    server = config.server
    if server.tls_cert_file is None or server.tls_key_file is None or server.tls_ca_file is None:
        return None
    return TlsSettings(
        cert_file=server.tls_cert_file, key_file=server.tls_key_file, ca_file=server.tls_ca_file
    )


def metadata_directory(config: NodeConfig) -> str:
    return config.server.metadata_log_dir or f"{config.storage.directories[0]}/{METADATA_DIRECTORY}"


def quorum_settings(config: NodeConfig) -> QuorumSettings:
    controller = config.controller
    election_ms = controller.controller_quorum_election_timeout_ms
    return QuorumSettings(
        heartbeat_ms=controller.controller_quorum_append_interval_ms,
        election_min_ms=election_ms,
        election_max_ms=2 * election_ms,
        leader_fallback_ms=election_ms * 9 // 10,
        proposal_timeout_ms=controller.controller_quorum_request_timeout_ms,
        snapshot_bytes=controller.metadata_log_max_record_bytes_between_snapshots,
    )


def _times(config: NodeConfig) -> SessionTimes:
    return SessionTimes(
        session_timeout_ms=config.controller.broker_session_timeout_ms,
        heartbeat_interval_ms=config.controller.broker_heartbeat_interval_ms,
    )


def _checked_node_id(config: NodeConfig) -> int:
    if config.server.node_id is None:
        raise TailraceError(ErrorCode.INVALID_CONFIG, "node.id is not set: a controller needs one of its own")
    return config.server.node_id


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
