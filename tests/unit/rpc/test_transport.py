"""What every transport promises, checked over gRPC and in memory alike."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

import pytest
from google.protobuf.wrappers_pb2 import BytesValue, StringValue

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.failures import RemoteError
from tailrace.cluster.rpc.service import CallContext, Service, service, stream, unary
from tailrace.cluster.rpc.transport import Listener, call_to
from tests.unit.rpc.networks import ECHO, LARGE, LOOPBACK, TALK, run, serving, transport


@pytest.fixture(params=["grpc", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


def text(value: str) -> StringValue:
    return StringValue(value=value)


async def echo(request: StringValue, context: CallContext) -> StringValue:
    return text(request.value.upper())


def echo_service() -> Service:
    return service("Test", unary("Echo", StringValue, StringValue, echo))


def talk_service(handler: object) -> Service:
    return service("Test", stream("Talk", StringValue, StringValue, handler))  # type: ignore[arg-type]


def raising(error: BaseException) -> Service:
    async def fail(request: StringValue, context: CallContext) -> StringValue:
        raise error

    return service("Test", unary("Echo", StringValue, StringValue, fail))


def test_call_is_answered_when_the_method_is_served(kind: str) -> None:
    async def main() -> None:
        async with serving(transport(kind), echo_service()) as channel:
            answers = await asyncio.gather(*(channel.unary(ECHO, text(f"a{n}"), 10) for n in range(50)))
            assert [answer.value for answer in answers] == [f"A{n}" for n in range(50)]

    run(main)


def test_services_share_an_address_when_a_server_has_several(kind: str) -> None:
    async def other(request: StringValue, context: CallContext) -> StringValue:
        return text("other")

    async def main() -> None:
        second = service("Other", unary("Echo", StringValue, StringValue, other))
        async with serving(transport(kind), echo_service(), second) as channel:
            call = call_to("Other", "Echo", StringValue, StringValue)
            assert (await channel.unary(ECHO, text("a"), 10)).value == "A"
            assert (await channel.unary(call, text("a"), 10)).value == "other"

    run(main)


def test_server_listens_on_several_ports_when_it_has_several_listeners(kind: str) -> None:
    async def main() -> None:
        used = transport(kind)
        listeners = [Listener(address=Address(LOOPBACK, 0)), Listener(address=Address(LOOPBACK, 0))]
        server = used.server(listeners, [echo_service()])
        ports = await server.start()
        assert len(set(ports)) == 2
        for port in ports:
            channel = used.channel(Address(LOOPBACK, port))
            assert (await channel.unary(ECHO, text("a"), 10)).value == "A"
            await channel.close()
        with pytest.raises(TailraceError, match="in use"):
            await used.server([Listener(address=Address(LOOPBACK, ports[0]))], [echo_service()]).start()
        await server.stop(0)

    run(main)


class HintedError(TailraceError):
    @property
    def error_metadata(self) -> Mapping[str, str]:
        return {"controller": "höst:9093", "node-id": "3"}


def test_error_of_a_handler_is_raised_at_the_caller_when_it_has_a_code(kind: str) -> None:
    async def main() -> None:
        error = HintedError(ErrorCode.NOT_CONTROLLER, "node 3 leads; ask höst\nnext time")
        async with serving(transport(kind), raising(error)) as channel:
            with pytest.raises(TailraceError) as raised:
                await channel.unary(ECHO, text("a"), 10)
        assert str(raised.value) == str(error)
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        assert raised.value.retriable
        assert isinstance(raised.value, RemoteError)
        assert raised.value.error_metadata == {"controller": "höst:9093", "node-id": "3"}
        copied = pickle.loads(pickle.dumps(raised.value))
        assert (copied.code, copied.args, copied.error_metadata) == (
            raised.value.code,
            raised.value.args,
            raised.value.error_metadata,
        )

    run(main)


def test_text_of_a_bug_stays_in_the_log_when_a_handler_raises_it(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(transport(kind), raising(RuntimeError("password is 1234"))) as channel:
            with pytest.raises(TailraceError) as raised:
                await channel.unary(ECHO, text("a"), 10)
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "1234" not in str(raised.value)
        reference = str(raised.value).rpartition(" ")[2]
        [record] = [one for one in caplog.records if str(one.msg).startswith("rpc_handler_failed")]
        assert reference in str(record.msg)
        assert record.exc_info is not None
        assert "password is 1234" in str(record.exc_info[1])

    run(main)


def test_call_is_unsupported_when_nobody_serves_the_method(kind: str) -> None:
    async def main() -> None:
        async with serving(transport(kind), echo_service()) as channel:
            for call in (TALK, call_to("Nothing", "Echo", StringValue, StringValue)):
                with pytest.raises(TailraceError) as raised:
                    await channel.unary(call, text("a"), 10)
                assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION

    run(main)


def test_connection_is_lost_when_nobody_listens(kind: str) -> None:
    async def main() -> None:
        channel = transport(kind).channel(Address(LOOPBACK, 1))
        with pytest.raises(TailraceError) as raised:
            await channel.unary(ECHO, text("a"), 10)
        assert raised.value.code is ErrorCode.CONNECTION_LOST
        assert raised.value.retriable
        assert f"{LOOPBACK}:1 /tailrace.v1.Test/Echo" in str(raised.value)
        await channel.close()

    run(main)


def test_handler_is_cancelled_when_the_callers_time_is_over(kind: str) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()
        contexts: list[CallContext] = []

        async def never(request: StringValue, context: CallContext) -> StringValue:
            contexts.append(context)
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

        stuck = service("Test", unary("Echo", StringValue, StringValue, never))
        async with serving(transport(kind), stuck) as channel:
            with pytest.raises(TailraceError) as raised:
                await channel.unary(ECHO, text("a"), 0.2)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            await cancelled.wait()
            assert contexts[0].cancelled
            assert contexts[0].deadline is not None

    run(main)


def test_handler_is_cancelled_when_the_calling_task_is(kind: str) -> None:
    async def main() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def never(request: StringValue, context: CallContext) -> StringValue:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError

        stuck = service("Test", unary("Echo", StringValue, StringValue, never))
        async with serving(transport(kind), stuck) as channel:
            task = asyncio.ensure_future(channel.unary(ECHO, text("a"), 30))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await cancelled.wait()

    run(main)


def test_request_is_refused_when_it_is_too_large(kind: str) -> None:
    async def size(request: BytesValue, context: CallContext) -> BytesValue:
        return BytesValue(value=b"x" * int(request.value))

    async def main() -> None:
        small = service("Test", unary("Large", BytesValue, BytesValue, size), max_message_bytes=10_000)
        bigger = service("Bigger", unary("Large", BytesValue, BytesValue, size), max_message_bytes=100_000)
        async with serving(transport(kind), small, bigger) as channel:
            assert len((await channel.unary(LARGE, BytesValue(value=b"9000"), 10)).value) == 9000
            for refused in (BytesValue(value=b" " * 20_000), BytesValue(value=b"20000")):
                with pytest.raises(TailraceError) as raised:
                    await channel.unary(LARGE, refused, 10)
                assert raised.value.code is ErrorCode.INVALID_REQUEST
            with pytest.raises(TailraceError, match="send less") as raised:
                await channel.unary(LARGE, BytesValue(value=b" " * (5 << 20)), 10)
            assert raised.value.code is ErrorCode.INVALID_REQUEST

    run(main)


def test_request_is_refused_when_it_cannot_be_read(kind: str) -> None:
    async def main() -> None:
        async with serving(transport(kind), echo_service()) as channel:
            garbled = call_to("Test", "Echo", BytesValue, StringValue)
            with pytest.raises(TailraceError) as raised:
                await channel.unary(garbled, BytesValue(value=b"\xff\xfe"), 10)
            assert raised.value.code is ErrorCode.INVALID_REQUEST
            assert "cannot be read" in str(raised.value)

    run(main)


def test_stream_carries_messages_both_ways_when_it_is_open(kind: str) -> None:
    async def count(requests: AsyncIterator[StringValue], context: CallContext) -> AsyncIterator[StringValue]:
        total = 0
        async for request in requests:
            total += 1
            yield text(f"{request.value}!")
        yield text(f"{total} in all")

    async def main() -> None:
        async with serving(transport(kind), talk_service(count)) as channel:
            talk = channel.stream(TALK)
            received = []
            for number in range(3):
                await talk.send(text(str(number)))
                received.append((await anext(talk)).value)
            for number in range(3, 500):
                await talk.send(text(str(number)))
                if number % 10 == 9:
                    for _ in range(7 if number == 9 else 10):
                        received.append((await anext(talk)).value)
            await talk.half_close()
            received += [response.value async for response in talk]
            assert received == [f"{number}!" for number in range(500)] + ["500 in all"]

    run(main)


def test_stream_ends_with_the_error_when_its_handler_raises_after_messages(kind: str) -> None:
    async def fail(requests: AsyncIterator[StringValue], context: CallContext) -> AsyncIterator[StringValue]:
        yield text("first")
        raise TailraceError(ErrorCode.BROKER_FENCED, "broker 7 is fenced")

    async def main() -> None:
        async with serving(transport(kind), talk_service(fail)) as channel:
            talk = channel.stream(TALK)
            assert (await anext(talk)).value == "first"
            with pytest.raises(TailraceError, match="broker 7 is fenced") as raised:
                await anext(talk)
            assert raised.value.code is ErrorCode.BROKER_FENCED
            with pytest.raises(TailraceError, match="broker 7 is fenced"):
                await talk.send(text("too late"))

    run(main)


def test_sending_fails_when_the_handler_has_ended_the_stream(kind: str) -> None:
    async def end(requests: AsyncIterator[StringValue], context: CallContext) -> AsyncIterator[StringValue]:
        yield text("bye")

    async def main() -> None:
        async with serving(transport(kind), talk_service(end)) as channel:
            talk = channel.stream(TALK)
            assert [response.value async for response in talk] == ["bye"]
            with pytest.raises(TailraceError) as raised:
                await talk.send(text("anybody?"))
            assert raised.value.code is ErrorCode.CONNECTION_LOST

    run(main)


def test_handler_of_a_stream_is_closed_at_once_when_the_caller_cancels(kind: str) -> None:
    async def main() -> None:
        closed = asyncio.Event()

        async def endless(
            requests: AsyncIterator[StringValue], context: CallContext
        ) -> AsyncIterator[StringValue]:
            try:
                while True:
                    yield text("tick")
            finally:
                closed.set()

        async with serving(transport(kind), talk_service(endless)) as channel:
            talk = channel.stream(TALK)
            assert (await anext(talk)).value == "tick"
            talk.cancel()
            await closed.wait()
            with pytest.raises(TailraceError) as raised:
                while True:
                    await anext(talk)
            assert raised.value.code is ErrorCode.CLIENT_CLOSED

    run(main)


def test_sender_waits_when_the_handler_does_not_read(kind: str) -> None:
    async def main() -> None:
        read_on = asyncio.Event()

        async def slow(
            requests: AsyncIterator[StringValue], context: CallContext
        ) -> AsyncIterator[StringValue]:
            await read_on.wait()
            total = 0
            async for request in requests:
                total += len(request.value)
            yield text(str(total))

        async with serving(transport(kind), talk_service(slow)) as channel:
            talk = channel.stream(TALK)
            piece = text("x" * 1_000_000)
            sent = 0
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    while True:
                        await talk.send(piece)
                        sent += 1
            assert sent < 100
            talk.cancel()
            read_on.set()

    run(main)


def test_calls_end_when_their_channel_is_closed(kind: str) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def never(request: StringValue, context: CallContext) -> StringValue:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        stuck = service("Test", unary("Echo", StringValue, StringValue, never))
        async with serving(transport(kind), stuck) as channel:
            task = asyncio.ensure_future(channel.unary(ECHO, text("a"), 30))
            await begun.wait()
            await channel.close()
            with pytest.raises(TailraceError) as raised:
                await task
            assert raised.value.code is ErrorCode.CLIENT_CLOSED
            with pytest.raises(TailraceError) as raised:
                await channel.unary(ECHO, text("a"), 30)
            assert raised.value.code is ErrorCode.CLIENT_CLOSED
            with pytest.raises(TailraceError):
                channel.stream(TALK)

    run(main)


def test_stop_waits_for_calls_under_way_when_it_has_grace(kind: str) -> None:
    async def main() -> None:
        begun, finish = asyncio.Event(), asyncio.Event()

        async def wait(request: StringValue, context: CallContext) -> StringValue:
            begun.set()
            await finish.wait()
            return text("finished")

        used = transport(kind)
        server = used.server(
            [Listener(address=Address(LOOPBACK, 0))],
            [service("Test", unary("Echo", StringValue, StringValue, wait))],
        )
        [port] = await server.start()
        channel = used.channel(Address(LOOPBACK, port))
        task = asyncio.ensure_future(channel.unary(ECHO, text("a"), 30))
        await begun.wait()
        stopping = asyncio.ensure_future(server.stop(30))
        await asyncio.sleep(0)
        finish.set()
        assert (await task).value == "finished"
        await stopping
        with pytest.raises(TailraceError) as raised:
            await channel.unary(ECHO, text("a"), 5)
        assert raised.value.code is ErrorCode.CONNECTION_LOST
        await channel.close()

    run(main)


def test_connection_is_lost_when_the_server_stops_without_grace(kind: str) -> None:
    async def main() -> None:
        async def never(
            requests: AsyncIterator[StringValue], context: CallContext
        ) -> AsyncIterator[StringValue]:
            yield text("hello")
            await asyncio.Event().wait()

        used = transport(kind)
        server = used.server([Listener(address=Address(LOOPBACK, 0))], [talk_service(never)])
        [port] = await server.start()
        channel = used.channel(Address(LOOPBACK, port))
        talk = channel.stream(TALK)
        async with aclosing(_values(talk)) as values:
            assert await anext(values) == "hello"
            await server.stop(0)
            with pytest.raises(TailraceError) as raised:
                await anext(values)
        assert raised.value.code is ErrorCode.CONNECTION_LOST
        await channel.close()

    run(main)


async def _values(responses: AsyncIterator[StringValue]) -> AsyncGenerator[str, None]:
    async for response in responses:
        yield response.value


def test_channel_connects_again_when_the_server_comes_back(kind: str) -> None:
    async def main() -> None:
        used = transport(kind)
        server = used.server([Listener(address=Address(LOOPBACK, 0))], [echo_service()])
        [port] = await server.start()
        channel = used.channel(Address(LOOPBACK, port))
        assert (await channel.unary(ECHO, text("a"), 10)).value == "A"
        await server.stop(0)
        again = used.server([Listener(address=Address(LOOPBACK, port))], [echo_service()])
        await again.start()
        while True:
            try:
                assert (await channel.unary(ECHO, text("b"), 10)).value == "B"
                break
            except TailraceError as error:
                assert error.code is ErrorCode.CONNECTION_LOST
                await asyncio.sleep(0.05)
        await channel.close()
        await again.stop(0)

    run(main)


def test_caller_is_nobody_when_it_has_no_certificate(kind: str) -> None:
    async def main() -> None:
        contexts: list[CallContext] = []

        async def who(request: StringValue, context: CallContext) -> StringValue:
            contexts.append(context)
            return request

        known = service("Test", unary("Echo", StringValue, StringValue, who))
        async with serving(transport(kind), known) as channel:
            await channel.unary(ECHO, text("a"), 10)
        assert contexts[0].peer == (None, None)
        assert not contexts[0].secure
        assert LOOPBACK in contexts[0].address

    run(main)
