"""Adding partitions to topics."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.partitions_added import create_partitions
from tailrace.cluster.controller.core.topic_checks import PartitionLimits
from tailrace.v1 import admin_pb2 as pb
from tests.support.answers import code_of, codes_of
from tests.support.metadata import apply, broker, image_with, partition

IMAGE = image_with(
    brokers=[1, 2, 3, broker(4, fenced=True)], topics={"a": [(1, 2), (1, 3)], "b": [(3,)], "c": [(2, 3, 1)]}
)


def more(name: str, count: int, *assignment: tuple[int, ...]) -> pb.CreatePartitionsRequest.Topic:
    chosen = [pb.ReplicaAssignment(broker_ids=one) for one in assignment]
    return pb.CreatePartitionsRequest.Topic(name=name, count=count, assignment=chosen)


def add(
    image: ClusterImage, *topics: pb.CreatePartitionsRequest.Topic, **options: Any
) -> Decision[pb.CreatePartitionsResponse]:
    request = pb.CreatePartitionsRequest(
        topics=topics,
        validate_only=options.pop("validate_only", False),
        request_id=options.pop("request_id", b""),
    )
    decision = create_partitions(image, request, seed=1, **options)
    assert [one.name for one in decision.response.topics] == [one.name for one in topics]
    return decision


def replicas_of(image: ClusterImage, name: str) -> list[tuple[int, ...]]:
    topic = image.topic(name)
    assert topic is not None
    return [one.replicas for one in topic.partitions]


def test_partitions_are_added_with_the_replicas_of_the_topic_when_the_count_grows() -> None:
    image = apply(IMAGE, add(IMAGE, more("a", 6)))
    placed = replicas_of(image, "a")
    assert placed[:2] == [(1, 2), (1, 3)]
    assert len(placed) == 6
    assert all(len(one) == 2 for one in placed)
    assert Counter(one[0] for one in placed) == {1: 2, 2: 2, 3: 2}
    topic = image.topic("a")
    assert topic is not None
    assert all(one.isr == one.replicas and one.leader == one.replicas[0] for one in topic.partitions)


def test_partitions_follow_the_assignment_when_one_is_given() -> None:
    image = apply(IMAGE, add(IMAGE, more("a", 4, (4, 2), (3, 1))))
    topic = image.topic("a")
    assert topic is not None
    assert replicas_of(image, "a")[2:] == [(4, 2), (3, 1)]
    assert (topic.partitions[2].isr, topic.partitions[2].leader) == ((2,), 2)


def test_partitions_have_as_many_replicas_as_before_when_the_topic_is_being_reassigned() -> None:
    moving = partition(2, 3, 1, isr=(1,), leader=1, adding=(2, 3), removing=())
    image = image_with(brokers=[1, 2, 3], topics={"a": [moving]})
    assert len(replicas_of(apply(image, add(image, more("a", 2))), "a")[1]) == 1


def test_partitions_count_for_the_next_topic_when_one_request_adds_to_several() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"a": [(1,)], "b": [(3,)], "c": [(2,), (2,)]})
    decision = add(image, more("a", 4, (1,), (1,), (1,)), more("b", 2))
    assert replicas_of(apply(image, decision), "b") == [(3,), (2,)]
    image = image_with(brokers=[1, 2, 3], topics={"a": [(1,)], "b": [(1,)], "c": [(1,)]})
    decision = add(image, more("a", 2), more("b", 2))
    placed = apply(image, decision)
    assert {replicas_of(placed, "a")[1], replicas_of(placed, "b")[1]} == {(2,), (3,)}


@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_partitions_are_refused_when_they_would_not_become_more(count: int) -> None:
    decision = add(IMAGE, more("a", count))
    assert code_of(decision.response.topics[0]) is ErrorCode.INVALID_PARTITIONS
    assert "can only be added, so ask for 3 or more" in decision.response.topics[0].error.message
    assert decision.records == []


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ([(1, 2)], "2 are added, and the assignment has 1"),
        ([(1, 2)] * 3, "2 are added, and the assignment has 3"),
        ([(1, 2), (1, 2, 3)], "partition 3 has 3 replicas (1, 2, 3)"),
        ([(1,), (2,)], "partition 2 has 1 replicas (1)"),
        ([(1, 9), (1, 2)], "partition 2 has brokers that are not registered (9)"),
    ],
)
def test_partitions_are_refused_when_the_assignment_does_not_fit(
    assignment: list[tuple[int, ...]], says: str
) -> None:
    decision = add(IMAGE, more("a", 4, *assignment))
    assert code_of(decision.response.topics[0]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert says in decision.response.topics[0].error.message
    assert decision.records == []


def test_partitions_are_added_to_others_when_one_topic_is_refused() -> None:
    decision = add(IMAGE, more("zz", 3), more("b", 2), more("c", 2), more("c", 3))
    assert codes_of(decision.response.topics) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    image = apply(IMAGE, decision)
    assert [len(replicas_of(image, name)) for name in "abc"] == [2, 2, 1]


def test_partitions_are_refused_when_brokers_no_longer_suffice() -> None:
    image = image_with(brokers=[1], topics={"a": [(1, 2, 3)]})
    decision = add(image, more("a", 2))
    assert code_of(decision.response.topics[0]) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "replication factor 3 needs as many brokers, and 1 is registered (1)" in str(decision.response)


def test_partitions_are_refused_when_they_exceed_a_limit() -> None:
    limits = PartitionLimits(per_topic=5, new_per_request=6)
    decision = add(IMAGE, more("a", 6), more("b", 5), more("c", 4), limits=limits)
    assert codes_of(decision.response.topics) == [
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
    ]
    assert "at most 5 partitions, not 6" in decision.response.topics[0].error.message


def test_partitions_are_not_added_when_it_is_only_validated() -> None:
    decision = add(IMAGE, more("a", 3), more("b", 1), validate_only=True, request_id=b"one")
    assert codes_of(decision.response.topics) == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert decision.records == []


def test_partitions_are_added_once_when_a_request_is_repeated() -> None:
    first = add(IMAGE, more("a", 3), request_id=b"one")
    image = apply(IMAGE, first)
    again = add(image, more("a", 3), request_id=b"one")
    assert (again.response, again.records) == (first.response, [])
    assert code_of(add(image, more("a", 3)).response.topics[0]) is ErrorCode.INVALID_PARTITIONS


def test_partitions_are_refused_everywhere_when_the_request_id_cannot_be_used() -> None:
    decision = add(IMAGE, more("a", 3), more("b", 3), request_id=b"x" * 1000)
    assert codes_of(decision.response.topics) == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.records == []
