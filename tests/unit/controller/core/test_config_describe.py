"""Settings as they are told: values, sources, synonyms, and what else is known of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.config_describe import describe_configs
from tailrace.cluster.controller.core.configs import NODE_SETTINGS, TOPIC_SETTINGS, topic_config
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from tests.support.answers import code_of
from tests.support.metadata import image_with

TOPIC = pb.CONFIG_SOURCE_DYNAMIC_TOPIC
BROKER = pb.CONFIG_SOURCE_DYNAMIC_BROKER
ALL_BROKERS = pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER
FILE = pb.CONFIG_SOURCE_STATIC_BROKER
DEFAULT = pb.CONFIG_SOURCE_DEFAULT

IMAGE = image_with(
    brokers=[1, 2, 3],
    topics={"t": [(1, 2, 3)], "u": [(2,)], "__offsets": [(1,)]},
    configs={"t": {"retention.ms": "4", "cleanup.policy": "compact"}},
    broker_configs={"": {"log.retention.ms": "3", "flush": "os"}, "1": {"log.retention.ms": "2"}},
)
STATIC = {"log.retention.hours": "1", "log.retention.minutes": "90", "log.dir": "data"}


def describe(
    kind: int,
    name: str,
    keys: Sequence[str] = (),
    *,
    image: ClusterImage = IMAGE,
    flags: Mapping[str, bool] | None = None,
    **options: Any,
) -> pb.DescribeConfigsResponse.Resource:
    resource = pb.ConfigResource(type=kind, name=name)  # type: ignore[arg-type]
    asked = pb.DescribeConfigsRequest.Resource(resource=resource, keys=keys)
    decision = describe_configs(
        image, pb.DescribeConfigsRequest(resources=[asked], **(flags or {})), **options
    )
    assert decision.records == []
    (answer,) = decision.response.resources
    assert answer.resource == resource
    return answer


def entries(kind: int, name: str, keys: Sequence[str] = (), **options: Any) -> dict[str, pb.ConfigEntry]:
    answer = describe(kind, name, keys, **options)
    assert code_of(answer) is ErrorCode.NONE
    return {one.name: one for one in answer.entries}


def synonyms(entry: pb.ConfigEntry) -> list[tuple[str, str, pb.ConfigSource]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


def test_describe_tells_every_setting_when_a_topic_is_asked_for_without_keys() -> None:
    told = entries(CONFIG_RESOURCE_TYPE_TOPIC, "t", static=STATIC)
    assert told.keys() == TOPIC_SETTINGS.keys()
    effective = topic_config(IMAGE, "t", STATIC).to_mapping() | {"min.insync.replicas": "2"}
    assert {name: one.value for name, one in told.items()} == effective
    assert not any(one.read_only or one.sensitive for one in told.values())
    assert not any(one.synonyms or one.documentation for one in told.values())


def test_describe_tells_synonyms_in_the_order_in_which_they_count_when_asked() -> None:
    told = entries(
        CONFIG_RESOURCE_TYPE_TOPIC,
        "t",
        ["retention.ms"],
        flags={"include_synonyms": True},
        static=STATIC,
        broker_id=1,
    )
    assert (told["retention.ms"].value, told["retention.ms"].source) == ("4", TOPIC)
    assert synonyms(told["retention.ms"]) == [
        ("retention.ms", "4", TOPIC),
        ("log.retention.ms", "2", BROKER),
        ("log.retention.ms", "3", ALL_BROKERS),
        ("log.retention.minutes", "90", FILE),
        ("log.retention.hours", "1", FILE),
        ("log.retention.hours", "168", DEFAULT),
    ]


@pytest.mark.parametrize(
    ("name", "options", "value", "source"),
    [
        ("u", {"broker_id": 1}, "2", BROKER),
        ("u", {"broker_id": 2}, "3", ALL_BROKERS),
        ("u", {}, "3", ALL_BROKERS),
        ("u", {"image": image_with(topics={"u": [(1,)]}), "static": STATIC}, str(90 * 60_000), FILE),
        ("u", {"image": image_with(topics={"u": [(1,)]})}, "604800000", DEFAULT),
    ],
)
def test_describe_tells_where_a_value_comes_from_when_the_topic_does_not_set_it(
    name: str, options: dict[str, Any], value: str, source: pb.ConfigSource
) -> None:
    told = entries(CONFIG_RESOURCE_TYPE_TOPIC, name, ["retention.ms"], **options)["retention.ms"]
    assert (told.value, told.source) == (value, source)


def test_describe_tells_the_first_synonym_as_the_value_when_every_setting_is_looked_at() -> None:
    own = {"retention.ms": "4", "flush.ms": "6", "compression.type": "zstd", "min.insync.replicas": "1"}
    image = image_with(topics={"t": [(1, 2, 3)]}, configs={"t": own})
    for one in entries(
        CONFIG_RESOURCE_TYPE_TOPIC, "t", image=image, flags={"include_synonyms": True}
    ).values():
        assert one.source == one.synonyms[0].source
        assert one.source == (TOPIC if one.name in own else DEFAULT)
        assert one.synonyms[-1].source == DEFAULT
        if one.name in own:
            assert one.value == one.synonyms[0].value == own[one.name]


def test_describe_tells_the_number_when_min_insync_follows_from_the_replicas() -> None:
    for name, number in (("t", "2"), ("u", "1")):
        told = entries(CONFIG_RESOURCE_TYPE_TOPIC, name, ["min.insync.replicas"])["min.insync.replicas"]
        assert (told.value, told.source) == (number, DEFAULT)


def test_describe_tells_that_syncs_are_fixed_when_the_topic_is_internal() -> None:
    told = entries(CONFIG_RESOURCE_TYPE_TOPIC, "__offsets", ["flush"], flags={"include_synonyms": True})[
        "flush"
    ]
    assert (told.value, told.source, told.read_only) == ("commit", DEFAULT, True)
    assert entries(CONFIG_RESOURCE_TYPE_TOPIC, "u", ["flush"])["flush"].value == "os"


def test_describe_tells_meaning_and_type_when_asked() -> None:
    told = entries(CONFIG_RESOURCE_TYPE_TOPIC, "t", flags={"include_documentation": True})
    types = {name: one.type for name, one in told.items()}
    assert types["retention.ms"] == "long"
    assert types["segment.bytes"] == "int"
    assert types["min.insync.replicas"] == "int"
    assert types["min.cleanable.dirty.ratio"] == "double"
    assert types["preallocate"] == "boolean"
    assert types["cleanup.policy"] == "list"
    assert types["compression.type"] == "string"
    assert {name: one.documentation for name, one in told.items()} == {
        name: one.doc for name, one in TOPIC_SETTINGS.items()
    }


def test_describe_tells_all_of_a_broker_when_it_answers_itself() -> None:
    told = entries(
        CONFIG_RESOURCE_TYPE_BROKER, "1", flags={"include_synonyms": True}, static=STATIC, broker_id=1
    )
    assert told.keys() == NODE_SETTINGS.keys()
    assert synonyms(told["log.retention.ms"]) == [
        ("log.retention.ms", "2", BROKER),
        ("log.retention.ms", "3", ALL_BROKERS),
        ("log.retention.ms", "", DEFAULT),
    ]
    assert (told["log.dir"].value, told["log.dir"].source, told["log.dir"].read_only) == ("data", FILE, True)
    assert (told["log.cleaner.threads"].source, told["log.cleaner.threads"].read_only) == (DEFAULT, False)
    assert told["log.dirs"].type == "list"


def test_describe_tells_only_what_is_set_when_the_default_of_all_brokers_is_asked_for() -> None:
    told = entries(CONFIG_RESOURCE_TYPE_BROKER, "", static=STATIC, broker_id=1)
    assert {name: (one.value, one.source) for name, one in told.items()} == {
        "log.retention.ms": ("3", ALL_BROKERS),
        "flush": ("os", ALL_BROKERS),
    }
    assert entries(CONFIG_RESOURCE_TYPE_BROKER, "", ["log.dir", "flush"]).keys() == {"flush"}


def test_describe_takes_another_name_of_a_setting_when_it_has_one() -> None:
    told = entries(CONFIG_RESOURCE_TYPE_BROKER, "1", ["message.timestamp.type"], broker_id=1)
    assert told.keys() == {"log.message.timestamp.type"}


@pytest.mark.parametrize(
    ("kind", "name", "keys", "code", "says"),
    [
        (CONFIG_RESOURCE_TYPE_TOPIC, "zz", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'zz' does not exist"),
        (CONFIG_RESOURCE_TYPE_TOPIC, "t", ["retentionms"], ErrorCode.INVALID_CONFIG, "mean retention.ms?"),
        (CONFIG_RESOURCE_TYPE_BROKER, "2", [], ErrorCode.INVALID_REQUEST, "ask it, at host-2:9092 (CLIENT)"),
        (CONFIG_RESOURCE_TYPE_BROKER, "9", [], ErrorCode.BROKER_NOT_REGISTERED, "(registered: 1, 2, 3)"),
        (0, "t", [], ErrorCode.INVALID_REQUEST, "say which is meant"),
    ],
)
def test_describe_refuses_one_resource_when_it_cannot_tell(
    kind: int, name: str, keys: list[str], code: ErrorCode, says: str
) -> None:
    answer = describe(kind, name, keys, broker_id=1)
    assert code_of(answer) is code
    assert says in answer.error.message
    assert not answer.entries


def test_describe_sends_to_the_broker_when_a_controller_is_asked() -> None:
    assert code_of(describe(CONFIG_RESOURCE_TYPE_BROKER, "1")) is ErrorCode.INVALID_REQUEST
