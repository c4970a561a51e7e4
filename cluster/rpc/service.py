"""What a service is to the transport: a name, and methods with handlers.

A handler knows nothing of gRPC: it takes messages and a `CallContext`, and returns or yields messages, or
raises `TailraceError`. So the same service runs behind gRPC and, in memory, in simulations.

On the wire every stream is one in both directions; a caller that has one request sends it and half-closes,
which is what the stubs of other languages do for a method declared with one request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from google.protobuf.message import Message

from tailrace.cluster.rpc.identity import NOBODY, PeerIdentity

PACKAGE = "tailrace.v1"
DEFAULT_MAX_MESSAGE_BYTES = 4 << 20


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Who calls. `deadline` is in the event loop's time, None for none."""

    peer: PeerIdentity = NOBODY
    address: str = ""
    deadline: float | None = None
    secure: bool = False
    """The call came over TLS; its caller may still have shown no certificate."""
    is_over: Callable[[], bool] = _never

    @property
    def cancelled(self) -> bool:
        """The caller no longer waits. A handler is cancelled then; work that it shielded can ask here."""
        return self.is_over()


Unary = Callable[[Any, CallContext], Awaitable[Any]]
Stream = Callable[[AsyncIterator[Any], CallContext], AsyncIterator[Any]]


class Codec(Protocol):
    """Messages to bytes and back; hot paths have their own."""

    def encode(self, message: Any) -> bytes: ...

    def decode(self, data: bytes) -> Any: ...


@dataclass(frozen=True, slots=True)
class MessageCodec:
    kind: type[Message]

    def encode(self, message: Any) -> bytes:
        return bytes(message.SerializeToString())

    def decode(self, data: bytes) -> Any:
        return self.kind.FromString(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Exactly one of the handlers is there."""

    name: str
    request: Codec
    response: Codec
    unary: Unary | None = None
    stream: Stream | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    name: str
    methods: Mapping[str, Method] = field(default_factory=dict)
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    """Of a request or a response; a larger one is refused."""

    @property
    def full_name(self) -> str:
        return f"{PACKAGE}.{self.name}"

    def path(self, method: str) -> str:
        return method_path(self.name, method)


def method_path(service: str, method: str) -> str:
    return f"/{PACKAGE}.{service}/{method}"


def unary(name: str, request: type[Message], response: type[Message], handler: Unary) -> Method:
    return Method(name=name, request=MessageCodec(request), response=MessageCodec(response), unary=handler)


def stream(name: str, request: type[Message], response: type[Message], handler: Stream) -> Method:
    return Method(name=name, request=MessageCodec(request), response=MessageCodec(response), stream=handler)


def service(name: str, *methods: Method, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> Service:
    return Service(
        name=name,
        methods={method.name: method for method in methods},
        max_message_bytes=max_message_bytes,
    )
