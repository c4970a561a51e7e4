"""What a controller asks of other nodes: a broker whether it is still there, the active controller to take a
registration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import BrokerImage, EndpointImage
from tailrace.cluster.controller.active import ActiveController
from tailrace.cluster.rpc.tls import TlsSettings
from tailrace.cluster.rpc.transport import RpcChannel, Transport, call_to
from tailrace.v1.controller_pb2 import RegisterControllerResponse
from tailrace.v1.metadata_pb2 import ControllerRegistered
from tailrace.v1.node_pb2 import IdentifyRequest, IdentifyResponse

_IDENTIFY = call_to("Node", "Identify", IdentifyRequest, IdentifyResponse)
_REGISTER = call_to("Controller", "RegisterController", ControllerRegistered, RegisterControllerResponse)

ASK_SECONDS = 0.5
REGISTER_SECONDS = 5.0


class PeerCalls:
    def __init__(self, *, transport: Transport, tls: TlsSettings | None, allow_plaintext: bool) -> None:
        self._transport = transport
        self._tls = tls
        self._allow_plaintext = allow_plaintext

    async def is_there(self, broker: BrokerImage) -> bool:
        """False only when that is sure: its port is closed, or another process answers there.

        Silence proves nothing: it may be the network, and the session timeout will tell.
        """
        endpoint = _endpoint_of({one.listener: one for one in broker.endpoints}, "CLUSTER")
        if endpoint is None:
            return True
        if await _refuses_connections(endpoint):
            return False
        channel = self._channel(endpoint, broker.broker_id)
        try:
            answer = await channel.unary(_IDENTIFY, IdentifyRequest(), ASK_SECONDS)
        except TailraceError:
            return True
        finally:
            await channel.close()
        return bool(answer.incarnation == broker.incarnation.bytes)

    async def register(self, active: ActiveController, registration: ControllerRegistered) -> None:
        """With another controller that is active; raises TailraceError when it did not take it."""
        hint = active.not_controller().hint
        if hint is None or hint.endpoint is None:
            raise TailraceError(ErrorCode.CONTROLLER_NOT_AVAILABLE, "no active controller is known yet")
        channel = self._channel(hint.endpoint, hint.node_id)
        try:
            answer = await channel.unary(_REGISTER, registration, REGISTER_SECONDS)
        finally:
            await channel.close()
        if answer.HasField("error"):
            raise TailraceError(ErrorCode(answer.error.code), answer.error.message)  # type: ignore[call-arg]

    def _channel(self, endpoint: EndpointImage, node_id: int) -> RpcChannel:
        return self._transport.channel(
            Address(endpoint.host, endpoint.port),
            tls=self._tls if endpoint.tls else None,
            allow_plaintext=self._allow_plaintext,
            node_id=node_id,
        )


def _endpoint_of(endpoints: Mapping[str, EndpointImage], listener: str) -> EndpointImage | None:
    return endpoints.get(listener) or next(iter(endpoints.values()), None)


async def _refuses_connections(endpoint: EndpointImage) -> bool:
    """A closed port is answered at once, where gRPC would go on trying."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            _, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False
