from __future__ import annotations

from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage
from tailrace.cluster.controller.core.reassignment import alter_reassignments, list_reassignments
from tailrace.v1 import admin_pb2 as admin
from tests.support.answers import code_of
from tests.support.metadata import apply, broker, image_with, partition, topic_id


def ref(number: int = 0, topic: str = "t") -> admin.PartitionRef:
    return admin.PartitionRef(topic=topic, partition=number)


def request(*items: tuple[int, tuple[int, ...]], request_id: bytes = b"") -> admin.AlterReassignmentsRequest:
    """Partitions of topic t, each with its wanted replicas; none to cancel."""
    wanted = [
        admin.AlterReassignmentsRequest.Partition(partition=ref(number), replicas=replicas)
        for number, replicas in items
    ]
    return admin.AlterReassignmentsRequest(partitions=wanted, request_id=request_id)


def reassign(
    image: ClusterImage, *items: tuple[int, tuple[int, ...]], request_id: bytes = b""
) -> tuple[ClusterImage, list[str]]:
    decision = alter_reassignments(image, request(*items, request_id=request_id))
    codes = [code_of(one).name for one in decision.response.partitions]
    return apply(image, decision) if decision.records else image, codes


def state(image: ClusterImage, number: int = 0) -> PartitionImage:
    return image.topics[topic_id("t")].partitions[number]


def test_reassign_answers_each_partition_when_some_fail() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2), (2, 1)]})
    after, codes = reassign(image, (0, (3, 2)), (1, (3, 3)), (5, (1,)), (1, ()))
    assert codes == [
        "NONE",
        "INVALID_REPLICA_ASSIGNMENT",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NO_REASSIGNMENT_IN_PROGRESS",
    ]
    assert (state(after).replicas, state(after).adding, state(after).removing) == ((3, 2, 1), (3,), (1,))
    assert state(after, 1) == state(image, 1)


def test_reassign_writes_nothing_when_the_partition_is_there_already() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(1, 2)]})
    assert reassign(image, (0, (1, 2))) == (image, ["NONE"])


def test_reassign_completes_at_once_when_all_targets_are_in_sync() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3)]})
    after, codes = reassign(image, (0, (3, 2)))
    assert codes == ["NONE"]
    assert (state(after).replicas, state(after).isr, state(after).leader) == ((3, 2), (2, 3), 3)
    assert not state(after).reassigning


def test_reassign_sees_the_item_before_it_when_a_partition_is_named_twice() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1,)]})
    after, codes = reassign(image, (0, (2,)), (0, (3,)))
    assert codes == ["NONE", "NONE"]
    assert (state(after).replicas, state(after).adding, state(after).removing) == ((3, 1), (3,), (1,))


def test_reassign_refuses_a_new_replica_when_its_broker_is_out_of_service() -> None:
    image = image_with(
        brokers=[1, broker(2, fenced=True), broker(3, shutting_down=True)], topics={"t": [(1,)]}
    )
    assert reassign(image, (0, (1, 2)), (0, (1, 3)), (0, (1, 4)))[1] == ["INVALID_REPLICA_ASSIGNMENT"] * 3


def test_reassign_does_not_elect_uncleanly_when_the_topic_would_allow_it() -> None:
    waiting = partition(1, 2, isr=(), leader=NO_LEADER, elr=(1,), last_known_leader=1)
    image = image_with(
        brokers=[broker(1, fenced=True), 2, 3],
        topics={"t": [waiting]},
        configs={"t": {"unclean.leader.election.enable": "true"}},
    )
    after, codes = reassign(image, (0, (2, 3)))
    assert codes == ["NONE"]
    assert (state(after).leader, state(after).elr, state(after).recovering) == (NO_LEADER, (1,), False)


def test_reassign_refuses_to_drop_the_last_that_has_everything_when_nobody_leads() -> None:
    moving = partition(
        3, 1, adding=(3,), removing=(1,), isr=(), leader=NO_LEADER, elr=(3,), last_known_leader=3
    )
    image = image_with(brokers=[1, 2, broker(3, fenced=True)], topics={"t": [moving]})
    after, codes = reassign(image, (0, ()), (0, (2,)))
    assert codes == ["INVALID_REPLICA_ASSIGNMENT"] * 2
    assert after is image


def test_cancel_makes_an_eligible_replica_lead_when_only_added_ones_are_in_sync() -> None:
    moving = partition(4, 1, 2, 3, adding=(4,), removing=(1,), isr=(4,), elr=(2,))
    image = image_with(brokers=[1, 2, 3, 4], topics={"t": [moving]})
    after, codes = reassign(image, (0, ()))
    assert codes == ["NONE"]
    assert (state(after).replicas, state(after).leader, state(after).isr) == ((1, 2, 3), 2, (2,))


def test_reassign_is_answered_as_before_when_its_id_was_done() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(1,)]})
    first, codes = reassign(image, (0, (2,)), request_id=b"once")
    again, repeated = reassign(first, (0, (2,)), request_id=b"once")
    assert codes == repeated == ["NONE"]
    assert again is first


def test_reassign_says_what_is_wrong_when_the_id_is_too_long() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [(1,)]})
    assert reassign(image, (0, (2,)), request_id=b"x" * 1000) == (image, ["INVALID_REQUEST"])


def test_list_reassignments_gives_those_asked_for_when_some_are_named() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1,), (2,), (3,)], "u": [(1,)]})
    image, _ = reassign(image, (0, (2,)), (1, (1, 2)))
    everything = list_reassignments(image, admin.ListReassignmentsRequest())
    assert everything.records == []
    assert [
        (one.partition.partition, list(one.replicas), list(one.adding), list(one.removing))
        for one in everything.response.partitions
    ] == [(0, [2, 1], [2], [1]), (1, [1, 2], [1], [])]
    named = admin.ListReassignmentsRequest(partitions=[ref(1), ref(2), ref(9), ref(0, "nothing")])
    assert [one.partition for one in list_reassignments(image, named).response.partitions] == [ref(1)]
