"""What a node says of itself when it registers, checked before anything is made of it.

Each check raises a TailraceError that names the node's own words and what to change in its node.toml. Used
for brokers and for controllers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import FeatureSupport
from tailrace.v1 import metadata_pb2 as pb

LONGEST_TEXT = 255

# Addresses to listen on, not to be reached at.
_EVERY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]", "*"})
_HOST = re.compile(r"[A-Za-z0-9._:%\[\]-]+")
_LISTENER = re.compile(r"[A-Za-z0-9_.-]+")


def check_node_id(node_id: int) -> None:
    if node_id < 0:
        raise _invalid(f"{node_id} cannot be a node's id: set node.id to 0 or more")


def checked_id(value: bytes, what: str) -> UUID:
    """A UUID of 16 bytes that are not all zero; `what` names it ("the incarnation")."""
    if len(value) != 16:
        raise _invalid(f"{what} has {len(value)} bytes; it must be a UUID of 16")
    if not any(value):
        raise _invalid(f"{what} is all zeros; it must be a random UUID")
    return UUID(bytes=value)


def check_endpoints(endpoints: Iterable[pb.Endpoint]) -> None:
    listeners: set[str] = set()
    for endpoint in endpoints:
        shown = f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"
        if not _LISTENER.fullmatch(endpoint.listener):
            raise _invalid(
                f"the endpoint {shown} has no valid listener name: use letters, digits, '_', '.', '-'"
            )
        if endpoint.listener in listeners:
            raise _invalid(
                f"the listener {endpoint.listener} is named twice: name each once in advertised.listeners"
            )
        listeners.add(endpoint.listener)
        if endpoint.host in _EVERY_ADDRESS:
            raise _invalid(
                f"the endpoint {shown} cannot be reached from elsewhere: set advertised.listeners to a host "
                "name or address of this node"
            )
        if len(endpoint.host) > LONGEST_TEXT or not _HOST.fullmatch(endpoint.host):
            raise _invalid(f"the endpoint {shown} has no valid host: set advertised.listeners")
        if not 1 <= endpoint.port <= 65_535:
            raise _invalid(f"the endpoint {shown} has no valid port: it must be from 1 to 65535")
    if not listeners:
        raise _invalid("no endpoint is named: set listeners or advertised.listeners, at least one")


def checked_features(features: Iterable[pb.FeatureRange]) -> dict[str, FeatureSupport]:
    ranges: dict[str, FeatureSupport] = {}
    for one in features:
        if not one.name or one.name in ranges:
            raise _invalid(f"the feature {one.name!r} is empty or named twice")
        if not 0 <= one.min_level <= one.max_level:
            raise _invalid(f"the feature {one.name} has levels {one.min_level} to {one.max_level}")
        ranges[one.name] = FeatureSupport(one.min_level, one.max_level)
    return ranges


def checked_log_dirs(log_dirs: Iterable[pb.LogDir], owners: Mapping[UUID, int], broker_id: int) -> set[UUID]:
    """Those that are online. `owners` are the brokers of all directories known to the cluster."""
    every: set[UUID] = set()
    online: set[UUID] = set()
    for one in log_dirs:
        directory_id = checked_id(one.id, "a log directory's id")
        if directory_id in every:
            raise _invalid(
                f"the log directory {directory_id} is named twice: two directories of log.dirs hold the "
                "same id; take the copy out"
            )
        owner = owners.get(directory_id, broker_id)
        if owner != broker_id:
            raise _invalid(
                f"the log directory {directory_id} belongs to broker {owner}: set node.id to {owner}, take "
                f"the directory out of log.dirs, or unregister broker {owner} if it is gone for good"
            )
        every.add(directory_id)
        if one.online:
            online.add(directory_id)
    if not online:
        raise _invalid("no log directory is online: log.dirs must name at least one that works")
    return online


def check_text(text: str, setting: str) -> None:
    if len(text) > LONGEST_TEXT:
        raise _invalid(f"{setting} has {len(text)} characters; use {LONGEST_TEXT} or fewer")


def _invalid(message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_REQUEST, message)
