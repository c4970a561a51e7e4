"""The steps of `tailrace partitions reassign`: propose, execute, verify, cancel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from tailrace.clients.admin import Admin
from tailrace.clients.admin_types import AdminError, BrokerState, PartitionDescription, PartitionReassignment
from tailrace.clients.cli.arguments import shown_ids
from tailrace.clients.cli.cluster_command import Output
from tailrace.clients.cli.partition_files import reassignment_text
from tailrace.clients.core.spreading import propose
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition

Wanted = Mapping[TopicPartition, tuple[int, ...]]


class Progress(StrEnum):
    COMPLETE = "complete"
    IN_PROGRESS = "in progress"
    OTHER = "other"
    """Nothing is going on, and the replicas are others: never begun, cancelled, or changed since."""


def generate(admin: Admin, output: Output, topics: Sequence[str], brokers: Sequence[int]) -> None:
    described = admin.describe_cluster().brokers
    known = {one.broker_id: one for one in described}
    if unknown := [one for one in brokers if one not in known]:
        raise TailraceError(
            ErrorCode.BROKER_NOT_REGISTERED,
            f"--broker-list names {shown_ids(unknown)}, which no broker is registered as; registered: "
            f"{shown_ids(sorted(known))}",
        )
    if out := [one for one in brokers if known[one].state is not BrokerState.ACTIVE]:
        raise TailraceError(
            ErrorCode.BROKER_FENCED,
            f"--broker-list names {shown_ids(out)}, fenced or shutting down, where replicas cannot catch up: "
            "start them first, or leave them out",
        )
    current = {
        TopicPartition(one.topic, one.partition): _settled_replicas(one)
        for topic in admin.describe_topics(topics).values()
        for one in topic.partitions
    }
    proposed = propose(current, brokers, {one.broker_id: one.rack for one in described})
    _show_assignment(output, "current", current)
    _show_assignment(output, "proposed", proposed)


def execute(admin: Admin, output: Output, wanted: Wanted) -> None:
    current = {
        partition: _settled_replicas(one) for partition, one in _described(admin, output, wanted).items()
    }
    _show_assignment(output, "current", current)
    begun: Iterable[TopicPartition] = current
    try:
        admin.alter_partition_reassignments({one: wanted[one] for one in current})
    except AdminError as error:
        begun = output.refusals("partition", error)
    for partition in sorted(begun):
        _event(output, "begun", partition)
        output.line(f"{partition}: moving to {shown_ids(wanted[partition])}")


def verify(admin: Admin, output: Output, wanted: Wanted) -> None:
    described = _described(admin, output, wanted)
    going_on = admin.list_partition_reassignments(wanted)
    for partition, one in sorted(described.items()):
        progress = _progress(one, wanted[partition], going_on.get(partition))
        if progress is not Progress.COMPLETE:
            output.refused = True
        _event(output, "reassignment", partition, progress=progress.name.lower(), replicas=one.replicas)
        output.line(f"{partition}: {_told(progress, one)}")


def cancel(admin: Admin, output: Output, wanted: Wanted) -> None:
    """What is not going on need not be cancelled."""
    going_on = list(admin.list_partition_reassignments(wanted))
    cancelled = going_on
    try:
        admin.alter_partition_reassignments(dict.fromkeys(going_on))
    except AdminError as error:
        done = output.refusals("partition", error, ignoring=ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        cancelled = list(done)
    for partition in sorted(cancelled):
        _event(output, "cancelled", partition)
        output.line(f"{partition}: cancelled")
    if not going_on:
        output.line("none of these reassignments is going on")


def _described(admin: Admin, output: Output, wanted: Wanted) -> dict[TopicPartition, PartitionDescription]:
    """The partitions that there are; the others are told as refused."""
    try:
        topics = admin.describe_topics(sorted({one.topic for one in wanted}))
    except AdminError as error:
        topics = output.refusals("topic", error)
    found = {
        TopicPartition(one.topic, one.partition): one for topic in topics.values() for one in topic.partitions
    }
    missing = [one for one in wanted if one.topic in topics and one not in found]
    if missing:
        why = TailraceError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has no such partition; check its number"
        )
        output.refusals("partition", AdminError(dict.fromkeys(missing, why), {}))
    return {partition: one for partition, one in found.items() if partition in wanted}


def _settled_replicas(partition: PartitionDescription) -> tuple[int, ...]:
    """Without those that a reassignment is adding: where the partition is if that is taken back."""
    return tuple(one for one in partition.replicas if one not in partition.adding)


def _progress(
    partition: PartitionDescription, wanted: tuple[int, ...], going_on: PartitionReassignment | None
) -> Progress:
    if going_on is not None:
        return Progress.IN_PROGRESS if going_on.target == wanted else Progress.OTHER
    return Progress.COMPLETE if partition.replicas == wanted else Progress.OTHER


def _told(progress: Progress, partition: PartitionDescription) -> str:
    match progress:
        case Progress.COMPLETE:
            return "complete"
        case Progress.IN_PROGRESS:
            waiting = [one for one in partition.adding if one not in partition.isr]
            return f"in progress, {shown_ids(waiting)} still copying" if waiting else "in progress"
        case Progress.OTHER:
            return (
                f"its replicas are {shown_ids(partition.replicas)}: it was not begun, was cancelled, or was "
                "changed since; use --execute to begin"
            )


def _show_assignment(output: Output, which: str, assignment: Mapping[TopicPartition, Sequence[int]]) -> None:
    for partition, replicas in sorted(assignment.items()):
        _event(output, which, partition, replicas=list(replicas))
    if assignment:
        output.line(f"{which} assignment:")
        output.line(reassignment_text(assignment))


def _event(output: Output, kind: str, partition: TopicPartition, **facts: object) -> None:
    output.event({"type": kind, "topic": partition.topic, "partition": partition.partition, **facts})
