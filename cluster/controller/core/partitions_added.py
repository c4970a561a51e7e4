"""Adding partitions to topics. Their number only grows: records stay where their keys put them. Pure."""

from __future__ import annotations

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage, TopicImage
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.placement import Placer
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.cluster.controller.core.topic_checks import (
    USUAL_LIMITS,
    PartitionBudget,
    PartitionLimits,
    checked_assignment,
    named_topic,
    new_partition,
    repeated,
    replication_factor,
)
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import MetadataRecord


def create_partitions(
    image: ClusterImage,
    request: pb.CreatePartitionsRequest,
    *,
    seed: int,
    limits: PartitionLimits = USUAL_LIMITS,
) -> Decision[pb.CreatePartitionsResponse]:
    """New partitions have as many replicas as the topic's first. Their placement follows from `seed` and
    takes the partitions that are there into account."""
    response = pb.CreatePartitionsResponse()
    try:
        if not request.validate_only:
            done = already_done(image, request.request_id, pb.CreatePartitionsResponse)
            if done is not None:
                return Decision(done)
    except TailraceError as failure:
        for asked in request.topics:
            response.topics.add(name=asked.name, error=error_from(failure))
        return Decision(response)
    twice = repeated(one.name for one in request.topics)
    budget = PartitionBudget(limits)
    placer = Placer(image, seed=seed)
    records: list[MetadataRecord] = []
    for asked in request.topics:
        answer = response.topics.add(name=asked.name)
        try:
            topic = named_topic(image, asked.name)
            if asked.name in twice:
                raise TailraceError(
                    ErrorCode.INVALID_REQUEST, f"topic {asked.name!r} stands in the request more than once"
                )
            added = _added(image, topic, asked, placer, budget)
        except TailraceError as failure:
            answer.error.CopyFrom(error_from(failure))
            continue
        for number, replicas in enumerate(added, len(topic.partitions)):
            partition = partition_record(topic.topic_id, number, new_partition(image, replicas))
            records.append(MetadataRecord(partition=partition))
    if request.validate_only:
        return Decision(response)
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(response, records)


def _added(
    image: ClusterImage,
    topic: TopicImage,
    asked: pb.CreatePartitionsRequest.Topic,
    placer: Placer,
    budget: PartitionBudget,
) -> list[tuple[int, ...]]:
    """The replicas of each partition that is to be added."""
    existing = len(topic.partitions)
    new = asked.count - existing
    if new <= 0:
        raise TailraceError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {existing} partitions, and {asked.count} in all are asked for: "
            f"partitions can only be added, so ask for {existing + 1} or more",
        )
    budget.check(new, existing=existing)
    factor = replication_factor(topic)
    if asked.assignment:
        if len(asked.assignment) != new:
            raise TailraceError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"from {existing} to {asked.count} partitions {new} are added, and the assignment has "
                f"{len(asked.assignment)}: give one for each that is added",
            )
        placed = checked_assignment(image, asked.assignment, first_partition=existing, factor=factor)
        placer.count(placed)
    else:
        there = [partition.replicas for partition in topic.partitions]
        placed = placer.place(partitions=new, replication_factor=factor, existing=there)
    budget.spend(new)
    return placed
