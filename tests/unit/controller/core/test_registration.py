"""Registering and unregistering brokers: epochs, takeovers, refusals, and what partitions notice."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import EMPTY_IMAGE, NO_LEADER, ClusterImage, EndpointImage, LogDirImage
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.registration import register_broker, unregister_broker
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.metadata import (
    CLUSTER_ID,
    apply,
    broker,
    directory,
    endpoints,
    feature_ranges,
    image_with,
    incarnation,
    partition,
    topic_id,
)

REPLICATED = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3), (2, 3, 1)], "alone": [(1,)]})


def request(broker_id: int = 1, *, life: int = 2, dirs: tuple[int, ...] = (0,), **fields: Any) -> Any:
    """A registration as a broker of this release sends it; `life` 1 is the process that is registered
    already."""
    chosen: dict[str, Any] = {
        "cluster_id": CLUSTER_ID,
        "broker_id": broker_id,
        "incarnation": incarnation(broker_id, life).bytes,
        "endpoints": endpoints(broker_id),
        "rack": "",
        "host": f"host-{broker_id}",
        "log_dirs": [pb.LogDir(id=directory(broker_id, number).bytes, online=True) for number in dirs],
        "features": feature_ranges(),
    }
    return wire.RegisterBrokerRequest(**{**chosen, **fields})


def register(
    image: ClusterImage, asked: wire.RegisterBrokerRequest, *, session_alive: bool = False
) -> tuple[ClusterImage, wire.RegisterBrokerResponse]:
    decision = register_broker(image, asked, session_alive=session_alive)
    assert code_of(decision.response) is ErrorCode.NONE, decision.response.error.message
    return (apply(image, decision) if decision.records else image), decision.response


def refusal(
    image: ClusterImage, asked: wire.RegisterBrokerRequest, *, session_alive: bool = False
) -> tuple[ErrorCode, str]:
    decision = register_broker(image, asked, session_alive=session_alive)
    assert decision.records == []
    assert decision.response.broker_epoch == 0
    return code_of(decision.response), decision.response.error.message


def partition_states(
    image: ClusterImage, name: str
) -> list[tuple[int, int, tuple[int, ...], tuple[int, ...]]]:
    topic = image.topic(name)
    assert topic is not None
    return [(one.leader, one.leader_epoch, one.isr, one.elr) for one in topic.partitions]


def test_registration_gives_a_fenced_broker_with_a_new_epoch_when_the_id_is_new() -> None:
    before = image_with(brokers=[1])
    image, answer = register(before, request(7, rack="r1"))
    made = image.brokers[7]
    assert (made.epoch, made.fenced, made.shutting_down) == (2, True, False)
    assert (made.rack, made.host, made.incarnation) == ("r1", "host-7", incarnation(7, 2))
    assert made.endpoints[0] == EndpointImage("CLIENT", "host-7", 9092, False)
    assert made.log_dirs == (LogDirImage(directory(7), True),)
    assert (answer.broker_epoch, answer.cluster_id) == (2, CLUSTER_ID)
    assert answer.metadata_version == image.version == before.version + 1


def test_registration_is_accepted_when_the_broker_belongs_to_no_cluster_yet() -> None:
    image, answer = register(image_with(), request(1, cluster_id=""))
    assert answer.cluster_id == CLUSTER_ID
    assert 1 in image.brokers


def test_registration_is_refused_when_the_broker_belongs_to_another_cluster() -> None:
    code, message = refusal(image_with(), request(1, cluster_id="other"))
    assert code is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert "other" in message
    assert CLUSTER_ID in message


def test_registration_is_put_off_when_the_cluster_is_not_created_yet() -> None:
    code, _ = refusal(EMPTY_IMAGE, request(1, cluster_id=""))
    assert code is ErrorCode.CONTROLLER_NOT_AVAILABLE
    assert code.retriable


@pytest.mark.parametrize("fenced", [False, True])
def test_registration_is_refused_when_another_process_of_the_id_is_alive(fenced: bool) -> None:
    image = image_with(brokers=[broker(1, fenced=fenced)])
    code, message = refusal(image, request(1), session_alive=True)
    assert code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "host-1:9092" in message


def test_registration_takes_the_id_over_when_the_session_of_the_last_process_is_over() -> None:
    image, answer = register(REPLICATED, request(1), session_alive=False)
    assert answer.broker_epoch == 4
    assert image.brokers[1].epoch == 4
    assert image.brokers[1].fenced
    assert image.next_broker_epoch == 5


def test_registration_changes_nothing_when_the_same_process_sends_it_again() -> None:
    first, answer = register(image_with(), request(1))
    decision = register_broker(first, request(1), session_alive=True)
    assert decision.records == []
    assert decision.response.broker_epoch == answer.broker_epoch
    assert decision.response.metadata_version == first.version


def test_registration_keeps_epoch_and_state_when_the_same_process_has_new_endpoints() -> None:
    moved = [pb.Endpoint(listener="CLIENT", host="elsewhere", port=1234, tls=True)]
    image, answer = register(REPLICATED, request(1, life=1, endpoints=moved), session_alive=True)
    assert answer.broker_epoch == 1
    assert image.brokers[1].endpoints == (EndpointImage("CLIENT", "elsewhere", 1234, True),)
    assert (image.brokers[1].epoch, image.brokers[1].fenced) == (1, False)
    assert partition_states(image, "t") == partition_states(REPLICATED, "t")


def test_registration_leaves_a_failed_directory_offline_when_the_same_process_registers_again() -> None:
    image = image_with(brokers=[broker(1, dirs=2, offline_dirs=[1])])
    image, _ = register(image, request(1, life=1, dirs=(0, 1), rack="new"), session_alive=True)
    assert image.brokers[1].rack == "new"
    assert image.brokers[1].offline_dirs == {directory(1, 1)}


def test_registration_moves_leaders_away_when_a_leader_comes_back_as_a_new_process() -> None:
    image, _ = register(REPLICATED, request(1))
    (leader, leader_epoch, isr, _), (unchanged, *_) = partition_states(image, "t")
    assert (leader, leader_epoch, isr) == (2, 1, (2, 3))
    assert unchanged == 2


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"flushes_to_os": True}, False),
        ({"flushes_to_os": True, "clean_shutdown_epoch": 1}, True),
        ({"flushes_to_os": True, "clean_shutdown_epoch": 0}, False),
        ({"dirs": (1,)}, False),
        ({"dirs": (1,), "flushes_to_os": True, "clean_shutdown_epoch": 1}, False),
        ({"dirs": (0, 1)}, True),
        ({"log_dirs": [pb.LogDir(id=directory(1).bytes), pb.LogDir(id=b"x" * 16, online=True)]}, False),
    ],
    ids=[
        "synced",
        "unsynced and killed",
        "unsynced and stopped cleanly",
        "unsynced, stopped cleanly an epoch before",
        "directory gone",
        "stopped cleanly, directory gone",
        "directory added",
        "directory offline",
    ],
)
def test_registration_keeps_the_only_replica_eligible_when_nothing_can_be_lost(
    fields: dict[str, Any], kept: bool
) -> None:
    image, _ = register(REPLICATED, request(1, **fields))
    (leader, _, isr, elr) = partition_states(image, "alone")[0]
    assert leader == NO_LEADER
    assert isr == ()
    assert elr == ((1,) if kept else ())


def test_registration_vouches_for_nothing_when_the_broker_had_been_unregistered() -> None:
    gone = unregister_broker(REPLICATED, admin.UnregisterBrokerRequest(broker_id=1))
    image = apply(REPLICATED, gone)
    assert partition_states(image, "alone")[0][3] == (1,)
    image, _ = register(image, request(1))
    assert partition_states(image, "alone")[0][3] == ()


def test_registration_takes_replicas_of_a_lost_directory_out_when_it_is_known_where_they_lie() -> None:
    there, elsewhere = directory(1, 0), directory(1, 1)
    image = image_with(
        brokers=[broker(1, dirs=2), 2],
        topics={
            "t": [
                partition(1, 2, directories=(there, directory(2))),
                partition(2, 1, directories=(directory(2), elsewhere)),
            ]
        },
    )
    image, _ = register(image, request(1, dirs=(0,)))
    assert [(leader, epoch) for leader, epoch, _, _ in partition_states(image, "t")] == [(2, 1), (2, 1)]


def test_registration_and_its_end_come_last_when_partitions_change_with_them() -> None:
    begun = register_broker(REPLICATED, request(1, dirs=(1,)), session_alive=False)
    ended = unregister(REPLICATED, 1, b"id")
    assert [one.WhichOneof("kind") for one in begun.records[-2:]] == ["partition", "broker_registered"]
    kinds = [one.WhichOneof("kind") for one in ended.records]
    assert kinds == ["partition"] * 3 + ["broker_unregistered", "request_done"]


def test_registration_is_refused_when_a_finalised_feature_is_not_supported() -> None:
    image = image_with()
    code, message = refusal(image, request(1, features=feature_ranges({"metadata.version": (2, 3)})))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "metadata.version 2 to 3" in message
    assert "an older release" in message
    code, message = refusal(image, request(1, features=[]))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "no metadata.version" in message
    assert "a newer release" in message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"broker_id": -1}, "node.id"),
        ({"incarnation": b"short"}, "incarnation"),
        ({"incarnation": bytes(16)}, "incarnation"),
        ({"endpoints": []}, "at least one"),
        ({"endpoints": [pb.Endpoint(listener="CLIENT", host="", port=1)]}, "host"),
        ({"endpoints": [pb.Endpoint(listener="CLIENT", host="a b", port=1)]}, "host"),
        ({"endpoints": [pb.Endpoint(listener="CLIENT", host="h" * 256, port=1)]}, "host"),
        ({"endpoints": [pb.Endpoint(listener="CLIENT", host="0.0.0.0", port=1)]}, "advertised.listeners"),
        ({"endpoints": [pb.Endpoint(listener="CLIENT", host="h", port=0)]}, "port"),
        ({"endpoints": [pb.Endpoint(listener="CLIENT", host="h", port=65536)]}, "port"),
        ({"endpoints": [pb.Endpoint(listener="", host="h", port=1)]}, "listener"),
        ({"endpoints": endpoints(1) + endpoints(1)}, "twice"),
        ({"log_dirs": []}, "log.dirs"),
        ({"log_dirs": [pb.LogDir(id=b"short", online=True)]}, "16"),
        ({"log_dirs": [pb.LogDir(id=bytes(16), online=True)]}, "zeros"),
        ({"log_dirs": [pb.LogDir(id=b"x" * 16, online=False)]}, "no log directory is online"),
        ({"log_dirs": [pb.LogDir(id=b"x" * 16, online=True)] * 2}, "twice"),
        ({"log_dirs": [pb.LogDir(id=directory(2).bytes, online=True)]}, "belongs to broker 2"),
        ({"features": [pb.FeatureRange(name="f", min_level=3, max_level=2)]}, "3 to 2"),
        ({"features": feature_ranges() * 2}, "twice"),
        ({"features": [pb.FeatureRange(name="", max_level=1)]}, "feature"),
        ({"rack": "r" * 256}, "broker.rack"),
        ({"host": "h" * 256}, "the host"),
    ],
)
def test_registration_is_refused_when_what_the_broker_says_makes_no_sense(
    fields: dict[str, Any], said: str
) -> None:
    asked = request(1)
    broken = request(**{"broker_id": 1, **fields})
    assert asked != broken
    code, message = refusal(REPLICATED, broken)
    assert code is ErrorCode.INVALID_REQUEST
    assert said in message


def test_registration_is_accepted_when_what_the_broker_says_is_at_the_limit() -> None:
    widest = [
        pb.Endpoint(listener="A", host="h" * 255, port=1),
        pb.Endpoint(listener="B", host="::1", port=65_535),
    ]
    image, _ = register(image_with(), request(0, endpoints=widest, rack="r" * 255, host="h" * 255))
    assert [one.port for one in image.brokers[0].endpoints] == [1, 65_535]


def unregister(image: ClusterImage, broker_id: int, request_id: bytes = b"") -> Decision[Any]:
    return unregister_broker(image, admin.UnregisterBrokerRequest(broker_id=broker_id, request_id=request_id))


@pytest.mark.parametrize("alive", [True, False])
def test_unregistering_moves_leaders_and_forgets_the_broker_when_it_is_registered(alive: bool) -> None:
    image = REPLICATED
    if not alive:
        image = apply(
            image,
            [pb.MetadataRecord(broker_changed=pb.BrokerChanged(broker_id=1, broker_epoch=1, fenced=True))],
        )
    decision = unregister(image, 1)
    assert code_of(decision.response) is ErrorCode.NONE
    image = apply(image, decision)
    assert 1 not in image.brokers
    assert [state[0] for state in partition_states(image, "t")] == [2, 2]
    topic = image.topics[topic_id("t")]
    assert topic.partitions[0].replicas == (1, 2, 3)
    assert topic.partitions[0].isr == (2, 3)


def test_unregistering_is_refused_when_no_such_broker_is_registered() -> None:
    decision = unregister(REPLICATED, 9)
    assert decision.records == []
    assert code_of(decision.response) is ErrorCode.BROKER_NOT_REGISTERED
    assert "1, 2, 3" in decision.response.error.message


def test_unregistering_is_done_once_when_it_is_asked_twice_with_one_id() -> None:
    image = apply(REPLICATED, unregister(REPLICATED, 1, b"once"))
    again = unregister(image, 1, b"once")
    assert again.records == []
    assert code_of(again.response) is ErrorCode.NONE


def test_registration_gets_a_larger_epoch_when_the_broker_had_been_unregistered() -> None:
    image = apply(REPLICATED, unregister(REPLICATED, 3))
    image, answer = register(image, request(3))
    assert answer.broker_epoch == 4
