"""Creating and deleting topics. Pure.

Topics of one request are looked at in its order, each on its own: what is wrong with one does not stop the
others, and each counts for those after it (names, placement, the limit of partitions for a request).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.controller.core.config_checks import checked_topic_values
from tailrace.cluster.controller.core.config_describe import topic_entries
from tailrace.cluster.controller.core.configs import NodeView
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.placement import Placer
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.cluster.controller.core.topic_checks import (
    USUAL_LIMITS,
    PartitionBudget,
    PartitionLimits,
    TakenNames,
    checked_assignment,
    new_partition,
    referred_topic,
    repeated,
)
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_TOPIC,
    ConfigRecord,
    MetadataRecord,
    TopicCreated,
    TopicDeleted,
)

USUAL_REPLICATION_FACTOR = 3


def create_topics(
    image: ClusterImage,
    request: pb.CreateTopicsRequest,
    *,
    new_id: Callable[[], UUID],
    seed: int,
    num_partitions: int = 1,
    default_replication_factor: int | None = None,
    static: Mapping[str, str] | None = None,
    limits: PartitionLimits = USUAL_LIMITS,
) -> Decision[pb.CreateTopicsResponse]:
    """`num_partitions` and `default_replication_factor` are the settings of those names, for topics that do
    not say; without the latter it is 3, or as many as there are brokers. `static` is what stands in the
    active controller's node.toml. A topic's id comes from `new_id`, its placement follows from `seed`."""
    view = NodeView.of(image, static)
    response = pb.CreateTopicsResponse()
    try:
        if not request.validate_only:
            done = already_done(image, request.request_id, pb.CreateTopicsResponse)
            if done is not None:
                return Decision(_with_configs(image, view, done))
    except TailraceError as failure:
        for asked in request.topics:
            response.topics.add(name=asked.name, error=error_from(failure))
        return Decision(response)
    if default_replication_factor is None:
        default_replication_factor = min(USUAL_REPLICATION_FACTOR, max(1, len(image.brokers)))
    planner = _Planner(image, view, PartitionBudget(limits), seed, num_partitions, default_replication_factor)
    twice = repeated(one.name for one in request.topics)
    records: list[MetadataRecord] = []
    for asked in request.topics:
        answer = response.topics.add(name=asked.name)
        try:
            if asked.name in twice:
                raise TailraceError(
                    ErrorCode.INVALID_REQUEST, f"topic {asked.name!r} stands in the request more than once"
                )
            plan = planner.plan(asked)
        except TailraceError as failure:
            answer.error.CopyFrom(error_from(failure))
            continue
        answer.partitions = len(plan.replicas)
        answer.replication_factor = len(plan.replicas[0])
        if not request.validate_only:
            topic_id = new_id()
            answer.topic_id = topic_id.bytes
            records += plan.records(image, topic_id)
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(_with_configs(image, view, response, planner.configs), records)


def _with_configs(
    image: ClusterImage,
    view: NodeView,
    response: pb.CreateTopicsResponse,
    planned: Mapping[str, Mapping[str, str]] | None = None,
) -> pb.CreateTopicsResponse:
    """The answer with the settings of the topics, which are left out of what is kept for a repeated request:
    they can be told anew, and would be most of it."""
    for answer in response.topics:
        if not answer.HasField("error"):
            own = image.topic_configs(answer.name) if planned is None else planned[answer.name]
            answer.configs.extend(topic_entries(view, answer.name, own, answer.replication_factor))
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    name: str
    replicas: list[tuple[int, ...]]
    configs: Mapping[str, str]

    def records(self, image: ClusterImage, topic_id: UUID) -> Iterator[MetadataRecord]:
        yield MetadataRecord(topic_created=TopicCreated(topic_id=topic_id.bytes, name=self.name))
        for number, replicas in enumerate(self.replicas):
            partition = partition_record(topic_id, number, new_partition(image, replicas))
            yield MetadataRecord(partition=partition)
        for key, value in sorted(self.configs.items()):
            kind = CONFIG_RESOURCE_TYPE_TOPIC
            yield MetadataRecord(config=ConfigRecord(type=kind, name=self.name, key=key, value=value))


class _Planner:
    """Plans the topics of one request one after the other."""

    def __init__(
        self,
        image: ClusterImage,
        view: NodeView,
        budget: PartitionBudget,
        seed: int,
        num_partitions: int,
        default_replication_factor: int,
    ) -> None:
        self.configs: dict[str, Mapping[str, str]] = {}
        self._image = image
        self._view = view
        self._budget = budget
        self._placer = Placer(image, seed=seed)
        self._names = TakenNames(image)
        self._num_partitions = num_partitions
        self._default_replication_factor = default_replication_factor

    def plan(self, asked: pb.CreateTopicsRequest.Topic) -> _Plan:
        """Raises without having changed anything."""
        self._names.check(asked.name)
        configs = checked_topic_values(self._view, asked.name, asked.configs)
        replicas = self._assigned(asked) if asked.assignment else self._placed(asked)
        self._budget.spend(len(replicas))
        self._names.add(asked.name)
        self.configs[asked.name] = configs
        return _Plan(name=asked.name, replicas=replicas, configs=configs)

    def _assigned(self, asked: pb.CreateTopicsRequest.Topic) -> list[tuple[int, ...]]:
        if asked.partitions not in (-1, 0) or asked.replication_factor not in (-1, 0):
            raise TailraceError(
                ErrorCode.INVALID_REQUEST,
                "the assignment says how many partitions and replicas there are: leave both numbers out, or"
                " the assignment",
            )
        self._budget.check(len(asked.assignment))
        replicas = checked_assignment(self._image, asked.assignment)
        self._placer.count(replicas)
        return replicas

    def _placed(self, asked: pb.CreateTopicsRequest.Topic) -> list[tuple[int, ...]]:
        partitions = self._num_partitions if asked.partitions in (-1, 0) else asked.partitions
        factor = asked.replication_factor
        if partitions < 1:
            raise TailraceError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic needs at least one partition, not {partitions}; -1 stands for num.partitions",
            )
        self._budget.check(partitions)
        return self._placer.place(
            partitions=partitions,
            replication_factor=self._default_replication_factor if factor in (-1, 0) else factor,
        )


def delete_topics(
    image: ClusterImage, request: pb.DeleteTopicsRequest, *, delete_topic_enable: bool = True
) -> Decision[pb.DeleteTopicsResponse]:
    """The settings of a topic go with it. Internal topics can be deleted, as in Kafka: an administrator may
    have to."""
    response = pb.DeleteTopicsResponse()
    try:
        done = already_done(image, request.request_id, pb.DeleteTopicsResponse)
        if done is not None:
            return Decision(done)
    except TailraceError as failure:
        for ref in request.topics:
            response.topics.add(name=ref.name, topic_id=ref.topic_id, error=error_from(failure))
        return Decision(response)
    twice = repeated(_identity(image, ref) for ref in request.topics)
    records = []
    for ref in request.topics:
        answer = response.topics.add(name=ref.name, topic_id=ref.topic_id)
        try:
            if not delete_topic_enable:
                raise TailraceError(
                    ErrorCode.TOPIC_DELETION_DISABLED,
                    "topics cannot be deleted while delete.topic.enable is off: set it to true first",
                )
            topic = referred_topic(image, ref)
            if _identity(image, ref) in twice:
                raise TailraceError(
                    ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} stands in the request more than once"
                )
        except TailraceError as failure:
            answer.error.CopyFrom(error_from(failure))
            continue
        answer.name, answer.topic_id = topic.name, topic.topic_id.bytes
        records.append(MetadataRecord(topic_deleted=TopicDeleted(topic_id=topic.topic_id.bytes)))
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(response, records)


def _identity(image: ClusterImage, ref: pb.TopicRef) -> object:
    """Equal for references to one topic, be it by name or by id."""
    try:
        return referred_topic(image, ref).topic_id
    except TailraceError:
        return object()
