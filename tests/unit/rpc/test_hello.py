"""Who may link with whom: certificates, hellos, and what the refused are told."""

from __future__ import annotations

import pytest

from tailrace.cluster.rpc.hello import Cause, Greeter, RefusalError, voters_digest
from tailrace.cluster.rpc.identity import NOBODY, PeerIdentity
from tailrace.v1.raft_pb2 import RaftHello

VOTERS = (1, 2, 3)


def greeter(node_id: int, cluster_id: str = "", voters: tuple[int, ...] = VOTERS) -> Greeter:
    return Greeter(node_id, voters, lambda: cluster_id)


def certificate_of(node_id: int) -> PeerIdentity:
    return PeerIdentity(f"tailrace-node-{node_id}", node_id)


def refusal(called: Greeter, hello: bytes, identity: PeerIdentity | None = None) -> RefusalError:
    with pytest.raises(RefusalError) as refused:
        called.check_caller(hello, identity)
    return refused.value


def test_caller_is_taken_when_hello_and_certificate_agree() -> None:
    assert greeter(1).check_caller(greeter(2).hello(1), certificate_of(2)) == 2
    assert greeter(1).check_caller(greeter(2).hello(1), None) == 2
    greeter(2).check_called(greeter(1).hello(2), 1)


@pytest.mark.parametrize(("ours", "theirs"), [("", ""), ("a", ""), ("", "a"), ("a", "a")])
def test_cluster_ids_agree_when_one_is_unknown_or_both_are_equal(ours: str, theirs: str) -> None:
    assert greeter(1, ours).check_caller(greeter(2, theirs).hello(1), None) == 2


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (NOBODY, "is not a node's"),
        (PeerIdentity("reports", None), "'reports' is not a node's"),
        (certificate_of(9), "node 9 is no voter"),
        (certificate_of(3), "the hello is of node 2, the certificate of 3"),
    ],
)
def test_caller_is_refused_when_its_certificate_is_not_the_voters(identity: PeerIdentity, said: str) -> None:
    refused = refusal(greeter(1), greeter(2).hello(1), identity)
    assert refused.cause is Cause.IDENTITY
    assert said in str(refused)


def test_certificate_is_checked_first_when_the_hello_is_wrong_too() -> None:
    assert refusal(greeter(1), b"\xff", NOBODY).cause is Cause.IDENTITY
    assert refusal(greeter(1), b"\xff", certificate_of(2)).cause is Cause.MALFORMED


@pytest.mark.parametrize(
    ("hello", "cause", "said"),
    [
        (greeter(2, "green").hello(1), Cause.CLUSTER, "node 2 belongs to cluster 'green', node 1 to 'blue'"),
        (greeter(2, voters=(1, 2)).hello(1), Cause.VOTERS, "controller.quorum.voters"),
        (greeter(2).hello(3), Cause.TARGET, "looked for node 3 and found node 1"),
        (greeter(1).hello(1), Cause.IDENTITY, "node 1 is no other voter"),
        (b"", Cause.IDENTITY, "node 0 is no other voter"),
        (
            RaftHello(protocol_version=9, node_id=2, target_node_id=1).SerializeToString(),
            Cause.VERSION,
            "speaks version 9 of the Raft links, node 1 version 1",
        ),
    ],
    ids=["cluster", "voters", "target", "itself", "empty", "version"],
)
def test_caller_is_refused_with_the_reason_when_the_hello_does_not_fit(
    hello: bytes, cause: Cause, said: str
) -> None:
    refused = refusal(greeter(1, "blue"), hello)
    assert refused.cause is cause
    assert said in str(refused)


def test_called_is_refused_when_it_is_another_node_than_was_meant() -> None:
    with pytest.raises(RefusalError, match="node 3 answered where node 1 should be"):
        greeter(2).check_called(greeter(3).hello(2), 1)


def test_reason_stays_short_and_escaped_when_a_stranger_says_much() -> None:
    refused = refusal(greeter(1, "blue"), greeter(2, "x\n\x1b[31m" * 1000).hello(1))
    assert len(str(refused)) < 400
    assert "\n" not in str(refused)
    assert "\x1b" not in str(refused)


def test_digest_says_the_same_when_voters_are_named_in_another_order() -> None:
    assert voters_digest([3, 1, 2]) == voters_digest([1, 2, 3])
    assert voters_digest([1, 23]) != voters_digest([12, 3])
