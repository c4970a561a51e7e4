from __future__ import annotations

from collections.abc import Callable

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.controller.core.election import (
    elect_leaders,
    partitions_of_new_incarnation,
    partitions_of_offline_dirs,
    partitions_with,
    partitions_without,
)
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of, codes_of
from tests.support.metadata import apply, broker, directory, image_with, partition

KIND_PREFERRED = admin.ElectLeadersRequest.KIND_PREFERRED
KIND_UNCLEAN = admin.ElectLeadersRequest.KIND_UNCLEAN


def state(image: ClusterImage, number: int = 0, topic: str = "t") -> PartitionImage:
    found = image.partition(TopicPartition(topic, number))
    assert found is not None
    return found


def elect(
    image: ClusterImage, kind: admin.ElectLeadersRequest.Kind, *numbers: int, request_id: bytes = b""
) -> tuple[ClusterImage, dict[int, str]]:
    """The image afterwards, and what was answered for each partition ("NONE" when it went well)."""
    request = admin.ElectLeadersRequest(
        kind=kind,
        partitions=[admin.PartitionRef(topic="t", partition=number) for number in numbers],
        request_id=request_id,
    )
    decision = elect_leaders(image, request)
    answers = {one.partition.partition: code_of(one).name for one in decision.response.partitions}
    return apply(image, decision), answers


def changed(broker_id: int, **fields: bool) -> Callable[[ClusterImage], ClusterImage]:
    def change(image: ClusterImage) -> ClusterImage:
        record = pb.BrokerChanged(broker_id=broker_id, broker_epoch=image.brokers[broker_id].epoch)
        for name, value in fields.items():
            setattr(record, name, value)
        return apply(image, [pb.MetadataRecord(broker_changed=record)])

    return change


@pytest.mark.parametrize("change", [changed(1, fenced=True), changed(1, shutting_down=True)])
def test_partitions_without_is_the_same_when_the_image_has_the_change_already(
    change: Callable[[ClusterImage], ClusterImage],
) -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3), (2, 1), (3, 2)]})
    records = partitions_without(image, 1)
    assert records == partitions_without(change(image), 1)
    assert [one.partition.partition for one in records] == [0, 1]


def test_partitions_with_is_the_same_when_the_image_has_the_change_already() -> None:
    offline = partition(1, 2, isr=(), leader=NO_LEADER, elr=(1,), last_known_leader=1)
    image = image_with(brokers=[broker(1, fenced=True), 2], topics={"t": [offline, (2, 1)]})
    records = partitions_with(image, 1)
    assert records == partitions_with(changed(1, fenced=False)(image), 1)
    assert state(apply(image, records)).leader == 1
    assert len(records) == 1


def test_partitions_with_drops_those_out_of_service_from_the_isr_when_it_elects() -> None:
    image = image_with(brokers=[broker(1, fenced=True), broker(2, fenced=True)], topics={"t": [(1, 2)]})
    assert state(image).isr == (1, 2)
    elected = state(apply(image, partitions_with(image, 2)))
    assert (elected.leader, elected.isr) == (2, (2,))


def test_partitions_with_leaves_a_partition_alone_when_others_lead_it() -> None:
    image = image_with(brokers=[broker(1, fenced=True), 2], topics={"t": [(1, 2)]})
    assert partitions_with(image, 1) == []


def test_partitions_of_new_incarnation_bump_the_leader_epoch_when_nobody_else_can_lead() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [partition(1, 2, isr=(1,))]})
    waiting = apply(image, partitions_of_new_incarnation(image, 1, clean=True))
    assert (state(waiting).leader, state(waiting).elr, state(waiting).leader_epoch) == (NO_LEADER, (1,), 1)
    assert state(apply(waiting, partitions_with(waiting, 1))).leader_epoch == 2


def test_partitions_of_new_incarnation_elect_uncleanly_when_the_topic_allows_it() -> None:
    image = image_with(
        brokers=[1, 2],
        topics={"t": [partition(1, 2, isr=(1,))]},
        configs={"t": {"unclean.leader.election.enable": "true"}},
    )
    elected = state(apply(image, partitions_of_new_incarnation(image, 1, clean=False)))
    assert (elected.leader, elected.isr, elected.recovering) == (2, (2,), True)


