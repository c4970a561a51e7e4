"""Servers and channels for tests, the same over gRPC on loopback and in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tailrace.cluster.rpc.memory import MemoryNetwork
from tailrace.cluster.rpc.options import ChannelLimits
from tailrace.cluster.rpc.service import Service
from tailrace.cluster.rpc.transport import Listener, RpcChannel, Transport, call_to

T = TypeVar("T")

DEADLINE_S = 30.0
LOOPBACK = "127.0.0.1"
ECHO = call_to("Test", "Echo", StringValue, StringValue)
TALK = call_to("Test", "Talk", StringValue, StringValue)
LARGE = call_to("Test", "Large", BytesValue, BytesValue)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Runs a test's coroutine with a deadline, so that a hang says where it was."""

    async def limited() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await main()

    return asyncio.run(limited())


def transport(kind: str) -> Transport:
    return GrpcTransport() if kind == "grpc" else MemoryNetwork().host(LOOPBACK)


@asynccontextmanager
async def serving(
    used: Transport, *services: Service, limits: ChannelLimits | None = None
) -> AsyncIterator[RpcChannel]:
    """A server with `services` on a port of its own, and a channel to it."""
    server = used.server([Listener(address=Address(LOOPBACK, 0))], services)
    [port] = await server.start()
    channel = used.channel(Address(LOOPBACK, port), limits=limits)
    try:
        yield channel
    finally:
        await channel.close()
        await server.stop(0)
