"""Creating topics: what is asked, what stands in the records, and every way to be refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.topic_checks import PartitionLimits
from tailrace.cluster.controller.core.topics import create_topics
from tailrace.v1 import admin_pb2 as pb
from tests.support.answers import code_of, codes_of
from tests.support.metadata import apply, broker, image_with

THREE = image_with(brokers=[1, 2, 3])


def topic(name: str = "orders", *, assignment: Any = (), **fields: Any) -> pb.CreateTopicsRequest.Topic:
    chosen = [pb.ReplicaAssignment(broker_ids=one) for one in assignment]
    return pb.CreateTopicsRequest.Topic(name=name, assignment=chosen, **fields)


def ids() -> Iterator[UUID]:
    return (UUID(int=number) for number in range(1, 1_000_000))


def create(
    image: ClusterImage, *topics: pb.CreateTopicsRequest.Topic, **options: Any
) -> Decision[pb.CreateTopicsResponse]:
    request = pb.CreateTopicsRequest(
        topics=topics,
        validate_only=options.pop("validate_only", False),
        request_id=options.pop("request_id", b""),
    )
    new_ids = options.pop("new_ids", None) or ids()
    decision = create_topics(image, request, new_id=lambda: next(new_ids), seed=1, **options)
    apply(image, decision)
    assert len(decision.response.topics) == len(topics)
    return decision


def refusal(
    image: ClusterImage, *topics: pb.CreateTopicsRequest.Topic, **options: Any
) -> tuple[ErrorCode, str]:
    """Of the last topic, which leaves no trace in the records."""
    decision = create(image, *topics, **options)
    assert topics[-1].name not in [one.topic_created.name for one in decision.records]
    refused = decision.response.topics[-1]
    return code_of(refused), refused.error.message


def test_create_makes_topic_partitions_and_settings_when_asked() -> None:
    asked = topic(partitions=4, replication_factor=2, configs={"retention.ms": "1000", "flush": "os"})
    decision = create(THREE, asked)
    image = apply(THREE, decision)
    made = image.topic("orders")
    assert made is not None
    assert made.topic_id == UUID(int=1)
    assert len(made.partitions) == 4
    for one in made.partitions:
        assert len(one.replicas) == 2
        assert one.isr == one.replicas
        assert (one.leader, one.leader_epoch, one.partition_epoch) == (one.replicas[0], 0, 0)
    assert image.topic_configs("orders") == {"retention.ms": "1000", "flush": "os"}
    answer = decision.response.topics[0]
    assert (answer.name, answer.partitions, answer.replication_factor) == ("orders", 4, 2)
    assert answer.topic_id == UUID(int=1).bytes
    assert not answer.HasField("error")


def test_create_answers_with_the_settings_that_hold_when_the_topic_sets_some() -> None:
    decision = create(THREE, topic(configs={"retention.ms": "1000"}), static={"log.segment.bytes": "4096"})
    entries = {one.name: one for one in decision.response.topics[0].configs}
    assert (entries["retention.ms"].value, entries["retention.ms"].source) == (
        "1000",
        pb.CONFIG_SOURCE_DYNAMIC_TOPIC,
    )
    assert entries["segment.bytes"].value == "4096"
    assert entries["min.insync.replicas"].value == "2"
    assert len(entries) == 26


def test_create_keeps_settings_as_their_kinds_show_them_when_text_differs() -> None:
    image = apply(THREE, create(THREE, topic(configs={"cleanup.policy": " compact , delete "})))
    assert image.topic_configs("orders") == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize("unsaid", [-1, 0])
@pytest.mark.parametrize(("brokers", "factor"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_create_uses_three_replicas_or_all_brokers_when_numbers_are_not_said(
    unsaid: int, brokers: int, factor: int
) -> None:
    image = image_with(brokers=range(brokers))
    decision = create(image, topic(partitions=unsaid, replication_factor=unsaid), num_partitions=6)
    answer = decision.response.topics[0]
    assert (answer.partitions, answer.replication_factor) == (6, factor)


def test_create_uses_the_given_default_when_it_is_set() -> None:
    assert create(THREE, topic(), default_replication_factor=2).response.topics[0].replication_factor == 2


def test_create_leaves_fenced_replicas_out_of_the_isr_when_they_are_needed() -> None:
    image = image_with(brokers=[1, broker(2, fenced=True), broker(3, shutting_down=True)])
    made = apply(image, create(image, topic(partitions=2))).topic("orders")
    assert made is not None
    for one in made.partitions:
        assert sorted(one.replicas) == [1, 2, 3]
        assert (one.isr, one.leader) == ((1,), 1)


def test_create_follows_the_assignment_when_one_is_given() -> None:
    made = apply(THREE, create(THREE, topic(assignment=[(3, 1), (1, 2)]))).topic("orders")
    assert made is not None
    assert [one.replicas for one in made.partitions] == [(3, 1), (1, 2)]
    assert [one.leader for one in made.partitions] == [3, 1]


def test_create_lets_the_first_active_broker_lead_when_the_preferred_one_is_fenced() -> None:
    image = image_with(brokers=[1, broker(2, fenced=True), 3])
    made = apply(image, create(image, topic(assignment=[(2, 3, 1)]))).topic("orders")
    assert made is not None
    assert (made.partitions[0].isr, made.partitions[0].leader) == ((3, 1), 3)


def test_create_spreads_topics_of_one_request_when_each_has_one_partition() -> None:
    image = apply(THREE, create(THREE, *(topic(f"t{number}", replication_factor=1) for number in range(30))))
    assert Counter(one.leader for _, _, one in image.partitions()) == {1: 10, 2: 10, 3: 10}


def test_create_counts_assigned_partitions_when_it_places_others() -> None:
    others = [topic(f"t{number}", replication_factor=1) for number in range(5)]
    image = apply(THREE, create(THREE, topic("a", assignment=[(1,), (2,)] * 5), *others))
    assert Counter(one.leader for _, _, one in image.partitions()) == {1: 5, 2: 5, 3: 5}


def test_create_makes_nothing_when_it_only_validates() -> None:
    decision = create(THREE, topic(partitions=2), topic("bad name"), validate_only=True, request_id=b"id")
    assert decision.records == []
    good, bad = decision.response.topics
    assert (good.partitions, good.replication_factor, good.topic_id) == (2, 3, b"")
    assert len(good.configs) == 26
    assert code_of(bad) is ErrorCode.INVALID_TOPIC


def test_create_goes_on_when_one_topic_is_refused() -> None:
    decision = create(THREE, topic("bad name"), topic("good"))
    assert apply(THREE, decision).topic_ids.keys() == {"good"}
    assert codes_of(decision.response.topics) == [ErrorCode.INVALID_TOPIC, ErrorCode.NONE]


def test_create_refuses_a_topic_when_it_exists() -> None:
    image = image_with(brokers=[1], topics={"orders": [(1,)]})
    code, message = refusal(image, topic())
    assert code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert "'orders' exists" in message


@pytest.mark.parametrize("other", ["a_b.c", "a.b_c", "a_b_c"])
def test_create_refuses_a_name_when_it_differs_in_dots_and_underscores_only(other: str) -> None:
    image = image_with(brokers=[1], topics={"a.b.c": [(1,)]})
    code, message = refusal(image, topic(other))
    assert code is ErrorCode.INVALID_TOPIC
    assert f"{other!r} would collide with topic 'a.b.c'" in message


def test_create_refuses_the_later_name_when_two_of_a_request_collide() -> None:
    decision = create(THREE, topic("x.y"), topic("plain"), topic("x_y"))
    assert codes_of(decision.response.topics) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TOPIC]


def test_create_takes_a_name_when_the_one_it_would_collide_with_was_refused() -> None:
    decision = create(THREE, topic("x.y", replication_factor=9), topic("x_y"))
    assert apply(THREE, decision).topic_ids.keys() == {"x_y"}


def test_create_refuses_all_of_them_when_a_name_stands_twice_in_a_request() -> None:
    decision = create(THREE, topic("a"), topic("b"), topic("a", partitions=5))
    assert codes_of(decision.response.topics) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert apply(THREE, decision).topic_ids.keys() == {"b"}


def test_create_names_every_problem_when_settings_are_wrong() -> None:
    configs = {
        "retention.ms": "soon",
        "retention.msec": "1",
        "min.compaction.lag.ms": "10",
        "max.compaction.lag.ms": "5",
        "remote.storage.enable": "true",
    }
    code, message = refusal(THREE, topic(configs=configs))
    assert code is ErrorCode.INVALID_CONFIG
    assert "4 settings cannot be used" in message
    assert "retention.ms: 'soon' is not possible" in message
    assert "retention.msec: unknown setting; did you mean retention.ms?" in message
    assert "min.compaction.lag.ms must not exceed max.compaction.lag.ms" in message
    assert "there is no tiered storage" in message


def test_create_checks_relations_against_defaults_of_brokers_when_a_topic_sets_half_of_one() -> None:
    image = image_with(brokers=[1], broker_configs={"": {"log.roll.ms": "1000"}})
    code, message = refusal(image, topic(configs={"segment.jitter.ms": "2000"}))
    assert code is ErrorCode.INVALID_CONFIG
    assert "segment.ms=1000" in message


def test_create_refuses_settings_when_one_is_too_long() -> None:
    pairs = ",".join(f"{number}:1" for number in range(10_000))
    code, message = refusal(THREE, topic(configs={"leader.replication.throttled.replicas": pairs}))
    assert code is ErrorCode.INVALID_CONFIG
    assert "bytes long, and 32767 are allowed" in message


def test_create_refuses_weaker_syncs_when_the_topic_is_internal() -> None:
    code, message = refusal(THREE, topic("__offsets", configs={"flush": "os"}))
    assert code is ErrorCode.INVALID_CONFIG
    assert "flush: must be commit" in message
    create(THREE, topic("__offsets", configs={"flush": "commit"}))


@pytest.mark.parametrize("partitions", [-2, -100])
def test_create_refuses_partitions_when_their_number_is_negative(partitions: int) -> None:
    code, message = refusal(THREE, topic(partitions=partitions))
    assert code is ErrorCode.INVALID_PARTITIONS
    assert f"not {partitions}" in message


@pytest.mark.parametrize(("factor", "says"), [(4, "3 are registered (1, 2, 3)"), (-3, "1 or more, not -3")])
def test_create_refuses_replicas_when_brokers_cannot_hold_them(factor: int, says: str) -> None:
    code, message = refusal(THREE, topic(replication_factor=factor))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert says in message


def test_create_refuses_placement_when_every_broker_is_fenced() -> None:
    code, message = refusal(image_with(brokers=[broker(1, fenced=True)]), topic())
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "try again when it is up" in message


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ([(1, 2), ()], "partition 1 has no broker"),
        ([(1, 2, 1)], "partition 0 has a broker twice (1, 2, 1)"),
        ([(1, 7), (1, 2)], "partition 0 has brokers that are not registered (7); registered: 1, 2, 3, 4"),
        (
            [(1, 2), (1, 2, 3)],
            "partition 1 has 3 replicas (1, 2, 3), and all partitions of the topic must have 2",
        ),
        ([(4,)], "partition 0 has only brokers that are fenced or shutting down (4)"),
    ],
)
def test_create_refuses_an_assignment_when_it_cannot_be(assignment: list[tuple[int, ...]], says: str) -> None:
    image = image_with(brokers=[1, 2, 3, broker(4, fenced=True)])
    code, message = refusal(image, topic(assignment=assignment))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert says in message


@pytest.mark.parametrize("numbers", [{"partitions": 1}, {"replication_factor": 2}])
def test_create_refuses_numbers_when_an_assignment_says_them(numbers: dict[str, Any]) -> None:
    code, message = refusal(THREE, topic(assignment=[(1, 2)], **numbers))
    assert code is ErrorCode.INVALID_REQUEST
    assert "leave both numbers out" in message


def test_create_refuses_a_topic_when_it_has_too_many_partitions() -> None:
    limits = PartitionLimits(per_topic=10, new_per_request=100)
    for asked in (topic(partitions=11), topic(assignment=[(1,)] * 11)):
        code, message = refusal(THREE, asked, limits=limits)
        assert code is ErrorCode.INVALID_PARTITIONS
        assert "at most 10 partitions, not 11" in message
    create(THREE, topic(partitions=10), limits=limits)


def test_create_refuses_what_does_not_fit_when_a_request_is_too_large() -> None:
    limits = PartitionLimits(per_topic=10, new_per_request=15)
    topics = [topic("a", partitions=10), topic("b", partitions=6), topic("c", partitions=5)]
    decision = create(THREE, *topics, limits=limits)
    assert codes_of(decision.response.topics) == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert (
        "at most 15 partitions, and of these 5 are left, not 6" in decision.response.topics[1].error.message
    )


def test_create_is_done_once_when_a_request_is_repeated() -> None:
    asked = topic(configs={"retention.ms": "5"})
    first = create(THREE, asked, topic("bad name"), request_id=b"one")
    image = apply(THREE, first)
    again = create(image, asked, topic("bad name"), request_id=b"one")
    assert again.records == []
    assert again.response == first.response
    code, _ = refusal(image, asked, request_id=b"two")
    assert code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_create_keeps_no_settings_in_the_metadata_when_it_keeps_the_answer() -> None:
    image = apply(THREE, create(THREE, topic(), request_id=b"one"))
    assert b"retention.ms" not in image.requests[b"one"]


def test_create_remembers_nothing_when_nothing_was_done() -> None:
    assert create(THREE, topic("bad name"), request_id=b"one").records == []


def test_create_refuses_every_topic_when_the_request_id_cannot_be_used() -> None:
    decision = create(THREE, topic("a"), topic("b"), request_id=b"x" * 1000)
    assert codes_of(decision.response.topics) == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.records == []
