"""Topics as they are: all of them or those asked for, by name or id. Pure."""

from __future__ import annotations

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.image import ClusterImage, TopicImage
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.topic_checks import is_internal, referred_topic
from tailrace.v1 import admin_pb2 as pb


def describe_topics(
    image: ClusterImage, request: pb.DescribeTopicsRequest
) -> Decision[pb.DescribeTopicsResponse]:
    """In the order asked for; all topics, sorted by name, when none is. Whoever has very many topics asks for
    their names first, then for some at a time. Internal topics are among all topics only if asked for."""
    response = pb.DescribeTopicsResponse(metadata_version=image.version)
    if not request.topics:
        for name in sorted(image.topic_ids):
            if request.include_internal or not is_internal(name):
                _describe(response.topics.add(), image.topics[image.topic_ids[name]], request.names_only)
    for ref in request.topics:
        answer = response.topics.add(name=ref.name, topic_id=ref.topic_id)
        try:
            _describe(answer, referred_topic(image, ref), request.names_only)
        except TailraceError as failure:
            answer.error.CopyFrom(error_from(failure))
    return Decision(response)


def _describe(answer: pb.DescribeTopicsResponse.Topic, topic: TopicImage, names_only: bool) -> None:
    answer.name = topic.name
    answer.topic_id = topic.topic_id.bytes
    answer.internal = is_internal(topic.name)
    answer.partition_count = len(topic.partitions)
    if not names_only:
        for number, partition in enumerate(topic.partitions):
            record = partition_record(topic.topic_id, number, partition)
            record.ClearField("topic_id")
            answer.partitions.append(record)
