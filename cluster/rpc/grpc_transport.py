"""The transport over gRPC, on the event loop: servers and channels of `transport`'s forms.

Messages cross gRPC as bytes; the codecs of the methods are applied here and in `dispatch`, so that a message
that cannot be read is our error and not gRPC's. Must be used on one event loop of the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from typing import Any, Generic, NoReturn, TypeVar, cast

import grpc

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.dispatch import Bound, bind, decode_answer, encode
from tailrace.cluster.rpc.failures import Failure, error_of, failure_of
from tailrace.cluster.rpc.identity import identity_from, node_name
from tailrace.cluster.rpc.options import ChannelLimits, ServerLimits, channel_options, server_options
from tailrace.cluster.rpc.service import CallContext, Service
from tailrace.cluster.rpc.tls import TlsSettings, channel_credentials, server_credentials
from tailrace.cluster.rpc.transport import Call, Listener

Request = TypeVar("Request")
Response = TypeVar("Response")
Result = TypeVar("Result")
ServerContext = grpc.aio.ServicerContext[bytes, bytes]


class GrpcTransport:
    def server(
        self,
        listeners: Sequence[Listener],
        services: Sequence[Service],
        limits: ServerLimits | None = None,
    ) -> GrpcServer:
        return GrpcServer(listeners, services, limits if limits is not None else ServerLimits())

    def channel(
        self,
        address: Address,
        *,
        tls: TlsSettings | None = None,
        allow_plaintext: bool = False,
        node_id: int | None = None,
        limits: ChannelLimits | None = None,
    ) -> GrpcChannel:
        credentials = channel_credentials(address, tls, allow_plaintext=allow_plaintext)
        name = None if node_id is None or credentials is None else node_name(node_id)
        options = channel_options(limits if limits is not None else ChannelLimits(), server_name=name)
        if credentials is None:
            channel = grpc.aio.insecure_channel(str(address), options=options)
        else:
            channel = grpc.aio.secure_channel(str(address), credentials, options=options)
        return GrpcChannel(channel, address)


class GrpcServer:
    def __init__(
        self, listeners: Sequence[Listener], services: Sequence[Service], limits: ServerLimits
    ) -> None:
        if not listeners:
            raise ValueError("a server needs a listener")
        self._listeners = listeners
        self._services = services
        self._limits = limits
        self._bound = bind(services)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> tuple[int, ...]:
        largest = max((service.max_message_bytes for service in self._services), default=0)
        server = grpc.aio.server(options=server_options(self._limits, max_message_bytes=largest))
        for service in self._services:
            handlers = {name: _handler(self._bound[service.path(name)]) for name in service.methods}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            server.add_generic_rpc_handlers((generic,))
        ports = tuple(_listen(server, listener) for listener in self._listeners)
        await server.start()
        self._server = server
        return ports

    async def stop(self, grace_s: float) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)


def _listen(server: grpc.aio.Server, listener: Listener) -> int:
    credentials = server_credentials(listener.address, listener.tls, allow_plaintext=listener.allow_plaintext)
    try:
        if credentials is None:
            return server.add_insecure_port(str(listener.address))
        return server.add_secure_port(str(listener.address), credentials)
    except RuntimeError:
        raise TailraceError(
            ErrorCode.INVALID_CONFIG,
            f"cannot listen on {listener.address}: the address is in use or not one of this machine",
        ) from None


def _handler(bound: Bound) -> grpc.RpcMethodHandler[bytes, bytes]:
    async def unary(data: bytes, context: ServerContext) -> bytes:
        life = _Life()
        try:
            return await bound.unary(data, _call_context(context, life))
        except TailraceError as error:
            await _abort(context, error)
        finally:
            life.over = True

    async def stream(requests: AsyncIterator[bytes], context: ServerContext) -> None:
        # Written by hand, because gRPC leaves a generator that it no longer needs to the garbage collector.
        life = _Life()
        try:
            async with aclosing(bound.stream(requests, _call_context(context, life))) as responses:
                async for response in responses:
                    await context.write(response)
        except TailraceError as error:
            await _abort(context, error)
        finally:
            life.over = True

    if bound.method.unary is not None:
        return grpc.unary_unary_rpc_method_handler(unary)
    return grpc.stream_stream_rpc_method_handler(stream)


class _Life:
    """Whether a call is over. gRPC's own context says so too late for work that outlives its handler."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


