"""The way to the active controller: hints, retries, pauses, deadlines, and requests that are done once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tailrace.clients.admin_config import AdminConfig
from tailrace.clients.admin_types import NewTopic
from tailrace.clients.async_admin import AsyncAdmin
from tailrace.clients.controller_link import ControllerLink
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.transport import Transport
from tests.support.virtual_loop import run_virtually
from tests.unit.clients.memory_cluster import MemoryCluster, with_cluster


def test_call_reaches_the_active_controller_when_another_one_is_asked() -> None:
    async def test(cluster: MemoryCluster) -> None:
        cluster.lead(3)
        admin = cluster.admin(1)
        await admin.create_topics([NewTopic("t", 1)])
        assert cluster.asked == [(1, "CreateTopics"), (3, "CreateTopics")]
        await admin.list_topics()
        assert cluster.asked[2:] == [(3, "DescribeTopics")], "the way is remembered"

    with_cluster(test)


def test_call_reaches_the_active_controller_when_the_first_address_is_dead() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.nodes[1].server.stop(0)
        cluster.lead(2)
        assert await cluster.admin(1, 2).list_topics() == {}
        assert cluster.asked == [(2, "DescribeTopics")]

    with_cluster(test)


def test_call_waits_for_an_election() -> None:
    async def test(cluster: MemoryCluster) -> None:
        cluster.lose_leader()
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, cluster.lead, 2)
        admin = cluster.admin(1)
        await admin.create_topics([NewTopic("t", 1)])
        assert 5.0 <= loop.time() < 7.0
        assert cluster.image.topic("t") is not None
        assert len(cluster.asked) < 20, "pauses grow"

    with_cluster(test)


def test_call_goes_on_when_the_active_controller_swallows_it() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.list_topics()
        await _swallow(cluster, 1)
        asyncio.get_running_loop().call_later(1.0, cluster.lead, 2)
        await admin.create_topics([NewTopic("t", 1)])
        assert cluster.asked[-1] == (2, "CreateTopics")
        assert asyncio.get_running_loop().time() < 30.0

    with_cluster(test)


async def _swallow(cluster: MemoryCluster, node_id: int) -> None:
    """The node's host takes messages and never answers, as a process does that was stopped by a signal."""
    host = cluster.nodes[node_id].address.host

    class Silence:
        def delay(self, source: str, target: str) -> float | None:
            return 10_000.0 if host in (source, target) else 0.0

    cluster.network.faults = Silence()


async def _proposed(cluster: MemoryCluster) -> None:
    """Something waits to be committed."""
    async with asyncio.timeout(60):
        while not cluster.quorum.waiting:  # noqa: ASYNC110  (the time is virtual and costs nothing)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("applied", [True, False])
def test_change_is_done_once_when_its_outcome_was_unknown(applied: bool) -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.list_topics()
        ids: list[bytes] = []
        cluster.before = lambda node_id, method, request: ids.append(request.request_id)
        cluster.quorum.automatic = False
        creating = asyncio.ensure_future(admin.create_topics([NewTopic("t", 1)]))
        await _proposed(cluster)
        cluster.quorum.automatic = True
        cluster.quorum.lose_next(applied=applied)
        created = await creating
        topic = cluster.image.topic("t")
        assert topic is not None
        assert created["t"].topic_id == topic.topic_id
        assert len(ids) > 1
        assert len(set(ids)) == 1
        assert len(ids[0]) == 16

    with_cluster(test)


def test_change_is_done_once_when_its_answer_is_lost() -> None:
    async def test(cluster: MemoryCluster) -> None:
        lost: list[str] = []

        def lose_first_answer(node_id: int, method: str, response: Any) -> None:
            if not lost:
                lost.append(method)
                raise TailraceError(ErrorCode.CONNECTION_LOST, "the answer was lost")

        cluster.after = lose_first_answer
        created = await cluster.admin().create_topics([NewTopic("t", 1)])
        assert lost == ["CreateTopics"]
        topic = cluster.image.topic("t")
        assert topic is not None
        assert created["t"].topic_id == topic.topic_id

    with_cluster(test)


def test_requests_have_ids_of_their_own() -> None:
    async def test(cluster: MemoryCluster) -> None:
        ids: list[bytes] = []
        cluster.before = lambda node_id, method, request: ids.append(request.request_id)
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t", 1)])
        await admin.delete_topics(["t"])
        await admin.create_topics([NewTopic("t", 1)])
        assert len(set(ids)) == 3

    with_cluster(test)


