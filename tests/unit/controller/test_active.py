"""Operations on the active controller: speculative, answered when committed, void when they are not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.active import MAX_BATCH_BYTES, ActiveController, NotControllerError
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.metadata import MetadataFeed, MetadataMachine
from tailrace.cluster.controller.quorum.outcomes import Leadership
from tailrace.v1 import metadata_pb2 as pb
from tests.support.local_quorum import LocalQuorum


class Controller:
    def __init__(self, *, automatic: bool = True) -> None:
        self.feed = MetadataFeed()
        self.quorum = LocalQuorum(MetadataMachine(self.feed.publish), automatic=automatic)
        self.active = ActiveController(
            node_id=1, feed=self.feed, quorum=self.quorum, loop=asyncio.get_running_loop()
        )

    def lead(self, epoch: int = 1) -> None:
        self.quorum.claim(epoch)
        self.active.on_leadership(Leadership(1, epoch, True, self.quorum.version))

    def follow(self, leader: int | None, epoch: int) -> None:
        self.active.on_leadership(Leadership(leader, epoch, False, self.quorum.version))


def reserve(count: int) -> Callable[[ClusterImage], Decision[int]]:
    """An operation whose answer depends on what was decided before it."""

    def operation(image: ClusterImage) -> Decision[int]:
        end = image.next_producer_id + count
        reserved = pb.ProducerIdsReserved(next_producer_id=end)
        return Decision(end, [pb.MetadataRecord(producer_ids_reserved=reserved)])

    return operation


def look(image: ClusterImage) -> Decision[int]:
    return Decision(image.next_producer_id)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test()

    asyncio.run(main())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_operation_is_answered_and_applied_when_committed() -> None:
    async def test() -> None:
        controller = Controller()
        controller.lead()
        assert await controller.active.run(reserve(10)) == 10
        assert await controller.active.run(reserve(5)) == 15
        assert controller.feed.image.next_producer_id == 15
        assert controller.feed.image.version == 2

    run(test)


def test_operations_see_each_other_and_wait_when_none_is_committed() -> None:
    async def test() -> None:
        controller = Controller(automatic=False)
        controller.lead()
        first = asyncio.ensure_future(controller.active.run(reserve(10)))
        second = asyncio.ensure_future(controller.active.run(reserve(1)))
        reading = asyncio.ensure_future(controller.active.run(look))
        await settle()
        assert [first.done(), second.done(), reading.done()] == [False] * 3
        assert controller.feed.image.next_producer_id == 0
        controller.quorum.commit_next()
        await settle()
        assert (first.done(), second.done(), reading.done()) == (True, False, False)
        controller.quorum.commit_next()
        assert [await first, await second, await reading] == [10, 11, 11]

    run(test)


@pytest.mark.parametrize("applied", [False, True])
def test_later_operations_are_void_and_controller_goes_on_when_an_outcome_is_unknown(applied: bool) -> None:
    async def test() -> None:
        controller = Controller(automatic=False)
        controller.lead()
        doomed = [asyncio.ensure_future(controller.active.run(reserve(10))) for _ in range(3)]
        await settle()
        controller.quorum.lose_next(applied=applied)
        await settle()
        with pytest.raises(TailraceError) as refused:
            await controller.active.run(reserve(1))
        assert refused.value.code is ErrorCode.CONTROLLER_NOT_AVAILABLE
        controller.quorum.commit_all()
        with pytest.raises(TailraceError) as unknown:
            await doomed[0]
        assert unknown.value.code is ErrorCode.UNKNOWN_OUTCOME
        await settle()
        controller.quorum.automatic = True
        controller.quorum.commit_all()
        await settle()
        kept = controller.feed.image.next_producer_id
        # Those behind it stood on it: they count exactly when it does.
        outcomes = await asyncio.gather(*doomed[1:], return_exceptions=True)
        assert outcomes == [20, 30] if applied else all(isinstance(one, TailraceError) for one in outcomes)
        assert kept == (30 if applied else 0)
        assert await controller.active.run(reserve(1)) == kept + 1

    run(test)


def test_refused_operation_is_not_applied_and_controller_goes_on_when_quorum_is_overloaded() -> None:
    async def test() -> None:
        controller = Controller(automatic=False)
        controller.lead()
        refused = asyncio.ensure_future(controller.active.run(reserve(10)))
        await settle()
        controller.quorum.drop_next()
        with pytest.raises(TailraceError) as error:
            await refused
        assert error.value.code is ErrorCode.CONTROLLER_NOT_AVAILABLE
        assert error.value.retriable
        controller.quorum.automatic = True
        controller.quorum.commit_all()
        await settle()
        assert await controller.active.run(reserve(3)) == 3

    run(test)


def test_caller_is_sent_to_the_active_controller_when_another_leads() -> None:
    async def test() -> None:
        controller = Controller()
        with pytest.raises(NotControllerError) as nobody:
            await controller.active.run(look)
        assert nobody.value.code is ErrorCode.CONTROLLER_NOT_AVAILABLE
        controller.lead()
        endpoint = pb.Endpoint(listener="CONTROLLER", host="two.example", port=9093)
        record = pb.ControllerRegistered(node_id=2, incarnation=bytes(16), endpoints=[endpoint])
        await controller.active.run(
            lambda image: Decision(None, [pb.MetadataRecord(controller_registered=record)])
        )
        controller.follow(2, 2)
        with pytest.raises(NotControllerError) as other:
            await controller.active.run(look)
        assert other.value.code is ErrorCode.NOT_CONTROLLER
        assert other.value.hint is not None
        assert other.value.hint.node_id == 2
        assert other.value.hint.endpoint is not None
        assert other.value.hint.endpoint.host == "two.example"

    run(test)


def test_proposals_of_an_earlier_epoch_are_void_when_leadership_came_back() -> None:
    async def test() -> None:
        controller = Controller(automatic=False)
        controller.lead(1)
        old = asyncio.ensure_future(controller.active.run(reserve(10)))
        await settle()
        controller.follow(None, 1)
        controller.lead(3)
        new = asyncio.ensure_future(controller.active.run(reserve(1)))
        await settle()
        controller.quorum.commit_all()
        with pytest.raises(TailraceError):
            await old
        assert await new == 1
        assert controller.feed.image.next_producer_id == 1
        assert controller.feed.image.controller_epoch == 3

    run(test)


def test_large_decision_is_split_or_refused_when_it_exceeds_an_entry() -> None:
    def many(image: ClusterImage) -> Decision[str]:
        records = [
            pb.MetadataRecord(
                config=pb.ConfigRecord(
                    type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name=f"t{n}", key="k", value="v" * 9_000
                )
            )
            for n in range(250)
        ]
        assert sum(record.ByteSize() for record in records) > 2 * MAX_BATCH_BYTES
        return Decision("done", records)

    async def test() -> None:
        controller = Controller()
        controller.lead()
        with pytest.raises(TailraceError, match="ask for less at a time"):
            await controller.active.run(many)
        assert controller.feed.image.version == 0
        assert await controller.active.run(many, split=True) == "done"
        assert controller.feed.image.version == 3
        assert len(controller.feed.image.configs) == 250

    run(test)


def test_operation_goes_on_when_its_caller_gives_up() -> None:
    async def test() -> None:
        controller = Controller(automatic=False)
        controller.lead()
        impatient = asyncio.ensure_future(controller.active.run(reserve(10)))
        await settle()
        impatient.cancel()
        await settle()
        controller.quorum.commit_all()
        await settle()
        assert controller.feed.image.next_producer_id == 10
        controller.quorum.automatic = True
        assert await controller.active.run(look) == 10

    run(test)


def test_barrier_shows_everything_committed_when_asked() -> None:
    async def test() -> None:
        controller = Controller()
        controller.lead()
        await controller.active.run(reserve(7))
        assert (await controller.active.barrier()).next_producer_id == 7
        controller.follow(2, 2)
        with pytest.raises(NotControllerError):
            await controller.active.barrier()

    run(test)
