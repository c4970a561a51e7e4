"""Strangers at a controller's port: whatever they do, a healthy link goes on and memory stays bounded.

The attacked node runs in a process of its own, so that its memory and files can be counted from outside.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tailrace.cluster.controller.quorum.grpc_links import GrpcRaftLinks
from tailrace.cluster.rpc.certificates import KeyPair
from tailrace.cluster.rpc.frames import encode_frames
from tailrace.cluster.rpc.hello import HELLO_KEY, Greeter
from tailrace.cluster.rpc.identity import node_name
from tailrace.cluster.rpc.link_streams import OPEN, SERVICE, LinkSettings
from tailrace.cluster.rpc.tls import TlsSettings
from tests.integration.raft_nodes import (
    DEADLINE_S,
    LOOPBACK,
    Certificates,
    Node,
    PeerProcess,
    Recorder,
    make_links,
    poll,
    running,
)

IDS = [1, 2, 3]
CLUSTER = "blue"
HEALTHY = 1
ATTACKED = 2
FREE_VOTER = 3
"""A voter that is not running; a stranger in plain text can pretend to be it."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
GROWTH_MIB = 64.0


class Scene:
    def __init__(
        self, node: Node, late: GrpcRaftLinks, process: PeerProcess, certificates: Certificates | None
    ) -> None:
        self._node = node
        self._process = process
        self.late = late
        """The free voter, not started yet."""
        self._resident = process.resident_mib()
        self.certificates = certificates
        self.port = process.port

    def connect(self) -> socket.socket:
        return socket.create_connection((LOOPBACK, self.port), timeout=DEADLINE_S)

    def open_files(self) -> int:
        return self._process.open_files()

    def assert_unharmed(self) -> None:
        """The link was never down, still carries messages both ways, and the process has not grown."""
        assert self._node.links.send(ATTACKED, b"still there?")
        before = len(self._node.seen.messages(ATTACKED))
        self._node.seen.wait_for("echo", lambda: len(self._node.seen.messages(ATTACKED)) > before)
        assert self._node.seen.count("down", ATTACKED) == 0
        assert self._process.resident_mib() < self._resident + GROWTH_MIB


@contextmanager
def _scene(certificates: Certificates | None) -> Iterator[Scene]:
    def tls(node_id: int) -> TlsSettings | None:
        return None if certificates is None else certificates.node(node_id)

    voters = dict.fromkeys(IDS, f"{LOOPBACK}:0")
    late = make_links(FREE_VOTER, voters, tls=tls(FREE_VOTER), cluster_id=CLUSTER)
    voters[FREE_VOTER] = f"{LOOPBACK}:{late.bind()}"
    healthy = make_links(HEALTHY, voters, tls=tls(HEALTHY), cluster_id=CLUSTER)
    with PeerProcess(ATTACKED, IDS, tls(ATTACKED), CLUSTER) as process:
        voters[ATTACKED] = process.address
        with running(healthy, voters=voters, ids=[HEALTHY]) as [node]:
            process.start(voters)
            node.seen.wait_up(ATTACKED)
            yield Scene(node, late, process, certificates)
    late.stop()


@pytest.fixture(params=["plain", "tls"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with _scene(Certificates(tmp_path / "certs") if request.param == "tls" else None) as made:
        yield made


@pytest.fixture
def plain() -> Iterator[Scene]:
    with _scene(None) as made:
        yield made


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Scene]:
    with _scene(Certificates(tmp_path / "certs")) as made:
        yield made


def hello(node_id: int = FREE_VOTER, target: int = ATTACKED, cluster_id: str = "") -> bytes:
    return Greeter(node_id, IDS, lambda: cluster_id).hello(target)


def call(channel: grpc.Channel, said: bytes | None, requests: Iterable[bytes] = ()) -> grpc.RpcError | None:
    """Opens a stream and sends on it; the error that ends it, or None when it was accepted and ended well."""
    stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/{SERVICE}/{OPEN}")
    metadata = () if said is None else ((HELLO_KEY, said),)
    try:
        for _ in stream(iter(requests), metadata=metadata, timeout=DEADLINE_S):
            pass
    except grpc.RpcError as error:
        return error
    return None


def plain_channel(port: int) -> grpc.Channel:
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(f"{LOOPBACK}:{port}", options=unlimited)


def secure_channel(port: int, ca: bytes, pair: KeyPair | None) -> grpc.Channel:
    """The name of the attacked node is expected, so that it is the server that refuses, if anybody."""
    credentials = grpc.ssl_channel_credentials(ca, pair and pair.key, pair and pair.certificate)
    options = [
        ("grpc.ssl_target_name_override", node_name(ATTACKED)),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.secure_channel(f"{LOOPBACK}:{port}", credentials, options=options)


def is_closed(connection: socket.socket) -> bool:
    """Reads until the other end closes; what it says on the way does not matter."""
    connection.settimeout(DEADLINE_S)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 100_000,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(range(256)) * 4096,
        b"\x16\x03\x01\x40\x00" + b"\xff" * 16_384,
        PREFACE + SETTINGS + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + b"x" * 100_000,
        PREFACE + SETTINGS + b"\x00\x00\x05\x01\x04\x00\x00\x00\x01" + b"\xff" * 5,
    ],
    ids=["zeros", "http1", "bytes", "tls-record", "huge-http2-frame", "bad-headers"],
)
def test_connection_is_closed_when_garbage_comes(scene: Scene, garbage: bytes) -> None:
    with scene.connect() as connection:
        with suppress(OSError):  # It may be closed before all of it was sent.
            connection.sendall(garbage)
        assert is_closed(connection)
    scene.assert_unharmed()


