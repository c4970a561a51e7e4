"""`tailrace topics`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.metadata import broker, partition
from tests.unit.cli.clusters import CommandCluster, command_cluster, invoke, lines
from tests.unit.clients.controllers import Controllers


@pytest.fixture
def cluster() -> Iterator[CommandCluster]:
    with command_cluster() as made:
        yield made


def test_create_makes_topics_as_told(cluster: CommandCluster) -> None:
    shown = cluster.output(
        *("topics", "create", "--topic", "clicks", "--topic", "views", "--partitions", "3"),
        *(
            "--replication-factor",
            "2",
            "--config",
            "retention.ms=5",
            "--config",
            "cleanup.policy=compact,delete",
        ),
    )
    assert shown.splitlines() == [
        "created topic clicks: 3 partitions, replication factor 2",
        "created topic views: 3 partitions, replication factor 2",
    ]
    image = cluster.controllers.image
    topic = image.topic("clicks")
    assert topic is not None
    assert [len(one.replicas) for one in topic.partitions] == [2, 2, 2]
    assert image.topic_configs("views") == {"retention.ms": "5", "cleanup.policy": "compact,delete"}


def test_create_takes_an_assignment(cluster: CommandCluster) -> None:
    [event] = cluster.events("topics", "create", "--topic", "t", "--replica-assignment", "1:2,3:1")
    topic = cluster.controllers.image.topic("t")
    assert topic is not None
    assert [one.replicas for one in topic.partitions] == [(1, 2), (3, 1)]
    assert event == {
        "type": "created",
        "topic": "t",
        "topic_id": str(topic.topic_id),
        "partitions": 2,
        "replication_factor": 2,
    }


def test_create_says_which_topics_failed_and_makes_the_others(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "old")
    done = cluster.invoke("topics", "create", "--topic", "old", "--topic", "new")
    assert done.exit_code == 1
    assert done.stderr == (
        "tailrace: topic old: TOPIC_ALREADY_EXISTS: topic 'old' exists: use it, or choose another name\n"
    )
    assert done.stdout == "created topic new: 1 partition, replication factor 3\n"
    events = cluster.events("topics", "create", "--topic", "old", "--topic", "more", exit_code=1)
    assert [(one["type"], one.get("topic", one.get("item"))) for one in events] == [
        ("error", "old"),
        ("created", "more"),
    ]
    assert events[0]["code"] == "TOPIC_ALREADY_EXISTS"


def test_create_is_content_with_a_topic_that_exists_when_told_so(cluster: CommandCluster) -> None:
    for _ in range(2):
        cluster.output("topics", "create", "--topic", "t", "--if-not-exists")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create"], "Missing option '--topic'"),
        (["create", "--topic", "t", "--partitions", "0"], "--partitions"),
        (["create", "--topic", "t", "--partitions", "99999999999"], "--partitions"),
        (["create", "--topic", "t", "--config", "retention.ms"], "key=value"),
        (["create", "--topic", "t", "--config", "a=1", "--config", "a=2"], "a is given twice"),
        (["create", "--topic", "t", "--replica-assignment", "1:x"], "ids of brokers"),
        (["create", "--topic", "t", "--replica-assignment", "1,,2"], "ids of brokers"),
        (
            ["create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"],
            "leave out --partitions",
        ),
        (["alter", "--topic", "t"], "Missing option '--partitions'"),
        (["describe", "--unavailable-partitions", "--under-replicated-partitions"], "exactly one"),
        (["list", "--bootstrap-server", "x:1"], "No such option"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], told: str) -> None:
    done = invoke("topics", *arguments, "--bootstrap-controller", "127.0.0.1:1")
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())


def test_delete_removes_topics(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "a", "--topic", "b")
    assert cluster.output("topics", "delete", "--topic", "a") == "deleted topic a\n"
    done = cluster.invoke("topics", "delete", "--topic", "a", "--topic", "b")
    assert (done.exit_code, done.stdout) == (1, "deleted topic b\n")
    assert done.stderr == "tailrace: topic a: UNKNOWN_TOPIC_OR_PARTITION: topic 'a' does not exist\n"
    assert cluster.output("topics", "delete", "--topic", "a", "--if-exists") == ""
    assert cluster.controllers.image.topics == {}


def test_alter_adds_partitions(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "t", "--partitions", "2")
    assert (
        cluster.output("topics", "alter", "--topic", "t", "--partitions", "4") == "topic t has 4 partitions\n"
    )
    assert cluster.events(
        "topics", "alter", "--topic", "t", "--partitions", "5", "--replica-assignment", "3:2:1"
    ) == [{"type": "altered", "topic": "t", "partitions": 5}]
    done = cluster.invoke("topics", "alter", "--topic", "t", "--partitions", "1")
    assert done.exit_code == 1
    assert "INVALID_PARTITIONS" in done.stderr
    assert cluster.output("topics", "alter", "--topic", "u", "--partitions", "2", "--if-exists") == ""
    topic = cluster.controllers.image.topic("t")
    assert topic is not None
    assert len(topic.partitions) == 5
    assert topic.partitions[4].replicas == (3, 2, 1)


def test_list_shows_names(cluster: CommandCluster) -> None:
    assert cluster.output("topics", "list") == ""
    cluster.output("topics", "create", "--topic", "b", "--topic", "a", "--topic", "__internal")
    assert cluster.output("topics", "list") == "__internal\na\nb\n"
    assert cluster.output("topics", "list", "--exclude-internal") == "a\nb\n"
    [first, *_] = cluster.events("topics", "list")
    topic = cluster.controllers.image.topic("__internal")
    assert topic is not None
    assert first == {
        "type": "topic",
        "topic": "__internal",
        "topic_id": str(topic.topic_id),
        "internal": True,
        "partitions": 1,
    }


async def add_partitions_of_every_kind(controllers: Controllers) -> None:
    await controllers.add_brokers(broker(4, fenced=True))
    await controllers.add_topic(
        "t",
        (1, 2, 3),
        partition(1, 2, 3, isr=[1, 2], leader_epoch=4),
        partition(1, 2, 3, isr=[3], elr=[1]),
        partition(1, 2, 3, isr=[], last_known_leader=2),
        partition(3, 1, 2, isr=[1, 2], adding=[3]),
        partition(4, 1, 2, isr=[4, 1, 2], leader=4),
    )


@pytest.mark.parametrize(
    ("option", "numbers"),
    [
        ("--under-replicated-partitions", [1, 2, 3]),
        ("--unavailable-partitions", [3, 5]),
        ("--under-min-isr-partitions", [2, 3]),
        ("--at-min-isr-partitions", [1, 4]),
    ],
)
def test_describe_shows_only_the_partitions_asked_for(
    cluster: CommandCluster, option: str, numbers: list[int]
) -> None:
    cluster.do(add_partitions_of_every_kind)
    events = cluster.events("topics", "describe", option)
    assert [(one["type"], one["partition"]) for one in events] == [("partition", one) for one in numbers]
    shown = cluster.output("topics", "describe", option)
    assert [line[:2] for line in lines(shown)[1:]] == [["t", str(one)] for one in numbers]


def test_describe_shows_nothing_when_no_partition_is_of_the_kind(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "t")
    assert cluster.output("topics", "describe", "--under-replicated-partitions") == ""


def test_describe_shows_topics_and_partitions(cluster: CommandCluster) -> None:
    cluster.do(add_partitions_of_every_kind)
    cluster.output(
        "configs", "alter", "--entity-type", "topics", "--entity-name", "t", "--add-config", "flush=os"
    )
    topic, *partitions = cluster.events("topics", "describe", "--topic", "t")
    known = cluster.controllers.image.topic("t")
    assert known is not None
    assert topic == {
        "type": "topic",
        "topic": "t",
        "topic_id": str(known.topic_id),
        "internal": False,
        "partitions": 6,
        "replication_factor": 3,
        "configs": {"flush": "os"},
    }
    assert partitions[2] == {
        "type": "partition",
        "topic": "t",
        "partition": 2,
        "leader": 3,
        "leader_epoch": 0,
        "replicas": [1, 2, 3],
        "isr": [3],
        "elr": [1],
        "last_known_leader": None,
        "adding": [],
        "removing": [],
        "recovering": False,
    }
    assert (partitions[3]["leader"], partitions[3]["last_known_leader"]) == (None, 2)
    heading, columns, *rows = lines(cluster.output("topics", "describe"))
    assert heading[:2] == ["topic", "t"]
    assert heading[-2:] == ["configs", "flush=os"]
    assert columns == [
        "topic",
        "partition",
        "leader",
        "epoch",
        "replicas",
        "isr",
        "elr",
        "adding",
        "removing",
    ]
    assert rows[1] == ["t", "1", "1", "4", "1,2,3", "1,2", "-", "-", "-"]
    assert rows[3] == ["t", "3", "none", "0", "1,2,3", "-", "-", "-", "-"]


def test_describe_names_topics_that_are_missing(cluster: CommandCluster) -> None:
    cluster.output("topics", "create", "--topic", "t")
    done = cluster.invoke("topics", "describe", "--topic", "gone", "--topic", "t")
    assert done.exit_code == 1
    assert done.stderr == "tailrace: topic gone: UNKNOWN_TOPIC_OR_PARTITION: topic 'gone' does not exist\n"
    assert lines(done.stdout)[0][:2] == ["topic", "t"]
    assert cluster.output("topics", "describe", "--topic", "gone", "--if-exists") == ""