def _call_context(context: ServerContext, life: _Life) -> CallContext:
    known = cast(Any, context.auth_context())
    left = cast("float | None", context.time_remaining())
    loop = asyncio.get_running_loop()
    return CallContext(
        peer=identity_from(known),
        address=context.peer(),
        secure=b"ssl" in known.get("transport_security_type", ()),
        deadline=None if left is None else loop.time() + left,
        is_over=lambda: life.over or context.cancelled() or context.done(),
    )


async def _abort(context: ServerContext, error: TailraceError) -> NoReturn:
    failure = failure_of(error)
    await context.abort(failure.status, failure.message, failure.metadata)


class GrpcChannel:
    def __init__(self, channel: grpc.aio.Channel, address: Address) -> None:
        self._channel = channel
        self._address = address
        self._closed = False

    async def unary(self, call: Call[Request, Response], request: Request, timeout_s: float) -> Response:
        where = f"{self._address} {call.path}"
        data = encode(call.request, request, call.path, call.max_message_bytes)
        self._demand_open(where)
        invoke: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(call.path)
        answer = await _translated(invoke(data, timeout=timeout_s), where)
        return cast(Response, decode_answer(call.response, answer, call.path))

    def stream(
        self, call: Call[Request, Response], timeout_s: float | None = None
    ) -> GrpcStream[Request, Response]:
        where = f"{self._address} {call.path}"
        self._demand_open(where)
        invoke: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = self._channel.stream_stream(call.path)
        return GrpcStream(invoke(timeout=timeout_s), call, where)

    async def close(self) -> None:
        self._closed = True
        await self._channel.close(None)

    def _demand_open(self, where: str) -> None:
        if self._closed:
            raise TailraceError(ErrorCode.CLIENT_CLOSED, f"{where}: the channel is closed")


class GrpcStream(Generic[Request, Response]):
    def __init__(
        self, stream: grpc.aio.StreamStreamCall[bytes, bytes], call: Call[Request, Response], where: str
    ) -> None:
        self._stream = stream
        self._call = call
        self._where = where

    async def send(self, request: Request) -> None:
        data = encode(self._call.request, request, self._call.path, self._call.max_message_bytes)
        try:
            await _translated(self._stream.write(data), self._where)
        except asyncio.InvalidStateError:
            raise await self._ending() from None

    async def half_close(self) -> None:
        await _translated(self._stream.done_writing(), self._where)

    def cancel(self) -> None:
        self._stream.cancel()

    def __aiter__(self) -> GrpcStream[Request, Response]:
        return self

    async def __anext__(self) -> Response:
        data = await _translated(self._stream.read(), self._where)
        if data is grpc.aio.EOF:
            raise StopAsyncIteration
        return cast(Response, decode_answer(self._call.response, cast(bytes, data), self._call.path))

    async def _ending(self) -> TailraceError:
        """Why nothing can be sent any more."""
        if self._stream.cancelled():
            return _closed(self._where)
        code, details = await self._stream.code(), await self._stream.details()
        metadata = tuple(await self._stream.trailing_metadata())
        return error_of(Failure(code, details or "the other end has ended the stream", metadata), self._where)


async def _translated(operation: Awaitable[Result], where: str) -> Result:
    """Awaits an operation of gRPC, and turns how it failed into a `TailraceError`."""
    try:
        return await operation
    except grpc.aio.AioRpcError as error:
        metadata = tuple(cast(Any, error.trailing_metadata() or ()))
        raise error_of(Failure(error.code(), error.details() or "", metadata), where) from None
    except grpc.aio.UsageError:
        raise _closed(where) from None
    except asyncio.CancelledError:
        # gRPC cancels its own operations when a channel or stream is closed, and the task that waits for
        # one cannot tell that from being cancelled itself.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _closed(where) from None


def _closed(where: str) -> TailraceError:
    return TailraceError(ErrorCode.CLIENT_CLOSED, f"{where}: it was closed on this side")
