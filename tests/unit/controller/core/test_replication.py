from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.replay import partition_from
from tailrace.cluster.controller.core.partition_change import UNKNOWN_DIRECTORY
from tailrace.cluster.controller.core.replication import alter_partitions
from tailrace.v1 import controller_pb2 as wire
from tests.support.answers import code_of
from tests.support.metadata import apply, broker, directory, image_with, partition, topic_id

Proposal = wire.AlterPartitionsRequest.Partition


def proposal(
    *isr: int,
    number: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    broker_epochs: Sequence[int] | None = None,
    recovered: bool = False,
) -> Proposal:
    """Brokers have their own ids as epochs, as `image_with` gives them to brokers 1, 2, 3, ..."""
    return Proposal(
        topic_id=topic_id("t").bytes,
        partition=number,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        isr=isr,
        isr_broker_epochs=isr if broker_epochs is None else broker_epochs,
        recovered=recovered,
    )


def alter(
    image: ClusterImage, *proposals: Proposal, leader: int = 1, epoch: int | None = None
) -> tuple[ClusterImage, wire.AlterPartitionsResponse]:
    request = wire.AlterPartitionsRequest(
        broker_id=leader, broker_epoch=leader if epoch is None else epoch, partitions=proposals
    )
    decision = alter_partitions(image, request)
    return apply(image, decision) if decision.records else image, decision.response


def codes(response: wire.AlterPartitionsResponse) -> list[str]:
    return [code_of(one).name for one in response.partitions]


def test_alter_partitions_answers_with_the_new_state_when_it_succeeds() -> None:
    before = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3)]})
    image, response = alter(before, proposal(1, 2))
    assert codes(response) == ["NONE"]
    (state,) = (one.state for one in response.partitions)
    assert partition_from(state) == image.topics[topic_id("t")].partitions[0]
    assert (list(state.isr), state.partition_epoch, state.topic_id) == ([1, 2], 1, topic_id("t").bytes)


def test_alter_partitions_answers_with_the_state_as_it_is_when_the_proposal_is_stale() -> None:
    current = partition(1, 2, leader_epoch=3, partition_epoch=8)
    before = image_with(brokers=[1, 2], topics={"t": [current]})
    image, response = alter(before, proposal(1, leader_epoch=3, partition_epoch=7))
    assert codes(response) == ["INVALID_UPDATE_VERSION"]
    assert partition_from(response.partitions[0].state) == current
    assert image is before


@pytest.mark.parametrize(
    ("leader", "epoch", "code"), [(1, 7, "STALE_BROKER_EPOCH"), (9, 1, "BROKER_NOT_REGISTERED")]
)
def test_alter_partitions_refuses_all_when_the_broker_is_not_the_registered_one(
    leader: int, epoch: int, code: str
) -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(1, 2)]})
    _, response = alter(image, proposal(1), leader=leader, epoch=epoch)
    assert code_of(response).name == code
    assert not response.partitions


def test_alter_partitions_answers_in_order_when_some_fail() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(1, 2), (2, 1), (1, 2)]})
    foreign = Proposal(topic_id=topic_id("other").bytes, isr=[1], isr_broker_epochs=[1])
    malformed = Proposal(topic_id=b"short")
    proposals = [proposal(1, number=2), foreign, proposal(1, number=1), proposal(1, number=9), malformed]
    after, response = alter(image, *proposals)
    assert codes(response) == [
        "NONE",
        "UNKNOWN_TOPIC_ID",
        "NOT_LEADER",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_REQUEST",
    ]
    assert [one.isr for one in after.topics[topic_id("t")].partitions] == [(1, 2), (2, 1), (1,)]


def test_alter_partitions_takes_only_the_first_when_two_proposals_have_one_base() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3)]})
    after, response = alter(image, proposal(1, 2), proposal(1, 3))
    assert codes(response) == ["NONE", "INVALID_UPDATE_VERSION"]
    assert after.topics[topic_id("t")].partitions[0].isr == (1, 2)
    assert list(response.partitions[1].state.isr) == [1, 2]


def test_alter_partitions_writes_nothing_when_nothing_changes() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3)]})
    request = wire.AlterPartitionsRequest(broker_id=1, broker_epoch=1, partitions=[proposal(3, 2, 1)])
    decision = alter_partitions(image, request)
    assert codes(decision.response) == ["NONE"]
    assert decision.records == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (proposal(), "INVALID_REQUEST"),
        (proposal(2, 3), "INVALID_REQUEST"),
        (proposal(1, 1), "INVALID_REQUEST"),
        (proposal(1, 4), "INVALID_REQUEST"),
        (proposal(1, 2, broker_epochs=[1]), "INVALID_REQUEST"),
        (proposal(1, 2, 3), "INELIGIBLE_REPLICA"),
        (proposal(1, leader_epoch=-1), "FENCED_LEADER_EPOCH"),
        (proposal(1, leader_epoch=1), "UNKNOWN_LEADER_EPOCH"),
        (proposal(1, partition_epoch=1), "INVALID_UPDATE_VERSION"),
    ],
)
def test_alter_partitions_refuses_a_proposal_when_it_breaks_a_rule(wrong: Proposal, code: str) -> None:
    image = image_with(
        brokers=[1, 2, broker(3, fenced=True), 4], topics={"t": [partition(1, 2, 3, isr=(1, 2))]}
    )
    after, response = alter(image, wrong)
    assert codes(response) == [code]
    assert after is image


def test_ineligible_members_are_all_named_when_several_are_proposed() -> None:
    image = image_with(
        brokers=[1, broker(2, fenced=True), broker(3, shutting_down=True), 4],
        topics={"t": [partition(1, 2, 3, 4, 5, isr=(1,))]},
    )
    _, response = alter(image, proposal(1, 2, 3, 4, 5, broker_epochs=[1, 2, 3, 9, 5]))
    message = response.partitions[0].error.message
    assert all(f"broker {one} " in message for one in (2, 3, 4, 5))


def test_recovering_leader_may_take_others_in_when_it_says_that_it_recovered() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [partition(1, 2, isr=(1,), recovering=True)]})
    _, refused = alter(image, proposal(1, 2))
    assert codes(refused) == ["INVALID_REQUEST"]
    after, taken = alter(image, proposal(1, 2, recovered=True))
    assert codes(taken) == ["NONE"]
    assert not after.topics[topic_id("t")].partitions[0].recovering


def test_directory_is_forgotten_when_a_replica_is_in_sync_although_it_failed() -> None:
    dirs = (directory(1), directory(2, 0))
    image = image_with(
        brokers=[1, broker(2, dirs=2, offline_dirs=[0])],
        topics={"t": [partition(1, 2, isr=(1,), directories=dirs)]},
    )
    after, response = alter(image, proposal(1, 2))
    assert codes(response) == ["NONE"]
    changed = after.topics[topic_id("t")].partitions[0]
    assert (changed.isr, changed.directories) == ((1, 2), (directory(1), UNKNOWN_DIRECTORY))


def test_alter_partitions_tells_of_the_new_leader_when_it_completes_a_reassignment() -> None:
    moving = partition(2, 1, isr=(1,), adding=(2,), removing=(1,))
    image = image_with(brokers=[1, 2], topics={"t": [moving]})
    _, response = alter(image, proposal(1, 2))
    state = partition_from(response.partitions[0].state)
    assert (state.leader, state.leader_epoch, state.replicas, state.isr) == (2, 1, (2,), (2,))
