"""Topics as they are told to those who ask."""

from __future__ import annotations

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.controller.core.topic_describe import describe_topics
from tailrace.v1 import admin_pb2 as pb
from tests.support.answers import codes_of
from tests.support.metadata import image_with, partition, topic_id

SHRUNK = partition(1, 2, 3, isr=(2,), leader_epoch=4, partition_epoch=9, elr=(1,))
IMAGE = image_with(
    brokers=[1, 2, 3], topics={"b": [(1,), (2,)], "a": [SHRUNK], "__offsets": [(1,)], "c": [(3,)]}
)


def describe(*refs: pb.TopicRef, **flags: bool) -> pb.DescribeTopicsResponse:
    decision = describe_topics(IMAGE, pb.DescribeTopicsRequest(topics=refs, **flags))
    assert decision.records == []
    return decision.response


def test_describe_tells_all_topics_in_order_when_none_is_named() -> None:
    response = describe()
    assert [one.name for one in response.topics] == ["a", "b", "c"]
    assert response.metadata_version == IMAGE.version


def test_describe_tells_internal_topics_when_they_are_wanted_or_named() -> None:
    told = describe(include_internal=True).topics
    assert [(one.name, one.internal) for one in told] == [
        ("__offsets", True),
        ("a", False),
        ("b", False),
        ("c", False),
    ]
    assert describe(pb.TopicRef(name="__offsets")).topics[0].partition_count == 1


def test_describe_tells_the_state_of_partitions_when_topics_are_named() -> None:
    (told,) = describe(pb.TopicRef(topic_id=topic_id("a").bytes)).topics
    (state,) = told.partitions
    assert (told.name, told.partition_count) == ("a", 1)
    assert (list(state.replicas), list(state.isr), list(state.elr)) == ([1, 2, 3], [2], [1])
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 4, 9)
    assert state.topic_id == b""


def test_describe_leaves_partitions_out_when_only_names_are_wanted() -> None:
    told = describe(names_only=True).topics
    assert [(one.name, one.topic_id, one.partition_count) for one in told] == [
        (name, topic_id(name).bytes, count) for name, count in (("a", 1), ("b", 2), ("c", 1))
    ]
    assert all(not one.partitions for one in told)


def test_describe_keeps_the_order_and_tells_each_error_when_topics_are_missing() -> None:
    asked = [pb.TopicRef(name="c"), pb.TopicRef(name="zz"), pb.TopicRef(topic_id=b"1"), pb.TopicRef(name="a")]
    told = describe(*asked).topics
    assert [one.name for one in told] == ["c", "zz", "", "a"]
    assert codes_of(told) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert "'zz' does not exist" in told[1].error.message
