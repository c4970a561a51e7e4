"""What controllers say to each other before they link, and whom they refuse.

Both ends check the same things, so that both logs say what does not fit. Addresses are not among them: a
controller that moves to another host stays the same voter, and its peers may learn the new address one after
the other. What a stranger says may end up in a log, so it is cut and escaped there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import Enum

from google.protobuf.message import DecodeError

from tailrace.cluster.rpc.identity import PeerIdentity
from tailrace.v1.raft_pb2 import RaftHello

PROTOCOL_VERSION = 1
HELLO_KEY = "tailrace-raft-hello-bin"

_MAX_SHOWN = 64


class Cause(Enum):
    """Why a link is refused; few and fixed, so that events can be counted and limited by it."""

    MALFORMED = "malformed"
    IDENTITY = "identity"
    VERSION = "version"
    CLUSTER = "cluster"
    VOTERS = "voters"
    TARGET = "target"


class RefusalError(Exception):
    """`str()` tells people at both ends what does not fit."""

    def __init__(self, cause: Cause, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


def voters_digest(voters: Iterable[int]) -> bytes:
    return hashlib.sha256(",".join(str(voter) for voter in sorted(voters)).encode()).digest()


class Greeter:
    """What this controller says of itself and demands of others."""

    def __init__(self, node_id: int, voters: Iterable[int], cluster_id: Callable[[], str]) -> None:
        self._node_id = node_id
        self._voters = frozenset(voters)
        self._digest = voters_digest(self._voters)
        self._cluster_id = cluster_id

    def hello(self, target: int) -> bytes:
        return RaftHello(
            protocol_version=PROTOCOL_VERSION,
            cluster_id=self._cluster_id(),
            voters_digest=self._digest,
            node_id=self._node_id,
            target_node_id=target,
        ).SerializeToString()

    def check_caller(self, data: bytes, identity: PeerIdentity | None) -> int:
        """The voter that calls. `identity` is the certificate's; None where the link has no TLS."""
        if identity is not None:
            self._check_certificate(identity)
        hello = _parse(data)
        if identity is not None and hello.node_id != identity.node_id:
            raise RefusalError(
                Cause.IDENTITY, f"the hello is of node {hello.node_id}, the certificate of {identity.node_id}"
            )
        if hello.node_id not in self._voters or hello.node_id == self._node_id:
            raise RefusalError(Cause.IDENTITY, f"node {hello.node_id} is no other voter of this quorum")
        self._check(hello)
        return hello.node_id

    def check_called(self, data: bytes, expected: int) -> None:
        """Checks the answer of the voter that was called. With TLS its certificate was checked before."""
        hello = _parse(data)
        if hello.node_id != expected:
            raise RefusalError(Cause.TARGET, f"node {hello.node_id} answered where node {expected} should be")
        self._check(hello)

    def _check_certificate(self, identity: PeerIdentity) -> None:
        if identity.node_id is None:
            raise RefusalError(
                Cause.IDENTITY, f"the certificate of {_shown(identity.principal or '')} is not a node's"
            )
        if identity.node_id not in self._voters:
            raise RefusalError(Cause.IDENTITY, f"node {identity.node_id} is no voter of this quorum")

    def _check(self, hello: RaftHello) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            raise RefusalError(
                Cause.VERSION,
                f"node {hello.node_id} speaks version {hello.protocol_version} of the Raft links, node"
                f" {self._node_id} version {PROTOCOL_VERSION}; run releases that share one",
            )
        ours = self._cluster_id()
        if hello.cluster_id and ours and hello.cluster_id != ours:
            raise RefusalError(
                Cause.CLUSTER,
                f"node {hello.node_id} belongs to cluster {_shown(hello.cluster_id)}, node {self._node_id} to"
                f" {_shown(ours)}; check the addresses, or whether a directory is of another cluster",
            )
        if hello.voters_digest != self._digest:
            raise RefusalError(
                Cause.VOTERS,
                f"node {hello.node_id} and node {self._node_id} have different voters; give"
                " controller.quorum.voters the same node ids on both",
            )
        if hello.target_node_id != self._node_id:
            raise RefusalError(
                Cause.TARGET,
                f"node {hello.node_id} looked for node {hello.target_node_id} and found node {self._node_id};"
                " check the addresses in controller.quorum.voters",
            )


def _parse(data: bytes) -> RaftHello:
    try:
        return RaftHello.FromString(data)
    except DecodeError:
        raise RefusalError(
            Cause.MALFORMED, "the hello cannot be read; is it a controller that calls?"
        ) from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")
