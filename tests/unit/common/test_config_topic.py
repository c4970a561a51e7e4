"""Topic settings: reading, limits, relations, refusals, and where values come from."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tailrace.cluster.common.settings import ConfigError
from tailrace.cluster.common.storage_config import topic_sources
from tailrace.cluster.common.topic_config import TopicConfig


def problems_of(values: dict[str, object]) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        TopicConfig.from_mapping(values)
    return {problem.name: problem.message for problem in raised.value.problems}


def test_topic_config_has_kafkas_defaults_when_nothing_is_set() -> None:
    assert TopicConfig().to_mapping() == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush": "commit",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "follower.replication.throttled.replicas": "",
        "index.interval.bytes": "4096",
        "leader.replication.throttled.replicas": "",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": "3600000",
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "",
        "preallocate": "false",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "segment.index.bytes": "10485760",
        "segment.jitter.ms": "0",
        "segment.ms": "604800000",
        "unclean.leader.election.enable": "false",
    }


def test_topic_config_reads_its_own_text_back_when_every_setting_is_changed() -> None:
    config = TopicConfig.from_mapping(
        {
            "cleanup.policy": "compact, delete",
            "compression.type": "zstd",
            "flush": "os",
            "leader.replication.throttled.replicas": "0:1,3:2",
            "follower.replication.throttled.replicas": "*",
            "min.cleanable.dirty.ratio": "0.25",
            "min.insync.replicas": "3",
            "preallocate": "TRUE",
            "retention.ms": 1000,
            "segment.bytes": "65_536",
        }
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert config.compacted
    assert config.deleted
    assert config.preallocate is True
    assert config.segment_bytes == 65_536
    assert TopicConfig.from_mapping(config.to_mapping()) == config


def test_topic_config_keeps_the_defaults_given_when_a_setting_is_not_named() -> None:
    defaults = TopicConfig(segment_bytes=4096, flush="os")
    config = TopicConfig.from_mapping({"retention.ms": "1000"}, defaults=defaults)
    assert (config.retention_ms, config.segment_bytes, config.flush) == (1000, 4096, "os")


def test_topic_config_reports_every_problem_at_once() -> None:
    problems = problems_of(
        {
            "retention.mss": "1",
            "segment.bytes": "12",
            "flush": "sometimes",
            "preallocate": "yes",
            "cleanup.policy": "delete,shred",
            "retention.ms": "7 days",
            "min.cleanable.dirty.ratio": "nan",
            "segment.jitter.ms": 11,
            "segment.ms": 10,
        }
    )
    assert problems["retention.mss"] == "unknown setting; did you mean retention.ms?"
    assert problems["segment.bytes"] == "'12' is not possible: it must be from 128 to 2147483647 (in bytes)"
    assert problems["flush"] == "'sometimes' is not possible: it must be one of commit, os"
    assert "true or false" in problems["preallocate"]
    assert "'shred' is not" in problems["cleanup.policy"]
    assert "whole number, -1 or more (in milliseconds)" in problems["retention.ms"]
    assert "from 0.0 to 1.0" in problems["min.cleanable.dirty.ratio"]
    assert "must not exceed segment.ms" in problems["segment.jitter.ms"]
    assert len(problems) == 8


def test_topic_config_suggests_the_dotted_name_when_the_python_name_is_given() -> None:
    assert problems_of({"retention_ms": 1}) == {"retention_ms": "unknown setting; did you mean retention.ms?"}


def test_topic_config_leaves_a_relation_alone_when_one_of_its_settings_is_wrong_already() -> None:
    problems = problems_of({"min.compaction.lag.ms": "x", "max.compaction.lag.ms": "1"})
    assert list(problems) == ["min.compaction.lag.ms"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("zookeeper.connect", "no ZooKeeper"),
        ("remote.storage.enable", "no tiered storage"),
        ("message.format.version", "one batch format"),
        ("compression.gzip.level", "set the level at the producer"),
        ("sasl.mechanism", "not yet supported"),
    ],
)
def test_topic_config_says_why_when_a_setting_is_refused(name: str, reason: str) -> None:
    assert reason in problems_of({name: "x"})[name]


@pytest.mark.parametrize("name", [1, None, b"retention.ms", ("retention", "ms")])
def test_topic_config_says_so_when_a_name_is_no_text(name: object) -> None:
    values: dict[Any, object] = {name: 2, "flush": "never"}
    problems = problems_of(values)
    assert list(problems) == [repr(name), "flush"]
    assert "no name of a setting" in problems[repr(name)]


@pytest.mark.parametrize("values", [None, 5, "flush=os", [("flush", "os")]])
def test_topic_config_says_so_when_settings_are_no_mapping(values: Any) -> None:
    assert "names with values" in problems_of(values)["settings"]


def test_number_setting_is_refused_when_the_value_is_beyond_every_float() -> None:
    assert list(problems_of({"min.cleanable.dirty.ratio": 10**400})) == ["min.cleanable.dirty.ratio"]


@pytest.mark.parametrize("raw", [True, 1.5, None, [], "1.5", ""])
def test_whole_number_setting_is_refused_when_the_value_is_none(raw: object) -> None:
    assert list(problems_of({"retention.ms": raw})) == ["retention.ms"]


@pytest.mark.parametrize("raw", ["delete,delete", "", ",", [], [1]])
def test_list_setting_is_refused_when_it_is_empty_or_names_something_twice(raw: object) -> None:
    assert list(problems_of({"cleanup.policy": raw})) == ["cleanup.policy"]


@pytest.mark.parametrize("raw", ["1", "a:b", "1:2:3", "*:1"])
def test_throttled_replicas_are_refused_when_not_pairs_of_partition_and_broker(raw: str) -> None:
    name = "leader.replication.throttled.replicas"
    assert list(problems_of({name: raw})) == [name]


def test_topic_config_cannot_be_built_when_a_value_or_relation_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        TopicConfig(retention_ms=-2)
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms must not exceed"):
        TopicConfig(min_compaction_lag_ms=2, max_compaction_lag_ms=1)


@pytest.mark.parametrize(("replicas", "wanted"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_min_insync_follows_the_replication_factor_when_unset(replicas: int, wanted: int) -> None:
    assert TopicConfig().min_insync(replicas) == wanted
    assert TopicConfig(min_insync_replicas=4).min_insync(replicas) == 4


def test_topic_sources_name_topic_node_or_default() -> None:
    node = {"log.segment.bytes": "file node.toml", "log.roll.hours": "flag log.roll.hours=1"}
    sources = topic_sources({"retention.ms": "1"}, node)
    assert sources["retention.ms"] == "topic"
    assert sources["segment.bytes"] == "log.segment.bytes, file node.toml"
    assert sources["segment.ms"] == "log.roll.hours, flag log.roll.hours=1"
    assert sources["flush"] == "default"


def test_config_error_keeps_its_problems_when_pickled() -> None:
    with pytest.raises(ConfigError) as raised:
        TopicConfig.from_mapping({"a": 1, "flush": 2})
    copy = pickle.loads(pickle.dumps(raised.value))
    assert copy.problems == raised.value.problems
    assert str(copy) == str(raised.value)
