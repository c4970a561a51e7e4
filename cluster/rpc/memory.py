"""The transport within one process, for tests and simulations: no socket, no thread, no clock of its own.

Everything runs on the event loop that the test or simulator provides, time included, so a history repeats
when the loop repeats. Messages are serialised and parsed as on the wire, pass through bounded pipes as
through the windows of HTTP/2, and errors take the same form as in gRPC (`failures`), so what holds here
holds there.

A `MemoryNetwork` has hosts, known by name; a host's transport calls with the identity of that host, as its
certificate would say it. `Faults` decides what happens to each message on its way; `MemoryNetwork.cut`
breaks what is established. Files of certificates are not read, and plain text is not refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Generic, NamedTuple, NoReturn, Protocol, TypeVar, cast

import grpc

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.dispatch import Bound, bind, decode_answer, encode
from tailrace.cluster.rpc.failures import Failure, error_of, failure_of
from tailrace.cluster.rpc.identity import NOBODY, PeerIdentity
from tailrace.cluster.rpc.options import ChannelLimits, ServerLimits
from tailrace.cluster.rpc.pipes import Pipe, PipeEndedError
from tailrace.cluster.rpc.service import CallContext, Service
from tailrace.cluster.rpc.tls import TlsSettings
from tailrace.cluster.rpc.transport import Call, Listener

Request = TypeVar("Request")
Response = TypeVar("Response")

LOST = Failure(grpc.StatusCode.UNAVAILABLE, "the connection broke")
_TIMED_OUT = Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time")
_STOPPED = Failure(grpc.StatusCode.UNAVAILABLE, "the server has stopped")
_UNKNOWN_METHOD = Failure(grpc.StatusCode.UNIMPLEMENTED, "there is no such method")
_FIRST_PORT = 20_000


class Faults(Protocol):
    def delay(self, source: str, target: str) -> float | None:
        """Seconds that the next message from host `source` takes to `target`; None: the connection breaks."""


class NoFaults:
    def delay(self, source: str, target: str) -> float | None:
        return 0.0


class Host(NamedTuple):
    name: str
    identity: PeerIdentity


class MemoryNetwork:
    def __init__(self, faults: Faults | None = None) -> None:
        self.faults: Faults = faults if faults is not None else NoFaults()
        self._servers: dict[Address, MemoryServer] = {}
        self._calls: dict[MemoryCall, None] = {}  # A dict, because its order repeats and a set's does not.
        self._next_port = _FIRST_PORT

    def host(self, name: str, identity: PeerIdentity = NOBODY) -> MemoryTransport:
        return MemoryTransport(self, Host(name, identity))

    def cut(self, one: str, other: str) -> None:
        """Breaks every call between two hosts, as a lost connection does; new calls may follow."""
        for call in list(self._calls):
            if {call.source, call.target} == {one, other}:
                call.break_off(LOST)

    def register(self, host: Host, port: int, server: MemoryServer) -> Address:
        if port == 0:
            port, self._next_port = self._next_port, self._next_port + 1
        address = Address(host.name, port)
        if address in self._servers:
            raise TailraceError(ErrorCode.INVALID_CONFIG, f"cannot listen on {address}: it is in use")
        self._servers[address] = server
        return address

    def unregister(self, address: Address) -> None:
        self._servers.pop(address, None)

    def open(self, source: Host, address: Address, path: str, wanted: int | None) -> MemoryCall:
        """Starts a call; what is wrong with it shows when it is used, as in a real network."""
        target = Address(source.name, address.port) if address.is_loopback else address
        call = MemoryCall(self, source.name, target.host)
        server = self._servers.get(target)
        if server is None:
            call.break_off(Failure(grpc.StatusCode.UNAVAILABLE, f"nobody listens on {target}"))
        elif wanted is not None and server.host.identity.node_id not in (None, wanted):
            call.break_off(Failure(grpc.StatusCode.UNAVAILABLE, f"{target} is not node {wanted}"))
        else:
            self._calls[call] = None
            server.accept(call, source, path)
        return call

    def forget(self, call: MemoryCall) -> None:
        self._calls.pop(call, None)


class MemoryTransport:
    def __init__(self, network: MemoryNetwork, host: Host) -> None:
        self._network = network
        self._host = host

    def server(
        self,
        listeners: Sequence[Listener],
        services: Sequence[Service],
        limits: ServerLimits | None = None,
    ) -> MemoryServer:
        return MemoryServer(self._network, self._host, listeners, services)

    def channel(
        self,
        address: Address,
        *,
        tls: TlsSettings | None = None,
        allow_plaintext: bool = False,
        node_id: int | None = None,
        limits: ChannelLimits | None = None,
    ) -> MemoryChannel:
        return MemoryChannel(self._network, self._host, address, node_id, limits or ChannelLimits())


class MemoryCall:
    """A call under way: two pipes, the handler's task, and the caller's patience."""

    def __init__(self, network: MemoryNetwork, source: str, target: str) -> None:
        self._network = network
        self.source = source
        self.target = target
        self.requests = Pipe(lambda: network.faults.delay(source, target), self._lose)
        self.responses = Pipe(lambda: network.faults.delay(target, source), self._lose)
        self.deadline: float | None = None
        self.is_answered = False
        """The handler has returned; its answer may still be on its way."""
        self.is_over = False
        """The caller has seen the end, or the call was broken off."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def limit(self, timeout_s: float | None) -> None:
        if timeout_s is not None and not self.is_over:
            loop = asyncio.get_running_loop()
            self.deadline = loop.time() + timeout_s
            self._timer = loop.call_at(self.deadline, self.break_off, _TIMED_OUT)

    def serve(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def break_off(self, failure: Failure) -> None:
        """Ends it at once for both ends; the handler is cancelled."""
        self.requests.break_off(failure)
        self.responses.break_off(failure)
        if self._task is not None and not self.is_answered:
            self._task.cancel()
        self.end()

    def end(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._network.forget(self)

    def _lose(self) -> None:
        self.break_off(LOST)


class MemoryServer:
    def __init__(
        self,
        network: MemoryNetwork,
        host: Host,
        listeners: Sequence[Listener],
        services: Sequence[Service],
    ) -> None:
        self.host = host
        self._network = network
        self._listeners = listeners
        self._bound = bind(services)
        self._addresses: list[Address] = []
        self._tasks: dict[asyncio.Task[None], MemoryCall] = {}

    async def start(self) -> tuple[int, ...]:
        for listener in self._listeners:
            self._addresses.append(self._network.register(self.host, listener.address.port, self))
        return tuple(address.port for address in self._addresses)

    async def stop(self, grace_s: float) -> None:
        for address in self._addresses:
            self._network.unregister(address)
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=grace_s)
        for call in list(self._tasks.values()):
            call.break_off(_STOPPED)
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def accept(self, call: MemoryCall, source: Host, path: str) -> None:
        bound = self._bound.get(path)
        if bound is None:
            call.break_off(_UNKNOWN_METHOD)
            return
        task = asyncio.get_running_loop().create_task(self._serve(bound, call, source))
        self._tasks[task] = call
        task.add_done_callback(self._tasks.pop)
        call.serve(task)

    async def _serve(self, bound: Bound, call: MemoryCall, source: Host) -> None:
        context = CallContext(
            peer=source.identity,
            address=f"memory:{source.name}",
            deadline=call.deadline,
            secure=source.identity is not NOBODY,
            is_over=lambda: call.is_over or call.is_answered,
        )
        failure = None
        try:
            if bound.method.unary is not None:
                await call.responses.put(await bound.unary(await call.requests.get(), context))
            else:
                async with aclosing(bound.stream(_read(call.requests), context)) as responses:
                    async for response in responses:
                        await call.responses.put(response)
        except TailraceError as error:
            failure = failure_of(error)
        except PipeEndedError as ended:
            failure = ended.failure
        call.is_answered = True
        call.responses.finish(failure)
        call.requests.finish(failure)


async def _read(pipe: Pipe) -> AsyncIterator[bytes]:
    while True:
        try:
            data = await pipe.get()
        except PipeEndedError:
            return  # If the caller has gone, the handler is cancelled besides.
        yield data


class MemoryChannel:
    def __init__(
        self,
        network: MemoryNetwork,
        host: Host,
        address: Address,
        node_id: int | None,
        limits: ChannelLimits,
    ) -> None:
        self._network = network
        self._host = host
        self._address = address
        self._node_id = node_id
        self._limits = limits
        self._closed = False
        self._streams: dict[MemoryStream[object, object], None] = {}

    async def unary(self, call: Call[Request, Response], request: Request, timeout_s: float) -> Response:
        stream = self.stream(call, timeout_s)
        try:
            await stream.send(request)
            await stream.half_close()
            async for response in stream:
                return response
        finally:
            stream.cancel()
        raise TailraceError(ErrorCode.CONNECTION_LOST, f"{self._address} {call.path}: no answer came")

    def stream(
        self, call: Call[Request, Response], timeout_s: float | None = None
    ) -> MemoryStream[Request, Response]:
        where = f"{self._address} {call.path}"
        if self._closed:
            raise TailraceError(ErrorCode.CLIENT_CLOSED, f"{where}: the channel is closed")
        opened = self._network.open(self._host, self._address, call.path, self._node_id)
        opened.limit(timeout_s)
        stream = MemoryStream(opened, call, where, self._limits.max_message_bytes)
        self._streams = {one: None for one in self._streams if not one.is_over}
        self._streams[cast("MemoryStream[object, object]", stream)] = None
        return stream

    async def close(self) -> None:
        self._closed = True
        for stream in list(self._streams):
            stream.cancel()


class MemoryStream(Generic[Request, Response]):
    def __init__(
        self, opened: MemoryCall, call: Call[Request, Response], where: str, max_answer_bytes: int
    ) -> None:
        self._opened = opened
        self._call = call
        self._where = where
        self._max_answer_bytes = max_answer_bytes
        self._cancelled = False

    @property
    def is_over(self) -> bool:
        return self._opened.is_over

    async def send(self, request: Request) -> None:
        data = encode(self._call.request, request, self._call.path, self._call.max_message_bytes)
        try:
            await self._opened.requests.put(data)
        except PipeEndedError as ended:
            self._raise(ended.failure)

    async def half_close(self) -> None:
        self._opened.requests.finish(None)

    def cancel(self) -> None:
        if not self._opened.is_over:
            self._cancelled = True
            self._opened.break_off(LOST)

    def __aiter__(self) -> MemoryStream[Request, Response]:
        return self

    async def __anext__(self) -> Response:
        try:
            data = await self._opened.responses.get()
        except PipeEndedError as ended:
            self._opened.end()
            if ended.failure is None:
                raise StopAsyncIteration from None
            self._raise(ended.failure)
        if len(data) > self._max_answer_bytes:
            self.cancel()
            too_large = f"Received message larger than max ({len(data)} vs. {self._max_answer_bytes})"
            raise error_of(Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, too_large), self._where)
        return cast(Response, decode_answer(self._call.response, data, self._call.path))

    def _raise(self, failure: Failure | None) -> NoReturn:
        if self._cancelled:
            raise TailraceError(ErrorCode.CLIENT_CLOSED, f"{self._where}: it was closed on this side")
        ended = Failure(grpc.StatusCode.UNAVAILABLE, "the other end has ended the stream")
        raise error_of(failure if failure is not None else ended, self._where)