@pytest.mark.parametrize(
    "beginning",
    [b"", b"\x16", PREFACE[:10], PREFACE, PREFACE + SETTINGS, PREFACE + SETTINGS + b"\x00\x10\x00\x01\x00"],
    ids=["nothing", "one-byte", "half-preface", "preface", "settings", "half-headers"],
)
def test_connection_is_closed_when_its_handshake_never_ends(scene: Scene, beginning: bytes) -> None:
    with scene.connect() as connection:
        connection.sendall(beginning)
        assert is_closed(connection)
    scene.assert_unharmed()


def test_connection_is_closed_when_tls_is_done_and_nothing_follows(secure: Scene) -> None:
    assert secure.certificates is not None
    member = secure.certificates.node(FREE_VOTER)
    context = ssl.create_default_context(cafile=member.ca_file)
    context.load_cert_chain(member.cert_file, member.key_file)
    context.set_alpn_protocols(["h2"])
    with (
        secure.connect() as connection,
        context.wrap_socket(connection, server_hostname=node_name(ATTACKED)) as wrapped,
    ):
        assert is_closed(wrapped)
    secure.assert_unharmed()


def test_message_is_refused_when_it_is_too_large(plain: Scene) -> None:
    too_large = LinkSettings().max_frame_bytes + (1 << 20)
    with plain_channel(plain.port) as channel:
        for _ in range(5):
            error = call(channel, hello(), [encode_frames([b"x" * too_large])])
            assert error is not None
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    plain.assert_unharmed()


def test_message_is_refused_when_it_has_a_million_frames(plain: Scene) -> None:
    with plain_channel(plain.port) as channel:
        error = call(channel, hello(), [encode_frames([b"x"]) * 1_000_000])
        assert error is not None
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "1000000 frames" in (error.details() or "")
    plain.assert_unharmed()


@pytest.mark.parametrize("message", [b"\xff" * 100, encode_frames([b""])], ids=["unreadable", "empty-frame"])
def test_message_is_refused_when_no_peer_would_send_it(plain: Scene, message: bytes) -> None:
    with plain_channel(plain.port) as channel:
        error = call(channel, hello(), [message])
        assert error is not None
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    plain.assert_unharmed()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (None, grpc.StatusCode.PERMISSION_DENIED),
        (b"\xff" * 50, grpc.StatusCode.INVALID_ARGUMENT),
        (hello(node_id=77), grpc.StatusCode.PERMISSION_DENIED),
        (hello(node_id=ATTACKED), grpc.StatusCode.PERMISSION_DENIED),
        (hello(target=HEALTHY), grpc.StatusCode.FAILED_PRECONDITION),
        (Greeter(FREE_VOTER, [1, 2, 3, 4], lambda: "").hello(ATTACKED), grpc.StatusCode.FAILED_PRECONDITION),
        (b"\x08\x63\x20\x03\x28\x02", grpc.StatusCode.FAILED_PRECONDITION),
        (b"x" * (1 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
    ids=["none", "unreadable", "stranger", "itself", "misled", "other-voters", "version-99", "huge"],
)
def test_caller_is_refused_when_its_hello_does_not_fit(
    plain: Scene, said: bytes | None, status: grpc.StatusCode
) -> None:
    with plain_channel(plain.port) as channel:
        error = call(channel, said)
        assert error is not None
        assert error.code() is status
    plain.assert_unharmed()


def test_other_methods_do_not_exist_when_they_are_called(plain: Scene) -> None:
    with plain_channel(plain.port) as channel:
        unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/tailrace.v1.RaftLinks/Status"
        )
        with pytest.raises(grpc.RpcError) as refused:
            unary(b"", timeout=DEADLINE_S)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    plain.assert_unharmed()


