"""Links between controllers over real connections: order, loss and return, and what is refused."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.grpc_links import GrpcRaftLinks
from tailrace.cluster.rpc.hello import HELLO_KEY, Greeter
from tailrace.cluster.rpc.link_streams import OPEN, SERVICE, LinkSettings
from tailrace.cluster.rpc.tls import TlsSettings
from tests.integration.raft_nodes import (
    LOOPBACK,
    Certificates,
    Node,
    PeerProcess,
    Recorder,
    make_links,
    poll,
    running,
)

UNKNOWN_PORT = f"{LOOPBACK}:0"
PLACEHOLDER = f"{LOOPBACK}:1"


def assert_messages_only_while_up(seen: Recorder, peer_id: int) -> None:
    up = False
    for one in seen.history(peer_id):
        match one.kind:
            case "up":
                assert not up
                up = True
            case "down":
                assert up
                up = False
            case _:
                assert up, f"{one} came while the link was down"


@pytest.fixture(params=["plain", "tls"])
def certificates(request: pytest.FixtureRequest, tmp_path: Path) -> Certificates | None:
    return Certificates(tmp_path / "certs") if request.param == "tls" else None


def tls_of(certificates: Certificates | None, node_id: int) -> TlsSettings | None:
    return None if certificates is None else certificates.node(node_id)


@pytest.fixture
def pair() -> Iterator[tuple[dict[int, str], list[GrpcRaftLinks]]]:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    yield voters, [make_links(1, voters), make_links(2, voters)]


def test_links_deliver_everything_in_order_when_all_voters_are_up(certificates: Certificates | None) -> None:
    ids = [1, 2, 3]
    voters = dict.fromkeys(ids, UNKNOWN_PORT)
    made = [make_links(node_id, voters, tls=tls_of(certificates, node_id)) for node_id in ids]
    with running(*made, voters=voters, ids=ids) as nodes:
        for node_id, node in zip(ids, nodes, strict=True):
            for peer_id in ids:
                if peer_id != node_id:
                    node.seen.wait_up(peer_id)
        sent = [b"%d" % number for number in range(2000)]
        for data in sent:
            assert nodes[0].links.send(2, data)
            assert nodes[0].links.send(3, data)
        for node in nodes[1:]:
            node.seen.wait_message(1, sent[-1])
            assert node.seen.messages(1) == sent


def test_link_carries_a_frame_of_the_largest_size_when_it_is_sent(
    pair: tuple[dict[int, str], list[GrpcRaftLinks]],
) -> None:
    voters, made = pair
    with running(*made, voters=voters, ids=[1, 2]) as [one, two]:
        one.seen.wait_up(2)
        largest = b"x" * one.links.max_frame_bytes
        assert one.links.send(2, largest)
        two.seen.wait_message(1, largest)
        assert not one.links.send(2, largest + b"x")
        assert not one.links.send(2, b"")
        assert one.links.send(2, b"the link goes on")
        two.seen.wait_message(1, b"the link goes on")
        assert one.seen.count("down", 2) == 0


def test_send_says_no_when_the_peer_is_not_connected() -> None:
    voters = {1: UNKNOWN_PORT, 2: PLACEHOLDER}
    links = make_links(1, voters)
    assert not links.send(2, b"before the start")
    links.start(Recorder())
    try:
        assert not links.send(2, b"nobody there")
        assert not links.send(7, b"not a voter")
    finally:
        links.stop()


def test_link_comes_back_with_nothing_of_before_when_a_peer_restarts(
    certificates: Certificates | None,
) -> None:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    peer = make_links(2, voters, tls=tls_of(certificates, 2))
    voters[2] = f"{LOOPBACK}:{peer.bind()}"
    with running(make_links(1, voters, tls=tls_of(certificates, 1)), voters=voters, ids=[1]) as [node]:
        for life in range(1, 4):
            peer_seen = Recorder()
            peer.start(peer_seen)
            node.seen.wait_up(2, times=life)
            peer_seen.wait_up(1)
            assert node.links.send(2, b"to life %d" % life)
            assert peer.send(1, b"from life %d" % life)
            peer_seen.wait_message(1, b"to life %d" % life)
            node.seen.wait_message(2, b"from life %d" % life)
            peer.stop()
            node.seen.wait_down(2, times=life)
            assert peer_seen.messages(1) == [b"to life %d" % life]
            assert peer_seen.count("down", 1) == 1
            peer = make_links(2, voters, listen=voters[2], tls=tls_of(certificates, 2))
        assert_messages_only_while_up(node.seen, 2)


def test_link_goes_down_when_the_peer_is_killed(certificates: Certificates | None) -> None:
    with _node_and_process(certificates) as (node, process):
        node.seen.wait_up(2)
        assert node.links.send(2, b"echo")
        node.seen.wait_message(2, b"echo")
        process.signal(signal.SIGKILL)
        node.seen.wait_down(2)
        poll("send refused", lambda: not node.links.send(2, b"too late"))


def test_link_goes_down_when_the_peer_is_silent_and_up_when_it_speaks_again(
    certificates: Certificates | None,
) -> None:
    with _node_and_process(certificates) as (node, process):
        node.seen.wait_up(2)
        process.signal(signal.SIGSTOP)
        node.seen.wait_down(2)
        process.signal(signal.SIGCONT)
        node.seen.wait_up(2, times=2)
        assert node.links.send(2, b"echo")
        node.seen.wait_message(2, b"echo")
        assert_messages_only_while_up(node.seen, 2)


@contextmanager
def _node_and_process(certificates: Certificates | None) -> Iterator[tuple[Node, PeerProcess]]:
    """Node 1 here, linked with node 2 in another process."""
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    with PeerProcess(2, [1, 2], tls_of(certificates, 2)) as process:
        voters[2] = process.address
        with running(make_links(1, voters, tls=tls_of(certificates, 1)), voters=voters, ids=[1]) as [node]:
            process.start(voters)
            yield node, process


def test_link_is_reset_and_comes_back_when_a_queue_is_full() -> None:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    small = LinkSettings(max_queued_frames=50, max_queued_bytes=1 << 20, max_frame_bytes=1 << 18)
    made = [make_links(1, voters, settings=small), make_links(2, voters, settings=small)]
    with running(*made, voters=voters, ids=[1, 2]) as [one, two]:
        one.seen.wait_up(2)
        two.seen.gate.clear()  # Node 2 takes nothing, so what node 1 sends piles up, first below it.
        frame = b"x" * (1 << 18)
        poll("queue full", lambda: not one.links.send(2, frame))
        one.seen.wait_down(2)
        two.seen.gate.set()
        one.seen.wait_up(2, times=2)
        two.seen.wait_for("link up again", lambda: two.seen.is_up(1))
        poll("sent", lambda: one.links.send(2, b"after"))
        two.seen.wait_message(1, b"after")
        assert_messages_only_while_up(two.seen, 1)


def test_new_stream_replaces_the_old_one_when_a_peer_calls_again() -> None:
    voters = {1: UNKNOWN_PORT, 2: PLACEHOLDER}
    hello = ((HELLO_KEY, Greeter(2, voters, lambda: "").hello(1)),)
    with running(make_links(1, voters), voters=voters, ids=[1]), grpc.insecure_channel(voters[1]) as channel:
        done = threading.Event()
        call: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/{SERVICE}/{OPEN}")
        first = call(_silence(done), metadata=hello)
        next(first)
        second = call(_silence(done), metadata=hello)
        next(second)
        with pytest.raises(grpc.RpcError) as ended:
            next(first)
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        assert second.is_active()
        done.set()


def _silence(done: threading.Event) -> Iterator[bytes]:
    done.wait(60)
    yield from ()


def test_link_is_refused_with_the_reason_in_both_logs_when_cluster_ids_differ(
    caplog: pytest.LogCaptureFixture,
) -> None:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    made = [make_links(1, voters, cluster_id="blue"), make_links(2, voters, cluster_id="green")]
    with caplog.at_level("INFO"), running(*made, voters=voters, ids=[1, 2]) as [one, two]:
        for reason in ("node 1 belongs to cluster 'blue'", "node 2 belongs to cluster 'green'"):
            poll(reason, lambda reason=reason: _logged(caplog, "raft_caller_refused", reason))  # type: ignore[misc]
            poll(reason, lambda reason=reason: _logged(caplog, "raft_link_refused", reason))  # type: ignore[misc]
        assert one.seen.history(2) == two.seen.history(1) == []


def test_link_is_refused_when_the_other_counts_other_voters(caplog: pytest.LogCaptureFixture) -> None:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    other = make_links(2, {1: PLACEHOLDER, 2: PLACEHOLDER, 3: PLACEHOLDER})
    with caplog.at_level("INFO"), running(make_links(1, voters), other, voters=voters, ids=[1, 2]) as nodes:
        reason = "node 1 and node 2 have different voters"
        poll("refused by node 2", lambda: _logged(caplog, "raft_caller_refused", reason))
        poll("told to node 1", lambda: _logged(caplog, "raft_link_refused", reason))
        assert nodes[0].seen.history(2) == []


def test_link_is_refused_when_an_address_leads_to_another_voter(caplog: pytest.LogCaptureFixture) -> None:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT, 3: PLACEHOLDER}
    made = [make_links(1, voters), make_links(2, voters)]
    with caplog.at_level("INFO"), running(*made, voters=voters, ids=[1, 2]) as nodes:
        nodes[0].seen.wait_up(2)
        voters[3] = voters[2]
        poll("refused", lambda: _logged(caplog, "raft_link_refused", "looked for node 3 and found node 2"))
        assert nodes[0].seen.history(3) == []
        assert nodes[0].seen.is_up(2)


def test_link_is_made_when_one_side_does_not_know_its_cluster_yet() -> None:
    voters = {1: UNKNOWN_PORT, 2: UNKNOWN_PORT}
    made = [make_links(1, voters, cluster_id="blue"), make_links(2, voters)]
    with running(*made, voters=voters, ids=[1, 2]) as [one, two]:
        one.seen.wait_up(2)
        two.seen.wait_up(1)


def _logged(caplog: pytest.LogCaptureFixture, event: str, reason: str) -> bool:
    lines = [str(record.msg) for record in caplog.records]
    return any(line.startswith(event) and reason in line for line in lines)


def test_start_is_refused_when_the_listener_would_be_plain_text_beyond_the_machine() -> None:
    links = make_links(1, {1: "10.0.0.1:9093"}, listen="0.0.0.0:0")
    with pytest.raises(
        TailraceError, match=r"set tls\.cert\.file, .*, or set security\.allow\.plaintext=true"
    ) as refused:
        links.start(Recorder())
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_start_is_refused_when_a_peer_would_be_called_in_plain_text_beyond_the_machine() -> None:
    links = make_links(1, {1: UNKNOWN_PORT, 2: "voter-2.example:9093"})
    with pytest.raises(TailraceError, match=r"voter-2\.example:9093 would use plain text"):
        links.start(Recorder())
    links.stop()


def test_start_is_refused_when_the_certificate_is_not_of_this_node(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with pytest.raises(TailraceError, match=r"is the certificate of node 2, but this is node 1"):
        make_links(1, {1: UNKNOWN_PORT}, tls=certificates.node(2)).bind()
    client = certificates.write("client", certificates.authority.issue_client("reports", days=1))
    with pytest.raises(TailraceError, match=r"is the certificate of no node"):
        make_links(1, {1: UNKNOWN_PORT}, tls=client).bind()


def test_start_is_refused_when_tls_between_controllers_is_not_mutual(tmp_path: Path) -> None:
    one_way = replace(Certificates(tmp_path).node(1), mutual=False)
    with pytest.raises(TailraceError, match="always mutual"):
        make_links(1, {1: UNKNOWN_PORT}, tls=one_way).bind()


def test_start_is_refused_when_the_port_is_taken() -> None:
    voters = {1: UNKNOWN_PORT}
    with (
        running(make_links(1, voters), voters=voters, ids=[1]),
        pytest.raises(TailraceError, match="is in use"),
    ):
        make_links(1, voters, listen=voters[1]).bind()


def test_links_are_refused_when_the_node_is_no_voter() -> None:
    with pytest.raises(TailraceError, match="node 4 is none of the voters 1, 2"):
        make_links(4, {1: UNKNOWN_PORT, 2: UNKNOWN_PORT})


def test_quorum_of_one_starts_and_stops_when_it_has_no_peers() -> None:
    voters = {1: UNKNOWN_PORT}
    with running(make_links(1, voters), voters=voters, ids=[1]) as [node]:
        assert not node.links.send(1, b"to itself")
    assert node.seen.history(1) == []
