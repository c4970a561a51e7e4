"""`tailrace partitions`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.common.types import TopicPartition
from tailrace.v1 import metadata_pb2 as pb
from tests.support.metadata import broker, partition
from tests.unit.cli.clusters import CommandCluster, command_cluster, invoke, lines
from tests.unit.clients.controllers import Controllers


@pytest.fixture
def cluster() -> Iterator[CommandCluster]:
    with command_cluster() as made:
        made.do(lambda controllers: controllers.add_topic("t", (1, 2), partition(2, 1, leader=1), (3, 1)))
        yield made


def write(path: Path, document: object) -> str:
    path.write_text(json.dumps(document))
    return str(path)


@pytest.fixture
def moves(tmp_path: Path) -> str:
    """Partition 0 to brokers 3 and 1, partition 1 to where it is."""
    partitions = [
        {"topic": "t", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]},
        {"topic": "t", "partition": 1, "replicas": [2, 1]},
    ]
    return write(tmp_path / "moves.json", {"version": 1, "partitions": partitions})


def replicas(cluster: CommandCluster, number: int) -> tuple[int, ...]:
    found = cluster.controllers.image.partition(TopicPartition("t", number))
    assert found is not None
    return found.replicas


async def finish_moving(controllers: Controllers) -> None:
    """As the leaders would: the new replicas have arrived, and the old ones are gone."""
    topic = controllers.image.topic("t")
    assert topic is not None
    arrived = partition(3, 1, leader=1, leader_epoch=9, partition_epoch=9)
    await controllers.write([pb.MetadataRecord(partition=partition_record(topic.topic_id, 0, arrived))])


def test_reassignment_from_beginning_to_end(cluster: CommandCluster, moves: str) -> None:
    reassign = ("partitions", "reassign", "--reassignment-json-file", moves)
    done = cluster.invoke(*reassign, "--verify")
    assert (done.exit_code, done.stderr) == (1, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("t-0: its replicas are 1,2: it was not begun, ")
    assert second == "t-1: complete"

    shown = cluster.output(*reassign, "--execute").splitlines()
    assert shown[0] == "current assignment:"
    assert json.loads(shown[1]) == {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [1, 2]},
            {"topic": "t", "partition": 1, "replicas": [2, 1]},
        ],
    }
    assert shown[2:] == ["t-0: moving to 3,1", "t-1: moving to 2,1"]
    assert replicas(cluster, 0) == (3, 1, 2)

    assert lines(cluster.output("partitions", "list-reassignments")) == [
        ["topic", "partition", "replicas", "adding", "removing"],
        ["t", "0", "3,1,2", "3", "2"],
    ]
    assert cluster.events("partitions", "list-reassignments") == [
        {
            "type": "reassignment",
            "topic": "t",
            "partition": 0,
            "replicas": [3, 1, 2],
            "adding": [3],
            "removing": [2],
        }
    ]
    done = cluster.invoke(*reassign, "--verify")
    assert (done.exit_code, done.stdout.splitlines()) == (
        1,
        ["t-0: in progress, 3 still copying", "t-1: complete"],
    )
    events = cluster.events(*reassign, "--verify", exit_code=1)
    assert [(one["partition"], one["progress"]) for one in events] == [(0, "in_progress"), (1, "complete")]

    cluster.do(finish_moving)
    assert cluster.output(*reassign, "--verify").splitlines() == ["t-0: complete", "t-1: complete"]
    assert cluster.output("partitions", "list-reassignments") == "no reassignment is going on\n"


def test_reassignment_is_cancelled_where_it_is_going_on(cluster: CommandCluster, moves: str) -> None:
    reassign = ("partitions", "reassign", "--reassignment-json-file", moves)
    assert cluster.output(*reassign, "--cancel") == "none of these reassignments is going on\n"
    cluster.output(*reassign, "--execute")
    assert cluster.events(*reassign, "--cancel") == [{"type": "cancelled", "topic": "t", "partition": 0}]
    assert set(replicas(cluster, 0)) == {1, 2}


def test_reassignment_tells_partitions_that_are_not_there(cluster: CommandCluster, tmp_path: Path) -> None:
    file = write(
        tmp_path / "moves.json",
        {
            "version": 1,
            "partitions": [
                {"topic": "t", "partition": 0, "replicas": [9]},
                {"topic": "t", "partition": 1, "replicas": [1, 3]},
                {"topic": "t", "partition": 7, "replicas": [1]},
                {"topic": "gone", "partition": 0, "replicas": [1]},
            ],
        },
    )
    done = cluster.invoke("partitions", "reassign", "--execute", "--reassignment-json-file", file)
    assert done.exit_code == 1
    told = done.stderr.splitlines()
    assert [line.split(": ")[1:3] for line in told] == [
        ["topic gone", "UNKNOWN_TOPIC_OR_PARTITION"],
        ["partition t-7", "UNKNOWN_TOPIC_OR_PARTITION"],
        ["partition t-0", "INVALID_REPLICA_ASSIGNMENT"],
    ]
    assert done.stdout.splitlines()[2:] == ["t-1: moving to 1,3"]


def test_generate_proposes_what_execute_takes(cluster: CommandCluster, tmp_path: Path) -> None:
    cluster.do(lambda controllers: controllers.add_brokers(broker(4, fenced=True)))
    topics = write(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": "t"}]})
    generate = ("partitions", "reassign", "--generate", "--topics-to-move-json-file", topics)
    shown = cluster.output(*generate, "--broker-list", "1,3").splitlines()
    assert (shown[0], shown[2]) == ("current assignment:", "proposed assignment:")
    proposed = tmp_path / "proposed.json"
    proposed.write_text(shown[3])
    assert [set(one["replicas"]) for one in json.loads(shown[3])["partitions"]] == [{1, 3}] * 3
    cluster.output("partitions", "reassign", "--execute", "--reassignment-json-file", str(proposed))
    for brokers, told in (
        ("1,9", "9, which no broker is registered as"),
        ("1,4", "fenced or shutting down"),
        ("1", "name 2 brokers or more, not 1"),
    ):
        done = cluster.invoke(*generate, "--broker-list", brokers)
        assert (done.exit_code, done.stdout) == (1, "")
        assert told in done.stderr


def test_leaders_are_elected_where_asked_for(cluster: CommandCluster, tmp_path: Path) -> None:
    elect = ("partitions", "elect-leaders", "--election-type", "preferred")
    assert cluster.output(*elect, "--topic", "t", "--partition", "0") == "t-0: not needed\n"
    assert cluster.output(*elect, "--all-topic-partitions") == "t-1: a leader was elected\n"
    assert cluster.output(*elect, "--all-topic-partitions") == "no partition needed it\n"
    file = write(
        tmp_path / "p.json",
        {"partitions": [{"topic": "t", "partition": 2}, {"topic": "t", "partition": 9}]},
    )
    assert cluster.events(*elect, "--path-to-json-file", file, exit_code=1) == [
        {
            "type": "error",
            "item": "t-9",
            "code": "UNKNOWN_TOPIC_OR_PARTITION",
            "message": "topic 't' has no partition 9; it has 0 to 2",
        },
        {"type": "election", "topic": "t", "partition": 2, "elected": False},
    ]


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("[]", 'must be an object with "version" and "partitions"'),
        ("{", "is not JSON"),
        ('{"version": 2}', 'has "version" 2; only 1 is known'),
        ('{"version": 1}', 'needs "partitions", a list that is not empty'),
        ('{"partitions": []}', 'needs "partitions", a list that is not empty'),
        ('{"partitions": [1]}', "partitions[0] must be an object, not 1"),
        ('{"partitions": [{"partition": 0, "replicas": [1]}]}', 'partitions[0] needs "topic"'),
        ('{"partitions": [{"topic": "t", "replicas": [1]}]}', 'partitions[0] needs "partition"'),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', 'needs "partition"'),
        ('{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', 'needs "partition"'),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', 'partitions[0] needs "replicas"'),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', 'needs "replicas"'),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [99999999999]}]}', 'needs "replicas"'),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            '"log_dirs" is not yet supported',
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "partitions[1]: t-0 is there twice",
        ),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_file_is_refused_with_the_place_that_is_wrong(tmp_path: Path, document: str, told: str) -> None:
    file = tmp_path / "moves.json"
    file.write_text(document)
    done = invoke(
        *("partitions", "reassign", "--execute", "--reassignment-json-file", str(file)),
        *("--bootstrap-controller", "127.0.0.1:1"),
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert str(file) in done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["reassign"], "give exactly one of them"),
        (["reassign", "--execute", "--verify"], "give exactly one of them, not 2"),
        (["reassign", "--execute"], "needs --reassignment-json-file"),
        (
            ["reassign", "--generate", "--broker-list", "1"],
            "needs --topics-to-move-json-file and --broker-list",
        ),
        (
            ["reassign", "--generate", "--topics-to-move-json-file", "f", "--broker-list", "1,1"],
            "ids of brokers with commas, each once",
        ),
        (["elect-leaders"], "Missing option '--election-type'"),
        (["elect-leaders", "--election-type", "preferred"], "give exactly one of them"),
        (["elect-leaders", "--election-type", "preferred", "--topic", "t"], "belong together: give both"),
        (["elect-leaders", "--election-type", "sudden"], "'sudden' is not one of"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], told: str) -> None:
    done = invoke("partitions", *arguments, "--bootstrap-controller", "127.0.0.1:1")
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
