"""`tailrace configs`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cli.clusters import CommandCluster, command_cluster, invoke, lines

TOPIC_T = ("--entity-type", "topics", "--entity-name", "t")
DEFAULTS = ("--entity-type", "brokers", "--entity-default")


@pytest.fixture
def cluster() -> Iterator[CommandCluster]:
    with command_cluster() as made:
        made.output("topics", "create", "--topic", "t", "--config", "retention.ms=5")
        yield made


def test_alter_sets_and_deletes_together(cluster: CommandCluster) -> None:
    added = "segment.bytes=2000,cleanup.policy=[compact,delete], flush = os"
    shown = cluster.output(
        "configs", "alter", *TOPIC_T, "--add-config", added, "--delete-config", "retention.ms"
    )
    assert shown == "altered the settings of topic t\n"
    assert cluster.controllers.image.topic_configs("t") == {
        "segment.bytes": "2000",
        "cleanup.policy": "compact,delete",
        "flush": "os",
    }


def test_alter_changes_nothing_of_a_resource_when_one_setting_is_wrong(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "u")
    events = cluster.events(
        *("configs", "alter", *TOPIC_T, "--entity-name", "nope"),
        *("--add-config", "segment.bytes=2000", "--add-config", "retention.bites=1"),
        exit_code=1,
    )
    assert [(one["type"], one["item"], one["code"]) for one in events] == [
        ("error", "topic t", "INVALID_CONFIG"),
        ("error", "topic nope", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert "did you mean retention.bytes?" in events[0]["message"]
    assert cluster.controllers.image.topic_configs("t") == {"retention.ms": "5"}


def test_defaults_of_brokers_are_altered_and_described(cluster: CommandCluster) -> None:
    [event] = cluster.events("configs", "alter", *DEFAULTS, "--add-config", "log.retention.ms=77")
    assert event == {"type": "altered", "entity_type": "brokers", "entity_name": None}
    assert cluster.controllers.image.broker_configs(None) == {"log.retention.ms": "77"}
    [config] = cluster.events("configs", "describe", *DEFAULTS)
    assert (config["entity_name"], config["name"], config["value"]) == (None, "log.retention.ms", "77")
    assert config["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG"


def test_setting_of_one_broker_is_altered(cluster: CommandCluster) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "2")
    assert cluster.output("configs", "alter", *one, "--add-config", "log.retention.ms=8") == (
        "altered the settings of broker 2\n"
    )
    assert cluster.controllers.image.broker_configs(2) == {"log.retention.ms": "8"}


def test_describe_shows_what_somebody_set(cluster: CommandCluster) -> None:
    cluster.output("configs", "alter", *DEFAULTS, "--add-config", "log.retention.ms=77")
    [event] = cluster.events("configs", "describe", *TOPIC_T)
    assert event == {
        "type": "config",
        "entity_type": "topics",
        "entity_name": "t",
        "name": "retention.ms",
        "value": "5",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "value_type": "long",
        "read_only": False,
        "sensitive": False,
        "synonyms": event["synonyms"],
    }
    assert event["synonyms"][:2] == [
        {"name": "retention.ms", "value": "5", "source": "DYNAMIC_TOPIC_CONFIG"},
        {"name": "log.retention.ms", "value": "77", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
    ]
    assert lines(cluster.output("configs", "describe", *TOPIC_T)) == [
        ["topic", "t:"],
        ["name", "value", "source", "read-only"],
        ["retention.ms", "5", "DYNAMIC_TOPIC_CONFIG", "no"],
    ]


def test_describe_shows_every_setting_when_asked_for(cluster: CommandCluster) -> None:
    events = cluster.events("configs", "describe", *TOPIC_T, "--all")
    assert {"retention.ms", "segment.bytes", "min.insync.replicas"} <= {one["name"] for one in events}
    assert {one["source"] for one in events} == {"DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"}


def test_describe_shows_all_topics_when_none_is_named(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "u")
    shown = cluster.output("configs", "describe", "--entity-type", "topics")
    assert "topic t:\n" in shown
    assert "topic u: nothing is set; --all shows what holds then\n" in shown


def test_describe_says_whom_to_ask_about_a_broker(cluster: CommandCluster) -> None:
    done = cluster.invoke("configs", "describe", "--entity-type", "brokers", "--entity-name", "1")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("tailrace: broker 1: INVALID_REQUEST: ")
    assert "ask it, at host-1:9092" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["alter", *TOPIC_T], "give one of them, or both"),
        (["alter", *TOPIC_T, "--add-config", "retention.ms"], "key=value,key=[value,value]"),
        (["alter", *TOPIC_T, "--add-config", "a=1,=2"], "it cannot be read from '=2' on"),
        (["alter", *TOPIC_T, "--add-config", "a=[1,2"], "cannot be read"),
        (["alter", *TOPIC_T, "--add-config", "a=1,a=2"], "a is given twice"),
        (["alter", *TOPIC_T, "--add-config", "a=1", "--delete-config", "b,a"], "a cannot be set and deleted"),
        (["alter", "--entity-type", "topics", "--add-config", "a=1"], "name at least one topic"),
        (["alter", "--entity-type", "brokers", "--add-config", "a=1"], "give one of them"),
        (["describe", "--entity-type", "brokers"], "give one of them"),
        (["describe", *DEFAULTS, "--entity-name", "1"], "give one of them"),
        (["describe", "--entity-type", "brokers", "--entity-name", "one"], "the id of a broker"),
        (["describe", "--entity-type", "topics", "--entity-default"], "use --entity-type brokers"),
        (["describe", "--entity-type", "users"], "'users' is not one of"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], told: str) -> None:
    done = invoke("configs", *arguments, "--bootstrap-controller", "127.0.0.1:1")
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