def test_partitions_of_new_incarnation_leave_the_elr_alone_when_the_stop_was_clean() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [partition(1, 2, 3, isr=(1,), elr=(2,))]})
    assert partitions_of_new_incarnation(image, 2, clean=True) == []
    assert state(apply(image, partitions_of_new_incarnation(image, 2, clean=False))).elr == ()


def test_offline_dirs_get_a_new_leader_epoch_when_the_replica_was_not_even_in_sync() -> None:
    dirs = (directory(1), directory(2))
    image = image_with(brokers=[1, 2], topics={"t": [partition(1, 2, isr=(1,), directories=dirs)]})
    after = state(apply(image, partitions_of_offline_dirs(image, 2, [directory(2)])))
    assert (after.leader, after.isr, after.leader_epoch) == (1, (1,), 1)


def test_offline_dirs_touch_nothing_when_replicas_lie_elsewhere() -> None:
    there = partition(1, 2, directories=(directory(1, 1), directory(2)))
    image = image_with(brokers=[broker(1, dirs=2), 2], topics={"t": [there, (1, 2), (2,)]})
    assert partitions_of_offline_dirs(image, 1, [directory(1, 0)]) == []


def test_replica_cannot_lead_when_its_directory_is_not_registered_any_more() -> None:
    gone = partition(
        1,
        2,
        isr=(),
        leader=NO_LEADER,
        elr=(1,),
        last_known_leader=1,
        directories=(directory(1, 7), directory(2)),
    )
    image = image_with(brokers=[1, broker(2, fenced=True)], topics={"t": [gone]})
    assert partitions_with(image, 1) == []


def test_elect_preferred_answers_each_partition_when_they_are_named() -> None:
    partitions = [partition(1, 2, leader=2), partition(1, 2), partition(1, 2, isr=(2,))]
    image, answers = elect(image_with(brokers=[1, 2], topics={"t": partitions}), KIND_PREFERRED, 0, 1, 2, 3)
    assert answers == {
        0: "NONE",
        1: "ELECTION_NOT_NEEDED",
        2: "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        3: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert [one.leader for one in image.topics[image.topic_ids["t"]].partitions] == [1, 1, 2]


def test_elect_preferred_speaks_only_of_those_that_need_it_when_none_is_named() -> None:
    partitions = [partition(1, 2, leader=2), partition(1, 2), partition(1, 2, isr=(2,))]
    _, answers = elect(image_with(brokers=[1, 2], topics={"t": partitions}), KIND_PREFERRED)
    assert answers == {0: "NONE", 2: "ELIGIBLE_LEADERS_NOT_AVAILABLE"}


def test_elect_preferred_sees_its_own_work_when_a_partition_is_named_twice() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [partition(1, 2, leader=2)]})
    request = admin.ElectLeadersRequest(partitions=[admin.PartitionRef(topic="t")] * 2)
    decision = elect_leaders(image, request)
    assert codes_of(decision.response.partitions) == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
    assert len(decision.records) == 1


def test_elect_unclean_changes_nothing_when_no_replica_is_available() -> None:
    waiting = partition(1, 2, isr=(), leader=NO_LEADER, elr=(1,), last_known_leader=1)
    brokers = [broker(1, fenced=True), broker(2, shutting_down=True)]
    before = image_with(brokers=brokers, topics={"t": [waiting]})
    image, answers = elect(before, KIND_UNCLEAN, 0)
    assert answers == {0: "ELIGIBLE_LEADERS_NOT_AVAILABLE"}
    assert state(image) == waiting


def test_elect_leaders_is_answered_as_before_when_its_id_was_done() -> None:
    before = image_with(brokers=[1, 2], topics={"t": [partition(1, 2, leader=2)]})
    image, first = elect(before, KIND_PREFERRED, 0, request_id=b"once")
    again, second = elect(image, KIND_PREFERRED, 0, request_id=b"once")
    assert first == second == {0: "NONE"}
    assert state(again) == state(image)


def test_elect_leaders_says_what_is_wrong_when_the_id_is_too_long() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(1, 2)]})
    named = admin.ElectLeadersRequest(partitions=[admin.PartitionRef(topic="t")], request_id=b"x" * 1000)
    everything = admin.ElectLeadersRequest(request_id=b"x" * 1000)
    for request in (named, everything):
        (answer,) = elect_leaders(image, request).response.partitions
        assert code_of(answer) is ErrorCode.INVALID_REQUEST
