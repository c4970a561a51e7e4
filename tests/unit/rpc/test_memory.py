"""The network in memory: its time is the loop's, and its faults are the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.identity import PeerIdentity
from tailrace.cluster.rpc.memory import MemoryNetwork, MemoryServer
from tailrace.cluster.rpc.service import CallContext, service, stream, unary
from tailrace.cluster.rpc.transport import Listener
from tests.support.virtual_loop import run_virtually
from tests.unit.rpc.networks import ECHO, TALK


class Slow:
    """Each message takes as long as the list says; after it, no time at all."""

    def __init__(self, *delays: float | None) -> None:
        self._delays = list(delays)
        self.asked: list[tuple[str, str]] = []

    def delay(self, source: str, target: str) -> float | None:
        self.asked.append((source, target))
        return self._delays.pop(0) if self._delays else 0.0


def text(value: str) -> StringValue:
    return StringValue(value=value)


async def echo(request: StringValue, context: CallContext) -> StringValue:
    return request


async def talk(requests: AsyncIterator[StringValue], context: CallContext) -> AsyncIterator[StringValue]:
    async for request in requests:
        yield request


async def start(network: MemoryNetwork, identity: PeerIdentity | None = None) -> MemoryServer:
    served = service(
        "Test",
        unary("Echo", StringValue, StringValue, echo),
        stream("Talk", StringValue, StringValue, talk),
    )
    host = network.host("server") if identity is None else network.host("server", identity)
    server = host.server([Listener(address=Address("server", 9093))], [served])
    await server.start()
    return server


def test_call_takes_the_loops_time_when_messages_are_slow() -> None:
    async def main() -> None:
        faults = Slow(3.0, 4.0)
        network = MemoryNetwork(faults)
        await start(network)
        channel = network.host("client").channel(Address("server", 9093))
        before = asyncio.get_running_loop().time()
        await channel.unary(ECHO, text("a"), 10)
        assert asyncio.get_running_loop().time() - before == pytest.approx(7.0)
        assert faults.asked == [("client", "server"), ("server", "client")]

    run_virtually(main())


def test_call_times_out_in_the_loops_time_when_messages_are_too_slow() -> None:
    async def main() -> None:
        network = MemoryNetwork(Slow(3.0, 9.0))
        await start(network)
        channel = network.host("client").channel(Address("server", 9093))
        with pytest.raises(TailraceError) as raised:
            await channel.unary(ECHO, text("a"), 10)
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert asyncio.get_running_loop().time() == pytest.approx(10.0)

    run_virtually(main())


def test_messages_stay_in_order_when_a_later_one_is_faster() -> None:
    async def main() -> None:
        network = MemoryNetwork(Slow(5.0, 0.0, 1.0))
        await start(network)
        opened = network.host("client").channel(Address("server", 9093)).stream(TALK)
        for word in ("a", "b", "c"):
            await opened.send(text(word))
        await opened.half_close()
        assert [response.value async for response in opened] == ["a", "b", "c"]

    run_virtually(main())


@pytest.mark.parametrize("delays", [(None,), (0.0, None)], ids=["request", "response"])
def test_connection_is_lost_when_a_fault_takes_a_message(delays: tuple[float | None, ...]) -> None:
    async def main() -> None:
        network = MemoryNetwork(Slow(*delays))
        await start(network)
        channel = network.host("client").channel(Address("server", 9093))
        with pytest.raises(TailraceError) as raised:
            await channel.unary(ECHO, text("a"), 10)
        assert raised.value.code is ErrorCode.CONNECTION_LOST
        assert (await channel.unary(ECHO, text("b"), 10)).value == "b"

    run_virtually(main())


def test_answer_under_way_is_lost_when_the_connection_is_cut() -> None:
    async def main() -> None:
        network = MemoryNetwork(Slow(0.0, 5.0))
        await start(network)
        channel = network.host("client").channel(Address("server", 9093))
        other = network.host("other").channel(Address("server", 9093)).stream(TALK)
        asking = asyncio.ensure_future(channel.unary(ECHO, text("a"), 10))
        await asyncio.sleep(1)
        await other.send(text("unharmed"))
        network.cut("client", "server")
        with pytest.raises(TailraceError) as raised:
            await asking
        assert raised.value.code is ErrorCode.CONNECTION_LOST
        assert asyncio.get_running_loop().time() == pytest.approx(1.0)
        assert (await anext(other)).value == "unharmed"

    run_virtually(main())


def test_caller_has_the_identity_of_its_host_when_it_calls() -> None:
    async def main() -> None:
        contexts: list[CallContext] = []

        async def who(request: StringValue, context: CallContext) -> StringValue:
            contexts.append(context)
            return request

        network = MemoryNetwork()
        served = service("Test", unary("Echo", StringValue, StringValue, who))
        server = network.host("server").server([Listener(address=Address("server", 0))], [served])
        [port] = await server.start()
        identity = PeerIdentity("tailrace-node-4", 4)
        await network.host("four", identity).channel(Address("server", port)).unary(ECHO, text("a"), 1)
        assert contexts[0].peer == identity
        assert contexts[0].secure

    run_virtually(main())


def test_connection_is_refused_when_another_node_answers_than_was_meant() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        await start(network, PeerIdentity("tailrace-node-1", 1))
        client = network.host("client")
        meant = client.channel(Address("server", 9093), node_id=1)
        assert (await meant.unary(ECHO, text("a"), 1)).value == "a"
        with pytest.raises(TailraceError, match="is not node 2"):
            await client.channel(Address("server", 9093), node_id=2).unary(ECHO, text("a"), 1)

    run_virtually(main())
