"""Heartbeats: how a broker is opened, fenced, shut down, and what its failing directories do."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import NO_LEADER, ClusterImage
from tailrace.cluster.controller.core.brokers import current_broker, fence_brokers, heartbeat
from tailrace.cluster.controller.core.sessions import SessionTimes
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.metadata import apply, broker, directory, image_with, partition

TIMES = SessionTimes(session_timeout_ms=900, heartbeat_interval_ms=200)
VERSION = 5
THREE = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3), (2, 3, 1)], "alone": [(1,)]})
NEW = image_with(
    brokers=[broker(1, fenced=True), 2],
    topics={"t": [(2, 1)], "alone": [partition(1, isr=(), elr=(1,), last_known_leader=1)]},
)


def beat(
    image: ClusterImage, broker_id: int = 1, *, broker_epoch: int | None = None, **fields: Any
) -> tuple[ClusterImage, wire.HeartbeatResponse]:
    """One heartbeat of a broker that has replayed everything, unless `metadata_version` says otherwise."""
    request = wire.HeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=image.brokers[broker_id].epoch if broker_epoch is None else broker_epoch,
        metadata_version=fields.pop("metadata_version", VERSION),
        **fields,
    )
    decision = heartbeat(image, request, registered_version=VERSION, times=TIMES)
    return (apply(image, decision) if decision.records else image), decision.response


def leaders(image: ClusterImage, name: str) -> list[int]:
    topic = image.topic(name)
    assert topic is not None
    return [one.leader for one in topic.partitions]


def test_heartbeat_changes_nothing_when_the_broker_goes_on_as_it_is() -> None:
    image, answer = beat(THREE)
    assert image is THREE
    assert code_of(answer) is ErrorCode.NONE
    assert (answer.fenced, answer.shutting_down, answer.may_stop) == (False, False, False)
    assert (answer.session_timeout_ms, answer.heartbeat_interval_ms) == (900, 200)
    assert answer.controller_epoch == THREE.controller_epoch


def test_heartbeat_opens_the_broker_and_elects_it_when_it_has_caught_up() -> None:
    image, answer = beat(NEW)
    assert not answer.fenced
    assert image.brokers[1].active
    assert leaders(image, "alone") == [1]
    assert leaders(image, "t") == [2]


@pytest.mark.parametrize(
    "fields",
    [{"metadata_version": VERSION - 1}, {"wants_fence": True}, {"wants_shutdown": True}],
    ids=["behind", "wants fence", "wants shutdown"],
)
def test_heartbeat_leaves_the_broker_fenced_when_it_is_not_ready(fields: dict[str, Any]) -> None:
    image, answer = beat(NEW, **fields)
    assert image is NEW
    assert answer.fenced
    assert answer.may_stop == ("wants_shutdown" in fields)


def test_heartbeat_fences_the_broker_when_it_wants_that() -> None:
    image, answer = beat(THREE, wants_fence=True)
    assert answer.fenced
    assert image.brokers[1].fenced
    assert leaders(image, "t") == [2, 2]
    assert leaders(image, "alone") == [NO_LEADER]
    back, _ = beat(image)
    assert leaders(back, "alone") == [1]


def test_heartbeat_moves_leaders_away_when_the_broker_wants_to_stop() -> None:
    image, answer = beat(THREE, wants_shutdown=True)
    assert (answer.shutting_down, answer.fenced, answer.may_stop) == (True, False, True)
    assert leaders(image, "t") == [2, 2]
    assert leaders(image, "alone") == [NO_LEADER]
    same, answer = beat(image, wants_shutdown=True)
    assert same is image
    assert answer.may_stop


def test_heartbeat_goes_on_with_the_shutdown_when_a_later_one_does_not_ask_for_it() -> None:
    image, _ = beat(THREE, wants_shutdown=True)
    same, answer = beat(image)
    assert same is image
    assert (answer.shutting_down, answer.may_stop) == (True, True)


def test_heartbeat_makes_the_broker_give_up_leadership_when_it_leads_while_shutting_down() -> None:
    image = image_with(brokers=[broker(1, shutting_down=True), 2], topics={"t": [partition(1, 2, leader=1)]})
    image, answer = beat(image, wants_shutdown=True)
    assert leaders(image, "t") == [2]
    assert answer.may_stop


def test_heartbeat_does_not_open_the_broker_when_it_was_fenced_while_shutting_down() -> None:
    image, _ = beat(THREE, wants_shutdown=True)
    image = apply(image, fence_brokers(image, {1: 1}))
    same, answer = beat(image)
    assert same is image
    assert (answer.fenced, answer.may_stop) == (True, True)


def test_heartbeat_moves_leaders_when_a_directory_failed() -> None:
    there, failing = directory(1, 0), directory(1, 1)
    image = image_with(
        brokers=[broker(1, dirs=2), 2],
        topics={
            "t": [
                partition(1, 2, directories=(failing, directory(2))),
                partition(1, 2, directories=(there, directory(2))),
            ]
        },
    )
    image, answer = beat(image, offline_log_dirs=[failing.bytes])
    assert not answer.fenced
    assert image.brokers[1].offline_dirs == {failing}
    assert leaders(image, "t") == [2, 1]
    same, _ = beat(image, offline_log_dirs=[failing.bytes])
    assert same is image


def test_heartbeat_fences_the_broker_when_all_directories_failed() -> None:
    image, answer = beat(THREE, offline_log_dirs=[directory(1).bytes])
    assert answer.fenced
    assert leaders(image, "t") == [2, 2]
    same, answer = beat(image)
    assert same is image
    assert answer.fenced


def test_heartbeat_ignores_a_directory_when_the_registration_does_not_name_it() -> None:
    image, answer = beat(THREE, offline_log_dirs=[directory(2).bytes, b"short", bytes(16)])
    assert image is THREE
    assert not answer.fenced


def test_heartbeat_is_refused_when_the_broker_is_not_registered() -> None:
    image, answer = beat(THREE, 9, broker_epoch=1)
    assert image is THREE
    assert code_of(answer) is ErrorCode.BROKER_NOT_REGISTERED


@pytest.mark.parametrize("broker_epoch", [1, 3])
def test_heartbeat_is_refused_when_it_is_of_another_registration(broker_epoch: int) -> None:
    image, answer = beat(THREE, 2, broker_epoch=broker_epoch, wants_fence=True)
    assert image is THREE
    assert code_of(answer) is ErrorCode.STALE_BROKER_EPOCH
    assert "epoch 2" in answer.error.message


def test_current_broker_gives_the_broker_when_its_epoch_is_the_current_one() -> None:
    assert current_broker(THREE, 2, 2) is THREE.brokers[2]
    with pytest.raises(TailraceError) as refused:
        current_broker(THREE, 2, 1)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_fencing_elects_none_of_them_when_several_sessions_are_over() -> None:
    image = apply(THREE, fence_brokers(THREE, {1: 1, 2: 2}))
    assert image.brokers[1].fenced
    assert image.brokers[2].fenced
    assert not image.brokers[3].fenced
    assert leaders(image, "t") == [3, 3]
    topic = image.topic("t")
    assert topic is not None
    # Each lost its leader once: a leader chosen and fenced in the same step would show as a second epoch.
    assert [one.leader_epoch for one in topic.partitions] == [1, 1]


def test_fencing_changes_nothing_when_the_broker_is_fenced_gone_or_registered_anew() -> None:
    decision = fence_brokers(NEW, {1: 1, 2: 1, 9: 4})
    assert decision.records == []


def test_fencing_says_nothing_of_partitions_when_the_broker_has_none() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(2,)]})
    decision = fence_brokers(image, {1: 1})
    assert [one.WhichOneof("kind") for one in decision.records] == ["broker_changed"]
    assert decision.records[0].broker_changed == pb.BrokerChanged(broker_id=1, broker_epoch=1, fenced=True)