def test_timeout_names_everyone_asked_and_says_that_a_change_was_not_done() -> None:
    async def test(cluster: MemoryCluster) -> None:
        cluster.lose_leader()
        with pytest.raises(TailraceError) as raised:
            await cluster.admin(request_timeout_ms=2_000).create_topics([NewTopic("t", 1)])
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        message = str(raised.value)
        assert "CreateTopics within 2000 ms" in message
        assert all(str(node.address) in message for node in cluster.nodes.values())
        assert "no controller is active" in message
        assert "not known" not in message
        assert asyncio.get_running_loop().time() == pytest.approx(2.0)

    with_cluster(test)


def test_timeout_says_that_a_change_may_have_been_done_when_its_outcome_is_unknown() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await _swallow(cluster, 1)
        admin = cluster.admin(1, request_timeout_ms=2_000)
        with pytest.raises(TailraceError, match="Whether it was done is not known") as raised:
            await admin.create_topics([NewTopic("t", 1)])
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(TailraceError) as raised:
            await admin.list_topics()
        assert "not known" not in str(raised.value), "a question changes nothing"

    with_cluster(test)


def test_refusal_is_raised_at_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        def refuse(node_id: int, method: str, request: Any) -> None:
            raise TailraceError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")

        cluster.before = refuse
        with pytest.raises(TailraceError, match="not you") as raised:
            await cluster.admin().list_topics()
        assert raised.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert len(cluster.asked) == 1

    with_cluster(test)


def test_busy_controller_is_asked_again() -> None:
    async def test(cluster: MemoryCluster) -> None:
        def busy_at_first(node_id: int, method: str, request: Any) -> None:
            if len(cluster.asked) < 3:
                raise TailraceError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

        cluster.before = busy_at_first
        assert await cluster.admin().list_topics() == {}
        assert cluster.asked == [(1, "DescribeTopics")] * 3

    with_cluster(test)


def test_bug_of_the_server_is_not_asked_for_again() -> None:
    async def test(cluster: MemoryCluster) -> None:
        def fail(node_id: int, method: str, request: Any) -> None:
            raise ZeroDivisionError

        cluster.before = fail
        with pytest.raises(TailraceError) as raised:
            await cluster.admin().list_topics()
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(cluster.asked) == 1

    with_cluster(test)


def test_calls_may_run_at_the_same_time() -> None:
    async def test(cluster: MemoryCluster) -> None:
        cluster.lead(2)
        admin = cluster.admin(1)
        names = [f"t{number}" for number in range(20)]
        await asyncio.gather(*(admin.create_topics([NewTopic(name, 1)]) for name in names))
        assert sorted(await admin.list_topics()) == sorted(names)

    with_cluster(test)


def test_closed_client_refuses_calls_and_ends_those_under_way() -> None:
    async def test(cluster: MemoryCluster) -> None:
        cluster.quorum.automatic = False
        admin = cluster.admin()
        waiting = asyncio.ensure_future(admin.create_topics([NewTopic("t", 1)]))
        await _proposed(cluster)
        await admin.close()
        for call in (waiting, admin.list_topics()):
            with pytest.raises(TailraceError) as raised:
                await call
            assert raised.value.code is ErrorCode.CLIENT_CLOSED
        cluster.quorum.commit_all()

    with_cluster(test)


def test_description_of_the_quorum_is_the_leaders_when_another_one_is_asked() -> None:
    async def test(cluster: MemoryCluster) -> None:
        cluster.lead(3)
        described = await cluster.admin(1).describe_quorum()
        assert (described.node_id, described.leader_id) == (3, 3)
        assert [voter.lag for voter in described.voters] == [0, 0, 0]

    with_cluster(test)


def test_description_is_anybodys_when_nobody_leads_or_the_leader_is_out_of_reach() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin(2)
        cluster.lose_leader()
        assert (await admin.describe_quorum()).leader_id is None
        assert (await admin.describe_cluster()).controller_id is None
        cluster.lead(1)
        await cluster.nodes[1].server.stop(0)
        described = await admin.describe_quorum()
        assert (described.node_id, described.leader_id) == (2, 1)
        assert [voter.lag for voter in described.voters] == [None] * 3
        assert (await admin.describe_cluster()).controller_id == 1

    with_cluster(test)


class DeadChannel:
    """What gRPC is like in a process that was forked while it was at work: nothing ever comes of a call."""

    async def unary(self, call: object, request: object, timeout_s: float) -> Any:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


class DeadTransport:
    def channel(self, address: object, **options: object) -> DeadChannel:
        return DeadChannel()


def test_call_ends_when_the_transport_does_not_even_keep_time() -> None:
    async def test() -> None:
        config = AdminConfig.from_names({"bootstrap.controllers": "c1:1", "request.timeout.ms": 3_000})
        link = ControllerLink(config, cast(Transport, DeadTransport()))
        with pytest.raises(TailraceError, match="the transport itself does not work") as raised:
            await AsyncAdmin.on(link).list_topics()
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT

    run_virtually(test())
