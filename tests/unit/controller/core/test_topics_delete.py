"""Deleting topics, by name and by id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.topics import delete_topics
from tailrace.v1 import admin_pb2 as pb
from tests.support.answers import code_of, codes_of
from tests.support.metadata import apply, image_with, topic_id

IMAGE = image_with(
    brokers=[1, 2],
    topics={"a": [(1, 2)], "b": [(2, 1)], "__offsets": [(1,)]},
    configs={"a": {"retention.ms": "1"}, "b": {"retention.ms": "2"}},
)


def by_name(name: str) -> pb.TopicRef:
    return pb.TopicRef(name=name)


def by_id(name: str) -> pb.TopicRef:
    return pb.TopicRef(topic_id=topic_id(name).bytes)


def delete(
    image: ClusterImage, *refs: pb.TopicRef, request_id: bytes = b"", **options: Any
) -> Decision[pb.DeleteTopicsResponse]:
    request = pb.DeleteTopicsRequest(topics=refs, request_id=request_id)
    decision = delete_topics(image, request, **options)
    assert len(decision.response.topics) == len(refs)
    return decision


@pytest.mark.parametrize(
    "ref", [by_name("a"), by_id("a"), pb.TopicRef(name="a", topic_id=topic_id("a").bytes)]
)
def test_delete_removes_the_topic_and_its_settings_when_it_is_named(ref: pb.TopicRef) -> None:
    decision = delete(IMAGE, ref)
    image = apply(IMAGE, decision)
    assert image.topic("a") is None
    assert not image.topic_configs("a")
    assert image.topic_configs("b") == {"retention.ms": "2"}
    answer = decision.response.topics[0]
    assert (answer.name, answer.topic_id) == ("a", topic_id("a").bytes)
    assert not answer.HasField("error")


def test_delete_removes_several_when_they_are_named_in_different_ways() -> None:
    assert apply(IMAGE, delete(IMAGE, by_name("a"), by_id("b"))).topic_ids.keys() == {"__offsets"}


def test_delete_removes_internal_topics_when_an_administrator_wants_it() -> None:
    assert apply(IMAGE, delete(IMAGE, by_name("__offsets"))).topic("__offsets") is None


@pytest.mark.parametrize(
    ("ref", "code"),
    [
        (by_name("c"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (by_id("c"), ErrorCode.UNKNOWN_TOPIC_ID),
        (pb.TopicRef(name="b", topic_id=topic_id("a").bytes), ErrorCode.INCONSISTENT_TOPIC_ID),
        (pb.TopicRef(topic_id=b"short"), ErrorCode.INVALID_REQUEST),
        (pb.TopicRef(), ErrorCode.INVALID_REQUEST),
    ],
)
def test_delete_refuses_one_and_goes_on_when_a_reference_is_wrong(ref: pb.TopicRef, code: ErrorCode) -> None:
    decision = delete(IMAGE, ref, by_name("a"))
    assert codes_of(decision.response.topics) == [code, ErrorCode.NONE]
    assert apply(IMAGE, decision).topic_ids.keys() == {"b", "__offsets"}


def test_delete_spares_a_topic_when_its_name_was_given_to_another_since() -> None:
    image = image_with(brokers=[1], topics={"a": [(1,)]})
    old = pb.TopicRef(name="a", topic_id=UUID(int=77).bytes)
    decision = delete(image, old)
    assert code_of(decision.response.topics[0]) is ErrorCode.UNKNOWN_TOPIC_ID
    assert decision.records == []


def test_delete_refuses_both_when_a_topic_is_named_twice() -> None:
    decision = delete(IMAGE, by_name("a"), by_id("a"), by_name("b"))
    assert codes_of(decision.response.topics) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert apply(IMAGE, decision).topic_ids.keys() == {"a", "__offsets"}


def test_delete_refuses_everything_when_it_is_switched_off() -> None:
    decision = delete(IMAGE, by_name("a"), by_name("b"), delete_topic_enable=False)
    assert codes_of(decision.response.topics) == [ErrorCode.TOPIC_DELETION_DISABLED] * 2
    assert "delete.topic.enable" in decision.response.topics[0].error.message
    assert decision.records == []


def test_delete_is_done_once_when_a_request_is_repeated() -> None:
    first = delete(IMAGE, by_name("a"), request_id=b"one")
    image = apply(IMAGE, first)
    again = delete(image, by_name("a"), request_id=b"one")
    assert again.response == first.response
    assert again.records == []
    assert code_of(delete(image, by_name("a")).response.topics[0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_delete_refuses_every_topic_when_the_request_id_cannot_be_used() -> None:
    decision = delete(IMAGE, by_name("a"), by_name("b"), request_id=b"x" * 1000)
    assert codes_of(decision.response.topics) == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.records == []
