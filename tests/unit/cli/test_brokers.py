"""`tailrace brokers`, `tailrace quorum` and `tailrace features`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.metadata import broker, directory
from tests.unit.cli.clusters import CommandCluster, command_cluster, invoke, lines
from tests.unit.clients.controllers import Controllers


@pytest.fixture
def cluster() -> Iterator[CommandCluster]:
    with command_cluster() as made:
        yield made


async def add_damaged_broker(controllers: Controllers) -> None:
    await controllers.add_brokers(broker(4, rack="east", fenced=True, dirs=2, offline_dirs=[1]))


def test_brokers_are_listed_with_their_state(cluster: CommandCluster) -> None:
    cluster.do(add_damaged_broker)
    heading, columns, *rows = lines(cluster.output("brokers", "list"))
    assert heading == ["cluster", "test-cluster", "active", "controller", "node", "1"]
    assert columns == ["id", "state", "host", "rack", "log", "dirs", "endpoints"]
    endpoints = ["CLIENT://host-1:9092", "CLUSTER://host-1:9093"]
    assert rows[0] == ["1", "active", "host-1", "-", "1", *endpoints]
    assert rows[3][:7] == ["4", "fenced", "host-4", "east", "2", "(1", "OFFLINE)"]
    assert [one["broker"] for one in cluster.events("brokers", "list")] == [1, 2, 3, 4]


def test_broker_is_described(cluster: CommandCluster) -> None:
    cluster.do(add_damaged_broker)
    [event] = cluster.events("brokers", "describe", "--id", "4")
    features = event.pop("features")
    assert event == {
        "type": "broker",
        "broker": 4,
        "state": "fenced",
        "epoch": 4,
        "host": "host-4",
        "rack": "east",
        "endpoints": [
            {"listener": "CLIENT", "host": "host-4", "port": 9092, "tls": False},
            {"listener": "CLUSTER", "host": "host-4", "port": 9093, "tls": False},
        ],
        "log_dirs": [
            {"id": str(directory(4, 0)), "online": True},
            {"id": str(directory(4, 1)), "online": False},
        ],
    }
    assert features["metadata.version"]["min_level"] >= 1
    shown = cluster.output("brokers", "describe", "--id", "4")
    assert f"log directory {directory(4, 1)}  OFFLINE" in shown
    done = cluster.invoke("brokers", "describe", "--id", "9")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "tailrace: BROKER_NOT_REGISTERED: no broker 9 is registered; registered: 1, 2, 3, 4\n"
    )


def test_broker_is_unregistered(cluster: CommandCluster) -> None:
    assert cluster.output("brokers", "unregister", "--id", "2") == "broker 2 is no longer registered\n"
    assert sorted(cluster.controllers.image.brokers) == [1, 3]
    [error] = cluster.events("brokers", "unregister", "--id", "2", exit_code=1)
    assert (error["type"], error["item"], error["code"]) == ("error", None, "BROKER_NOT_REGISTERED")


def test_status_of_the_quorum_is_shown(cluster: CommandCluster) -> None:
    version = cluster.controllers.quorum.version
    shown = lines(cluster.output("quorum", "status"))
    assert shown[0][:3] == ["leader", "node", "1"]
    assert ["metadata", "version", str(version)] == shown[2][:3]
    assert shown[3] == ["snapshot", "none", "yet"]
    index = str(cluster.controllers.quorum.index)
    assert shown[-1] == ["1", cluster.address, "leader", "yes", index, "0", "0", "ms", "ago"]
    quorum, voter = cluster.events("quorum", "status")
    assert (quorum["type"], quorum["leader"], quorum["snapshot"]) == ("quorum", 1, None)
    assert quorum["metadata_version"] == version
    assert (voter["type"], voter["node"], voter["connected"], voter["lag"]) == ("voter", 1, True, 0)


def test_status_says_so_when_nobody_leads(cluster: CommandCluster) -> None:
    async def lose_leader(controllers: Controllers) -> None:
        controllers.lose_leader()

    cluster.do(lose_leader)
    done = cluster.invoke("quorum", "status")
    assert done.exit_code == 1
    assert "no controller is active, says node 1" in done.stderr
    assert lines(done.stdout)[0][:2] == ["leader", "none"]


def test_features_are_described_and_kept_when_a_level_is_not_possible(cluster: CommandCluster) -> None:
    [feature] = cluster.events("features", "describe")
    level = feature["level"]
    assert (feature["type"], feature["feature"]) == ("feature", "metadata.version")
    assert lines(cluster.output("features", "describe"))[1][:2] == ["metadata.version", str(level)]
    same = f"metadata.version={level}"
    assert cluster.output("features", "upgrade", "--feature", same) == f"metadata.version is at {level}\n"
    assert cluster.output("features", "upgrade", "--dry-run", "--feature", same) == (
        f"metadata.version could be set to {level}\n"
    )
    for command in ("upgrade", "downgrade"):
        done = cluster.invoke("features", command, "--feature", "metadata.version=999")
        assert (done.exit_code, done.stdout) == (1, "")
    assert "use `features upgrade`" in done.stderr
    done = cluster.invoke("features", "downgrade", "--feature", "metadata.version=0")
    assert done.exit_code == 1
    assert "UNSUPPORTED_FEATURE" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["features", "upgrade"], "Missing option '--feature'"),
        (["features", "upgrade", "--feature", "metadata.version"], "a feature and a level"),
        (["features", "upgrade", "--feature", "a=1", "--feature", "a=2"], "a is given twice"),
        (["features", "upgrade", "--feature", "a=-1"], "a feature and a level"),
        (["brokers", "describe"], "Missing option '--id'"),
        (["brokers", "unregister", "--id", "-1"], "--id"),
    ],
)
def test_wrong_options_are_explained(arguments: list[str], told: str) -> None:
    done = invoke(*arguments, "--bootstrap-controller", "127.0.0.1:1")
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
