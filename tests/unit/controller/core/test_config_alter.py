"""Altering settings: operations, checks as a whole, refusals, and what it means for partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.config_alter import alter_configs
from tailrace.cluster.controller.core.decision import Decision
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from tests.support.answers import code_of, codes_of
from tests.support.metadata import apply, image_with, partition

Request = pb.AlterConfigsRequest
SET, DELETE = Request.OP_SET, Request.OP_DELETE
APPEND, SUBTRACT = Request.OP_APPEND, Request.OP_SUBTRACT
POLICY = "cleanup.policy"
THROTTLED = "leader.replication.throttled.replicas"


def change(key: str, value: str = "", op: Request.Op = SET) -> Request.Change:
    return Request.Change(key=key, value=value, op=op)


def on(kind: int, name: str, *changes: Request.Change) -> Request.Resource:
    resource = pb.ConfigResource(type=kind, name=name)  # type: ignore[arg-type]
    return Request.Resource(resource=resource, changes=changes)


def topic(name: str, *changes: Request.Change) -> Request.Resource:
    return on(CONFIG_RESOURCE_TYPE_TOPIC, name, *changes)


def broker(name: str, *changes: Request.Change) -> Request.Resource:
    return on(CONFIG_RESOURCE_TYPE_BROKER, name, *changes)


def image(
    configs: Mapping[str, Mapping[str, str]] | None = None,
    broker_configs: Mapping[str, Mapping[str, str]] | None = None,
) -> ClusterImage:
    return image_with(
        brokers=[1, 2, 3],
        topics={"t": [(1, 2, 3)], "u": [(2, 3, 1)], "__offsets": [(1,)]},
        configs=configs,
        broker_configs=broker_configs,
    )


def alter(
    before: ClusterImage, *resources: Request.Resource, **options: Any
) -> Decision[pb.AlterConfigsResponse]:
    request = Request(
        resources=resources,
        validate_only=options.pop("validate_only", False),
        request_id=options.pop("request_id", b""),
    )
    decision = alter_configs(before, request, **options)
    assert [one.resource for one in decision.response.resources] == [one.resource for one in resources]
    return decision


def altered(before: ClusterImage, *resources: Request.Resource, **options: Any) -> ClusterImage:
    decision = alter(before, *resources, **options)
    assert codes_of(decision.response.resources) == [ErrorCode.NONE] * len(resources)
    return apply(before, decision)


def refusal(before: ClusterImage, *resources: Request.Resource, **options: Any) -> tuple[ErrorCode, str]:
    """Of the last resource, when nothing is done at all."""
    decision = alter(before, *resources, **options)
    assert decision.records == []
    return code_of(decision.response.resources[-1]), decision.response.resources[-1].error.message


# Operations.


def test_alter_sets_and_deletes_together_when_a_topic_is_changed() -> None:
    before = image({"t": {"retention.ms": "1", "segment.bytes": "4096"}})
    changes = [change("retention.ms", op=DELETE), change("flush", "os"), change("segment.bytes", " 8192 ")]
    after = altered(before, topic("t", *changes))
    assert after.topic_configs("t") == {"flush": "os", "segment.bytes": "8192"}


def test_alter_sets_settings_of_one_and_of_all_brokers_when_they_are_named() -> None:
    after = altered(
        image(),
        broker("", change("log.retention.ms", "5")),
        broker("2", change("log.cleaner.threads", " 03 ")),
    )
    assert after.broker_configs(None) == {"log.retention.ms": "5"}
    assert after.broker_configs(2) == {"log.cleaner.threads": "3"}


def test_alter_keeps_a_setting_under_its_first_name_when_another_is_used() -> None:
    after = altered(image(), broker("", change("message.timestamp.type", "LogAppendTime")))
    assert after.broker_configs(None) == {"log.message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    "changes",
    [
        [change("retention.ms", "1")],
        [change("retention.ms", " 01 ")],
        [change("flush", op=DELETE)],
        [change(POLICY, "delete", APPEND), change(THROTTLED, "0:1", SUBTRACT)],
        [],
    ],
)
def test_alter_writes_no_setting_when_nothing_changes(changes: list[Request.Change]) -> None:
    before = image({"t": {"retention.ms": "1", POLICY: "delete", THROTTLED: ""}})
    decision = alter(before, topic("t", *changes), request_id=b"one")
    assert codes_of(decision.response.resources) == [ErrorCode.NONE]
    assert decision.records == []


@pytest.mark.parametrize(
    ("now", "op", "value", "then"),
    [
        (None, APPEND, "compact", "delete,compact"),
        ("compact", APPEND, "compact, delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "delete", "compact"),
        ("compact", SUBTRACT, "delete", "compact"),
    ],
)
def test_alter_edits_a_list_when_words_are_appended_or_subtracted(
    now: str | None, op: Request.Op, value: str, then: str
) -> None:
    before = image({"t": {POLICY: now}} if now else None)
    assert altered(before, topic("t", change(POLICY, value, op))).topic_configs("t") == {POLICY: then}


def test_alter_edits_what_holds_when_a_topic_has_no_list_of_its_own() -> None:
    before = image(broker_configs={"": {"log.cleanup.policy": "compact"}})
    after = altered(before, topic("t", change(POLICY, "delete", APPEND)))
    assert after.topic_configs("t") == {POLICY: "compact,delete"}
    after = altered(image(), broker("1", change("log.cleanup.policy", "compact", APPEND)))
    assert after.broker_configs(1) == {"log.cleanup.policy": "delete,compact"}


def test_alter_leaves_an_empty_list_when_all_throttled_replicas_are_subtracted() -> None:
    before = image({"t": {THROTTLED: "0:1,0:2"}})
    after = altered(before, topic("t", change(THROTTLED, "0:2,0:1", SUBTRACT)))
    assert after.topic_configs("t") == {THROTTLED: ""}


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (change("retention.ms", "5", APPEND), "retention.ms: is not a list: set it instead"),
        (change(POLICY, " , ", APPEND), "cleanup.policy: names nothing"),
        (change(POLICY, "shred", APPEND), "cleanup.policy: 'delete,shred' is not possible"),
        (change(POLICY, "delete", SUBTRACT), "cleanup.policy: '' is not possible"),
    ],
)
def test_alter_refuses_an_edit_when_no_possible_list_comes_of_it(edit: Request.Change, says: str) -> None:
    code, message = refusal(image(), topic("t", edit))
    assert code is ErrorCode.INVALID_CONFIG
    assert says in message


# All or nothing.


def test_alter_names_every_problem_and_does_nothing_when_one_change_is_wrong() -> None:
    changes = [
        change("flush", "os"),
        change("retention.ms", "soon"),
        change("retention.msec", "1"),
        change("segment.jitter.ms", "10"),
        change("segment.ms", "5"),
        change("no.such", op=DELETE),
    ]
    code, message = refusal(image(), topic("t", *changes))
    assert code is ErrorCode.INVALID_CONFIG
    assert "4 settings cannot be used" in message
    for says in ("'soon'", "did you mean retention.ms?", "segment.jitter.ms must not exceed", "no.such"):
        assert says in message


def test_alter_goes_on_with_other_resources_when_one_is_refused() -> None:
    decision = alter(image(), topic("t", change("flush", "never")), topic("u", change("flush", "os")))
    assert codes_of(decision.response.resources) == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE]
    after = apply(image(), decision)
    assert (after.topic_configs("t"), after.topic_configs("u")) == ({}, {"flush": "os"})


def test_alter_checks_relations_with_what_stays_when_half_of_one_is_changed() -> None:
    before = image({"t": {"min.compaction.lag.ms": "100"}})
    code, message = refusal(before, topic("t", change("max.compaction.lag.ms", "50")))
    assert code is ErrorCode.INVALID_CONFIG
    assert "min.compaction.lag.ms=100, max.compaction.lag.ms=50" in message
    both = [change("max.compaction.lag.ms", "50"), change("min.compaction.lag.ms", op=DELETE)]
    assert altered(before, topic("t", *both)).topic_configs("t") == {"max.compaction.lag.ms": "50"}


def test_alter_checks_relations_with_a_nodes_file_when_brokers_are_changed() -> None:
    resource = broker("", change("log.roll.jitter.ms", "5000"))
    assert altered(image(), resource).broker_configs(None) == {"log.roll.jitter.ms": "5000"}
    code, message = refusal(image(), resource, static={"log.roll.ms": "1000"})
    assert code is ErrorCode.INVALID_CONFIG
    assert "the jitter" in message


def test_alter_refuses_a_key_when_it_is_changed_twice() -> None:
    code, message = refusal(image(), topic("t", change("flush", "os"), change("flush", op=DELETE)))
    assert code is ErrorCode.INVALID_CONFIG
    assert "flush: is changed more than once" in message
    twice = [
        change("log.message.timestamp.type", "CreateTime"),
        change("message.timestamp.type", "CreateTime"),
    ]
    assert "is changed more than once" in refusal(image(), broker("", *twice))[1]


def test_alter_refuses_a_resource_when_it_stands_twice_in_a_request() -> None:
    same = [topic("t", change("flush", "os")), topic("t", change("retention.ms", "1"))]
    decision = alter(image(), *same, broker("", change("flush", "os")))
    assert codes_of(decision.response.resources) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert not apply(image(), decision).topic_configs("t")


def test_alter_leaves_settings_of_newer_releases_alone_when_others_change() -> None:
    before = image({"t": {"from.the.future": "1"}}, {"": {"from.the.future": "2"}})
    after = altered(before, topic("t", change("flush", "os")), broker("", change("flush", "os")))
    assert after.topic_configs("t") == {"from.the.future": "1", "flush": "os"}
    assert after.broker_configs(None) == {"from.the.future": "2", "flush": "os"}
    assert not altered(before, topic("t", change("from.the.future", op=DELETE))).topic_configs("t")


# Who and what.


@pytest.mark.parametrize(
    ("resource", "code", "says"),
    [
        (topic("zz", change("flush", "os")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'zz' does not exist"),
        (broker("9", change("flush", "os")), ErrorCode.BROKER_NOT_REGISTERED, "(registered: 1, 2, 3)"),
        (broker("one", change("flush", "os")), ErrorCode.INVALID_REQUEST, "'one' is no broker: give its id"),
        (broker("01", change("flush", "os")), ErrorCode.INVALID_REQUEST, "'01' is no broker"),
        (broker("9" * 5000, change("flush", "os")), ErrorCode.INVALID_REQUEST, "9' is no broker"),
        (on(0, "t", change("flush", "os")), ErrorCode.INVALID_REQUEST, "say which is meant"),
    ],
)
def test_alter_refuses_a_resource_when_it_is_not_there(
    resource: Request.Resource, code: ErrorCode, says: str
) -> None:
    refused, message = refusal(image(), resource)
    assert refused is code
    assert says in message


def test_alter_deletes_settings_of_a_broker_when_it_is_registered_no_more() -> None:
    before = image(broker_configs={"9": {"flush": "os", "log.cleaner.threads": "2"}})
    after = altered(before, broker("9", change("flush", op=DELETE)))
    assert after.broker_configs(9) == {"log.cleaner.threads": "2"}


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize("op", [SET, DELETE])
def test_alter_points_to_the_file_when_a_setting_needs_a_restart(name: str, op: Request.Op) -> None:
    code, message = refusal(image(), broker(name, change("log.dirs", "/data", op)))
    assert code is ErrorCode.INVALID_CONFIG
    assert "log.dirs: cannot be changed while a node runs: set it in node.toml and restart" in message


@pytest.mark.parametrize("key", ["min.insync.replicas", "unclean.leader.election.enable"])
def test_alter_refuses_one_broker_when_the_whole_cluster_must_agree(key: str) -> None:
    value = "2" if key == "min.insync.replicas" else "true"
    code, message = refusal(image(), broker("1", change(key, value)))
    assert code is ErrorCode.INVALID_CONFIG
    assert "the same in the whole cluster" in message
    assert altered(image(), broker("", change(key, value))).broker_configs(None) == {key: value}
    stored = image(broker_configs={"1": {key: value}})
    assert not altered(stored, broker("1", change(key, op=DELETE))).broker_configs(1)


def test_alter_says_whose_setting_it_is_when_it_is_given_to_another_kind() -> None:
    _, message = refusal(image(), broker("", change("retention.ms", "1")))
    assert "is a setting of topics; a broker gives its default as log.retention.ms" in message
    _, message = refusal(image(), topic("t", change("log.retention.ms", "1")))
    assert "is a setting of brokers; for a topic it is retention.ms" in message
    _, message = refusal(image(), topic("t", change("log.cleaner.threads", "1")))
    assert message.endswith("log.cleaner.threads: is a setting of brokers")


def test_alter_refuses_weaker_syncs_when_the_topic_is_internal() -> None:
    code, message = refusal(image(), topic("__offsets", change("flush", "os")))
    assert code is ErrorCode.INVALID_CONFIG
    assert "must be commit" in message


def test_alter_refuses_a_value_when_it_is_too_long() -> None:
    pairs = ",".join(f"{number}:1" for number in range(10_000))
    assert "32767 are allowed" in refusal(image(), topic("t", change(THROTTLED, pairs)))[1]


# What builds on it.


def test_alter_refuses_a_default_when_it_breaks_what_a_topic_or_broker_has_set() -> None:
    before = image({"u": {"segment.jitter.ms": "5000"}}, {"2": {"log.roll.jitter.ms": "4000"}})
    code, message = refusal(before, broker("", change("log.roll.ms", "1000")))
    assert code is ErrorCode.INVALID_CONFIG
    assert "segment.jitter.ms of topic u" in message
    assert "log.roll.jitter.ms of broker 2" in message
    altered(before, broker("", change("log.roll.ms", "6000")))


def test_alter_judges_topics_by_what_the_change_touches_when_they_hold_other_settings() -> None:
    before = image({"u": {"segment.jitter.ms": "500", "from.the.future": "1"}})
    after = altered(before, broker("", change("log.roll.ms", "1000")))
    assert after.broker_configs(None) == {"log.roll.ms": "1000"}


def test_alter_refuses_a_brokers_setting_when_it_breaks_what_a_topic_has_set() -> None:
    before = image({"u": {"segment.jitter.ms": "5000"}})
    assert "segment.jitter.ms of topic u" in refusal(before, broker("1", change("log.roll.ms", "1000")))[1]


def test_alter_names_a_few_and_counts_the_rest_when_a_default_breaks_many_topics() -> None:
    names = [f"topic-{number}" for number in range(20)]
    before = image_with(
        brokers=[1],
        topics={name: [(1,)] for name in names},
        configs={name: {"segment.jitter.ms": "5000"} for name in names},
    )
    _, message = refusal(before, broker("", change("log.roll.ms", "1000")))
    assert message.count("of topic topic-") == 5
    assert "15 more: break in the same way" in message


def test_alter_sees_earlier_resources_when_one_request_changes_both_sides() -> None:
    lower = broker("", change("log.roll.ms", "1000"))
    jitter = topic("t", change("segment.jitter.ms", "2000"))
    for order in ((lower, jitter), (jitter, lower)):
        decision = alter(image(), *order)
        assert codes_of(decision.response.resources) == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    before = image({"t": {"segment.jitter.ms": "2000"}})
    after = altered(before, topic("t", change("segment.jitter.ms", op=DELETE)), lower)
    assert (after.topic_configs("t"), after.broker_configs(None)) == ({}, {"log.roll.ms": "1000"})


def test_alter_empties_the_elr_when_leaders_may_go_on_without_it() -> None:
    shrunk = partition(1, 2, 3, isr=(1,), elr=(2,), partition_epoch=5)
    before = image_with(
        brokers=[1, 2, 3],
        topics={"t": [shrunk], "u": [shrunk]},
        configs={"u": {"min.insync.replicas": "2"}},
        broker_configs={"": {"min.insync.replicas": "2"}},
    )
    for resource in (
        topic("t", change("min.insync.replicas", "1")),
        broker("", change("min.insync.replicas", "1")),
    ):
        after = altered(before, resource)
        of_t, of_u = after.topic("t"), after.topic("u")
        assert of_t is not None
        assert of_u is not None
        assert (of_t.partitions[0].elr, of_t.partitions[0].partition_epoch) == ((), 6)
        assert of_u.partitions[0] == shrunk


def test_alter_keeps_the_elr_when_it_is_all_that_a_partition_has() -> None:
    waiting = partition(1, 2, 3, isr=(), elr=(2,), partition_epoch=5)
    before = image_with(brokers=[1], topics={"t": [waiting]}, configs={"t": {"min.insync.replicas": "2"}})
    after = altered(before, topic("t", change("min.insync.replicas", "1"))).topic("t")
    assert after is not None
    assert after.partitions[0].elr == (2,)


# Requests.


def test_alter_changes_nothing_when_it_only_validates() -> None:
    decision = alter(
        image(),
        topic("t", change("flush", "os")),
        topic("u", change("flush", "never")),
        validate_only=True,
        request_id=b"one",
    )
    assert codes_of(decision.response.resources) == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    assert decision.records == []


def test_alter_is_done_once_when_a_request_is_repeated() -> None:
    append = topic("t", change(THROTTLED, "0:1", APPEND))
    first = alter(image(), append, request_id=b"one")
    after = altered(apply(image(), first), topic("t", change(THROTTLED, op=DELETE)))
    again = alter(after, append, request_id=b"one")
    assert (again.response, again.records) == (first.response, [])


def test_alter_refuses_every_resource_when_the_request_id_cannot_be_used() -> None:
    resources = [topic("t", change("flush", "os")), topic("u", change("flush", "os"))]
    decision = alter(image(), *resources, request_id=b"x" * 1000)
    assert codes_of(decision.response.resources) == [ErrorCode.INVALID_REQUEST] * 2
    assert decision.records == []
