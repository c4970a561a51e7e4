"""Both ends of the network, as services and their callers see them, whatever carries the bytes.

`grpc_transport` does it over gRPC, `memory` within a process, for tests and simulations. Both serialise every
message, and keep the same promises:

- A `TailraceError` that a handler raises is raised at the caller, with code, message and error metadata.
- What the network does to a call is a `TailraceError` too: CONNECTION_LOST, REQUEST_TIMED_OUT and so on.
- A handler whose caller has gone, or whose time is over, is cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.rpc.options import ChannelLimits, ServerLimits
from tailrace.cluster.rpc.service import DEFAULT_MAX_MESSAGE_BYTES, Codec, MessageCodec, Service, method_path
from tailrace.cluster.rpc.tls import TlsSettings

Request = TypeVar("Request")
Response = TypeVar("Response")
RequestMessage = TypeVar("RequestMessage", bound=Message)
ResponseMessage = TypeVar("ResponseMessage", bound=Message)
Request_contra = TypeVar("Request_contra", contravariant=True)
Response_co = TypeVar("Response_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Request, Response]):
    """A method as its caller names it."""

    path: str
    request: Codec
    response: Codec
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    """Of a request; a larger one is refused before it is sent."""


def call_to(
    service: str, method: str, request: type[RequestMessage], response: type[ResponseMessage]
) -> Call[RequestMessage, ResponseMessage]:
    """`method` of the service that is called `service` in package tailrace.v1."""
    return Call(
        path=method_path(service, method), request=MessageCodec(request), response=MessageCodec(response)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    address: Address
    """Port 0 lets the system choose one."""
    tls: TlsSettings | None = None
    allow_plaintext: bool = False
    """Plain text also beyond this machine."""


class RpcServer(Protocol):
    """Some services on some listeners."""

    async def start(self) -> tuple[int, ...]:
        """Takes calls from now on; the ports, in the order of the listeners."""

    async def stop(self, grace_s: float) -> None:
        """Takes no more calls, waits up to `grace_s` for those under way, and cancels the rest."""


class BidiStream(Protocol[Request_contra, Response_co]):
    """The caller's end of a stream. One task may send while another one receives."""

    async def send(self, request: Request_contra) -> None:
        """Waits while the other end does not keep up; raises what ended the stream, once it has ended."""

    async def half_close(self) -> None:
        """No more requests will come; responses still do."""

    def cancel(self) -> None:
        """Ends it at once, in both directions; whoever waits on it gets CLIENT_CLOSED."""

    def __aiter__(self) -> AsyncIterator[Response_co]:
        """The responses, until the handler returns; raises what it raised, or CONNECTION_LOST."""

    async def __anext__(self) -> Response_co: ...


class RpcChannel(Protocol):
    """A connection to one address. It is made when first needed, and again after it was lost."""

    async def unary(self, call: Call[Request, Response], request: Request, timeout_s: float) -> Response:
        """One request, one response; REQUEST_TIMED_OUT when it takes longer."""

    def stream(
        self, call: Call[Request, Response], timeout_s: float | None = None
    ) -> BidiStream[Request, Response]:
        """Opens a stream; whether that worked shows at the first `send` or response."""

    async def close(self) -> None:
        """What is under way ends with CLIENT_CLOSED, and so does every later call."""


class Transport(Protocol):
    """Makes both ends. A node is given one, and never asks which."""

    def server(
        self,
        listeners: Sequence[Listener],
        services: Sequence[Service],
        limits: ServerLimits | None = None,
    ) -> RpcServer: ...

    def channel(
        self,
        address: Address,
        *,
        tls: TlsSettings | None = None,
        allow_plaintext: bool = False,
        node_id: int | None = None,
        limits: ChannelLimits | None = None,
    ) -> RpcChannel:
        """With `node_id` the other end must be that node, which only TLS can prove."""