def test_caller_is_refused_when_it_speaks_plain_text_to_tls(secure: Scene) -> None:
    with plain_channel(secure.port) as channel:
        error = call(channel, hello())
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAVAILABLE
    secure.assert_unharmed()


def test_caller_is_refused_when_it_shows_no_certificate(secure: Scene) -> None:
    assert secure.certificates is not None
    with secure_channel(secure.port, secure.certificates.ca, None) as channel:
        error = call(channel, hello())
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAVAILABLE
    secure.assert_unharmed()


def test_caller_is_refused_when_another_authority_issued_its_certificate(
    secure: Scene, tmp_path: Path
) -> None:
    assert secure.certificates is not None
    forged = Certificates(tmp_path / "forged").authority.issue_node(HEALTHY, [LOOPBACK], days=1)
    with secure_channel(secure.port, secure.certificates.ca, forged) as channel:
        error = call(channel, hello(HEALTHY))
        assert error is not None
        assert error.code() is grpc.StatusCode.UNAVAILABLE
    secure.assert_unharmed()


def test_caller_is_refused_when_its_certificate_is_of_no_member(secure: Scene) -> None:
    assert secure.certificates is not None
    authority = secure.certificates.authority
    cases = [
        (authority.issue_node(77, [LOOPBACK], days=1), hello(77), "node 77 is no voter"),
        (authority.issue_node(77, [LOOPBACK], days=1), hello(HEALTHY), "node 77 is no voter"),
        (authority.issue_client("reports", days=1), hello(HEALTHY), "'reports' is not a node's"),
        (authority.issue_node(FREE_VOTER, [LOOPBACK], days=1), hello(HEALTHY), "the certificate of 3"),
    ]
    for pair, said, reason in cases:
        with secure_channel(secure.port, secure.certificates.ca, pair) as channel:
            error = call(channel, said)
            assert error is not None
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED
            assert reason in (error.details() or "")
    secure.assert_unharmed()


def test_peer_is_not_linked_when_its_address_leads_to_another_certificate(
    secure: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A member of the cluster answers in place of another one: TLS itself refuses it."""
    assert secure.certificates is not None
    voters = {FREE_VOTER: f"{LOOPBACK}:0", HEALTHY: f"{LOOPBACK}:{secure.port}", ATTACKED: f"{LOOPBACK}:1"}
    links = make_links(FREE_VOTER, voters, tls=secure.certificates.node(FREE_VOTER))
    with caplog.at_level("INFO"), running(links, voters=voters, ids=[FREE_VOTER]) as [node]:
        poll(
            "refused",
            lambda: any("Hostname Verification Check failed" in str(record.msg) for record in caplog.records),
        )
        assert node.seen.history(HEALTHY) == []
    secure.assert_unharmed()


def test_caller_is_refused_when_it_belongs_to_another_cluster(plain: Scene) -> None:
    with plain_channel(plain.port) as channel:
        error = call(channel, hello(cluster_id="green" * 500))
        assert error is not None
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "belongs to cluster 'greengreen" in (error.details() or "")
        assert len(error.details() or "") < 500
    plain.assert_unharmed()


def test_connections_are_bounded_when_they_flood_the_port(scene: Scene) -> None:
    with ExitStack() as open_connections:
        connections = []
        for _ in range(400):
            connection = open_connections.enter_context(scene.connect())
            connections.append(connection)
            with suppress(OSError):  # Beyond the limit a connection is closed at once.
                connection.sendall(PREFACE[:10])
            assert scene.open_files() < 200
        scene.assert_unharmed()
        assert all(is_closed(connection) for connection in connections)
    scene.assert_unharmed()


def test_calls_are_bounded_when_strangers_flood_the_port(plain: Scene) -> None:
    refused: list[bool] = []

    def flood() -> None:
        with plain_channel(plain.port) as channel:
            refused.extend(call(channel, hello(node_id=77)) is not None for _ in range(200))

    strangers = [threading.Thread(target=flood) for _ in range(8)]
    for stranger in strangers:
        stranger.start()
    for _ in range(20):
        plain.assert_unharmed()
    for stranger in strangers:
        stranger.join(DEADLINE_S)
    assert refused == [True] * 1600
    plain.assert_unharmed()


def test_voter_links_when_a_flood_is_over(scene: Scene) -> None:
    with ExitStack() as open_connections:
        for _ in range(200):
            open_connections.enter_context(scene.connect())
    seen = Recorder()
    scene.late.start(seen)
    seen.wait_up(ATTACKED)
    assert scene.late.send(ATTACKED, b"hello")
    seen.wait_message(ATTACKED, b"hello")
    scene.assert_unharmed()
