"""Who the other end of a connection is, as its certificate says.

A node's certificate carries the DNS name `tailrace-node-<id>` among its subject alternative names. A DNS
name, and not a URI, because it can be checked from both ends: a server reads it from the certificate of its
caller, and a caller makes TLS itself insist on it (it is the name that the server's certificate must be
valid for). The common name is what people and access rules call the holder, the principal.

Only the certificate counts: what a message says of its sender is compared with it and never trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

NODE_NAME_PREFIX = "tailrace-node-"
MAX_NODE_ID = 2**31 - 1

# A certificate need not have a common name; then the whole subject is the principal.
_PRINCIPAL_KEYS = ("x509_common_name", "x509_subject")
_UNNAMED = "unnamed"
_NODE_NAME = re.compile(re.escape(NODE_NAME_PREFIX) + r"(0|[1-9][0-9]{0,9})")


class PeerIdentity(NamedTuple):
    """Both are None for a caller that showed no certificate; one that did always has a principal."""

    principal: str | None
    node_id: int | None


NOBODY = PeerIdentity(None, None)


def node_name(node_id: int) -> str:
    """The DNS name that stands in the certificate of node `node_id`."""
    if not 0 <= node_id <= MAX_NODE_ID:
        raise ValueError(f"node id {node_id} is not possible: it must be from 0 to {MAX_NODE_ID}")
    return f"{NODE_NAME_PREFIX}{node_id}"


def is_node_name(name: str) -> bool:
    """Whether a name looks like a node's, even one that no node can have."""
    return name.lower().startswith(NODE_NAME_PREFIX)


def node_id_of(names: Iterable[str]) -> int | None:
    """The one node that `names` speak of.

    None when they name no node, and also when they name several or one in a wrong way: a certificate
    that leaves open who its holder is identifies nobody.
    """
    claimed = {name.lower() for name in names if is_node_name(name)}
    if len(claimed) != 1:
        return None
    match = _NODE_NAME.fullmatch(claimed.pop())
    if match is None or int(match[1]) > MAX_NODE_ID:
        return None
    return int(match[1])


def identity_from(auth_context: Mapping[str, Sequence[bytes]]) -> PeerIdentity:
    """The identity in what gRPC tells of a call's peer; it holds only what was verified against the CA."""
    if "x509_pem_cert" not in auth_context:
        return NOBODY
    names = [_text(name) for name in auth_context.get("peer_dns", ())]
    principal = next(
        (_text(name) for key in _PRINCIPAL_KEYS for name in auth_context.get(key, ()) if name), _UNNAMED
    )
    return PeerIdentity(principal, node_id_of(names))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
