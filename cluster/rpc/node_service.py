"""The service that every node has on each of its listeners: who it is.

A controller asks it of a broker whose connection broke: the same process still there, another one in its
place, or nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tailrace.cluster.rpc.service import CallContext, Service, service, unary
from tailrace.v1.node_pb2 import IdentifyRequest, IdentifyResponse


def node_service(*, node_id: int, incarnation: UUID, release: str, cluster_id: Callable[[], str]) -> Service:
    async def identify(request: IdentifyRequest, context: CallContext) -> IdentifyResponse:
        return IdentifyResponse(
            node_id=node_id, incarnation=incarnation.bytes, cluster_id=cluster_id(), release=release
        )

    return service("Node", unary("Identify", IdentifyRequest, IdentifyResponse, identify))
