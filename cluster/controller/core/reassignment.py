"""Reassignments: moving a partition to other brokers while it is in use.

    add       replicas = targets + those to go; the new ones (`adding`) begin to follow
    catch up  the leader takes each into the ISR; until all targets are in it, nothing is taken away
    remove    with the last of them, `removing` leave replicas and ISR; another leads if the leader was one

The last step happens in whatever change makes all targets in sync (partition_change.py), which may be the
request itself. A further request replaces the targets: what was being added and is not wanted any more goes
at once, and what the partition had originally stays what a cancel goes back to. As in Kafka, the order of
preference from before is not kept: a cancel puts those replicas first that were to stay.

No request takes away the last replica that has everything committed, or the last that can lead; it is refused
instead. Throttles are settings of topics and brokers, which brokers apply.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.election import find_partition
from tailrace.cluster.controller.core.partition_change import Wanted, original_replicas
from tailrace.cluster.controller.core.partition_edits import PartitionEdits
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.v1 import admin_pb2 as admin


def alter_reassignments(
    image: ClusterImage, request: admin.AlterReassignmentsRequest
) -> Decision[admin.AlterReassignmentsResponse]:
    """Later items see what earlier ones have come to."""
    response = admin.AlterReassignmentsResponse()
    try:
        done = already_done(image, request.request_id, admin.AlterReassignmentsResponse)
    except TailraceError as failure:
        for item in request.partitions:
            response.partitions.add(partition=item.partition, error=error_from(failure))
        return Decision(response)
    if done is not None:
        return Decision(done)
    edits = PartitionEdits(image)
    for item in request.partitions:
        outcome = response.partitions.add(partition=item.partition)
        try:
            topic, number = find_partition(image, item.partition)
            if item.replicas:
                _reassign(edits, topic, number, tuple(item.replicas))
            else:
                _cancel(edits, topic, number)
        except TailraceError as failure:
            outcome.error.CopyFrom(error_from(failure))
    records = edits.records()
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(response, records)


def list_reassignments(
    image: ClusterImage, request: admin.ListReassignmentsRequest
) -> Decision[admin.ListReassignmentsResponse]:
    """Those going on, of the named partitions or of all. Partitions that do not exist have none."""
    named = {(one.topic, one.partition) for one in request.partitions}
    response = admin.ListReassignmentsResponse()
    for topic, number, partition in image.partitions():
        if partition.reassigning and (not named or (topic.name, number) in named):
            response.partitions.add(
                partition=admin.PartitionRef(topic=topic.name, partition=number),
                replicas=partition.replicas,
                adding=partition.adding,
                removing=partition.removing,
            )
    return Decision(response)


def _reassign(edits: PartitionEdits, topic: TopicImage, number: int, targets: tuple[int, ...]) -> None:
    now = edits.partition(topic, number)
    _check_targets(edits.image, now, targets)
    original = original_replicas(now)
    removing = tuple(one for one in original if one not in targets)
    wanted = Wanted(
        replicas=(*targets, *removing),
        adding=tuple(one for one in targets if one not in original),
        removing=removing,
    )
    _move(edits, topic, number, wanted, "name at least one of them among the new replicas")


def _cancel(edits: PartitionEdits, topic: TopicImage, number: int) -> None:
    now = edits.partition(topic, number)
    if not now.reassigning:
        raise TailraceError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            f"no reassignment of {topic.name}-{number} is going on; there is nothing to cancel",
        )
    wanted = Wanted(replicas=original_replicas(now), adding=(), removing=())
    _move(edits, topic, number, wanted, "wait until one of the replicas from before is in sync")


def _move(edits: PartitionEdits, topic: TopicImage, number: int, wanted: Wanted, way_out: str) -> None:
    now = edits.partition(topic, number)
    # Moving replicas is no reason to give up records, whatever the topic allows when brokers fail.
    rules = edits.rules(topic)._replace(unclean=False)
    planned = edits.plan(topic, number, wanted, rules=rules)
    if now.leader != NO_LEADER and planned.leader == NO_LEADER:
        raise TailraceError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic.name}-{number} would have no leader: none of the replicas that remain "
            f"({_shown(planned.replicas)}) is in sync and available, only {_shown(now.isr)}; {way_out}",
        )
    complete = (*now.isr, *now.elr)
    if complete and not planned.isr and not planned.elr:
        raise TailraceError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{topic.name}-{number} would lose records: only {_shown(complete)} is known to have all; "
            f"{way_out}",
        )
    edits.put(topic, number, planned)


def _check_targets(image: ClusterImage, now: PartitionImage, targets: tuple[int, ...]) -> None:
    """A replica that the partition has may be out of service for a while; a new one could not catch up."""
    unknown = [one for one in targets if one not in image.brokers]
    out = [one for one in targets if one not in now.replicas and one not in unknown]
    out = [one for one in out if not image.brokers[one].active]
    if len(set(targets)) != len(targets):
        problem = f"the replicas {_shown(targets)} name a broker twice"
    elif unknown:
        known = _shown(sorted(image.brokers))
        problem = f"no broker {_shown(unknown)} is registered; registered are {known}"
    elif out:
        problem = (
            f"broker {_shown(out)} is fenced or shutting down and cannot catch up; start it first, or choose "
            "another"
        )
    else:
        return
    raise TailraceError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _shown(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))
