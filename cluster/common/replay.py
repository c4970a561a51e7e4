"""Replaying metadata records: the only way from one image to the next.

`replay` takes an image and the records of one entry and gives the next image and what changed. It is pure and
the same everywhere, so two nodes with the same entries have equal images. A record that makes no sense at
its place (a partition of a topic that is not there) raises `ReplayError`: the active controller replays
every batch before it proposes it, so an entry that cannot be replayed means that this node differs from the
others, and it must stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from tailrace.cluster.common.image import (
    METADATA_VERSION,
    NO_LEADER,
    REQUESTS_KEPT,
    BrokerImage,
    ClusterImage,
    ConfigKey,
    ControllerImage,
    EndpointImage,
    FeatureSupport,
    LogDirImage,
    PartitionImage,
    TopicImage,
)
from tailrace.v1 import metadata_pb2 as pb

# The newest level of metadata.version that this release writes and replays, and the oldest.
MIN_METADATA_LEVEL = 1
MAX_METADATA_LEVEL = 1

_K = TypeVar("_K")
_V = TypeVar("_V")


class ReplayError(Exception):
    """An entry of the metadata log cannot be replayed by this node."""


@dataclass(slots=True)
class Delta:
    """What a batch of records touched. A topic that was deleted is in `deleted_topics` only."""

    partitions: dict[UUID, set[int]] = field(default_factory=dict)
    created_topics: set[UUID] = field(default_factory=set)
    deleted_topics: dict[UUID, TopicImage] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    configs: set[ConfigKey] = field(default_factory=set)
    features: set[str] = field(default_factory=set)


def replay(
    image: ClusterImage, records: Iterable[pb.MetadataRecord], *, version: int, controller_epoch: int
) -> tuple[ClusterImage, Delta]:
    """The image after one entry; `version` is the entry's own."""
    if version != image.version + 1:
        raise ReplayError(f"entry {version} cannot follow version {image.version}")
    builder = _Builder(image)
    for record in records:
        builder.add(record)
    return builder.build(version, controller_epoch), builder.delta


def image_from_records(
    records: Iterable[pb.MetadataRecord], *, version: int, controller_epoch: int
) -> ClusterImage:
    """The image that a snapshot describes."""
    builder = _Builder(ClusterImage())
    for record in records:
        builder.add(record)
    return builder.build(version, controller_epoch)


class _Builder:
    def __init__(self, image: ClusterImage) -> None:
        self.delta = Delta()
        self._image = image
        self._changes: dict[str, Any] = {}
        self._partitions: dict[UUID, list[PartitionImage]] = {}

    def build(self, version: int, controller_epoch: int) -> ClusterImage:
        if self._partitions:
            topics = self._open("topics", self._image.topics)
            for topic_id, partitions in self._partitions.items():
                if topic_id in topics:
                    topics[topic_id] = replace(topics[topic_id], partitions=tuple(partitions))
        changed = self._changes
        return replace(self._image, version=version, controller_epoch=controller_epoch, **changed)

    def add(self, record: pb.MetadataRecord) -> None:
        kind = record.WhichOneof("kind")
        handler = _HANDLERS.get(kind or "")
        if handler is None:
            raise ReplayError(
                f"the metadata log holds a kind of record that this release does not know (it knows "
                f"{METADATA_VERSION} {MIN_METADATA_LEVEL} to {MAX_METADATA_LEVEL}); start the node with the "
                "release that the other nodes run"
            )
        handler(self, getattr(record, kind))

    def _open(self, name: str, current: Mapping[_K, _V]) -> dict[_K, _V]:
        """The dictionary of that name, copied on its first change."""
        copied: dict[_K, _V] | None = self._changes.get(name)
        if copied is None:
            copied = self._changes[name] = dict(current)
        return copied

    # Cluster and features.

    def cluster_created(self, record: pb.ClusterCreated) -> None:
        if self._image.cluster_id or "cluster_id" in self._changes:
            raise ReplayError("a second record creates the cluster")
        self._changes["cluster_id"] = record.cluster_id

    def feature_level(self, record: pb.FeatureLevel) -> None:
        if record.name == METADATA_VERSION and not MIN_METADATA_LEVEL <= record.level <= MAX_METADATA_LEVEL:
            raise ReplayError(
                f"the cluster is at {METADATA_VERSION} {record.level}, and this release knows levels "
                f"{MIN_METADATA_LEVEL} to {MAX_METADATA_LEVEL}; start the node with a release that knows it"
            )
        features = self._open("features", self._image.features)
        if record.level:
            features[record.name] = record.level
        else:
            features.pop(record.name, None)
        self.delta.features.add(record.name)

    def controller_registered(self, record: pb.ControllerRegistered) -> None:
        controllers = self._open("controllers", self._image.controllers)
        controllers[record.node_id] = ControllerImage(
            node_id=record.node_id,
            incarnation=UUID(bytes=record.incarnation),
            endpoints=_endpoints(record.endpoints),
            features=_features(record.features),
        )

    # Brokers.

    def broker_registered(self, record: pb.BrokerRegistered) -> None:
        brokers = self._open("brokers", self._image.brokers)
        before = brokers.get(record.broker_id)
        if before is not None and record.broker_epoch <= before.epoch:
            raise ReplayError(f"broker {record.broker_id} registers with an epoch that is not larger")
        brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            incarnation=UUID(bytes=record.incarnation),
            epoch=record.broker_epoch,
            endpoints=_endpoints(record.endpoints),
            rack=record.rack,
            host=record.host,
            log_dirs=tuple(LogDirImage(UUID(bytes=one.id), one.online) for one in record.log_dirs),
            features=_features(record.features),
            fenced=record.fenced,
            shutting_down=record.shutting_down,
        )
        self._raise_broker_epoch(record.broker_epoch)
        self.delta.brokers.add(record.broker_id)

    def broker_epochs_used(self, record: pb.BrokerEpochsUsed) -> None:
        self._raise_broker_epoch(record.next_broker_epoch - 1)

    def _raise_broker_epoch(self, used: int) -> None:
        following = self._changes.get("next_broker_epoch", self._image.next_broker_epoch)
        self._changes["next_broker_epoch"] = max(following, used + 1)

    def broker_changed(self, record: pb.BrokerChanged) -> None:
        brokers = self._open("brokers", self._image.brokers)
        broker = self._registered(brokers, record.broker_id, record.broker_epoch)
        if record.HasField("fenced"):
            broker = replace(broker, fenced=record.fenced)
        if record.HasField("shutting_down"):
            broker = replace(broker, shutting_down=record.shutting_down)
        if record.log_dirs:
            changed = {UUID(bytes=one.id): one.online for one in record.log_dirs}
            kept = [
                LogDirImage(one.directory_id, changed.pop(one.directory_id, one.online))
                for one in broker.log_dirs
            ]
            added = [LogDirImage(directory_id, online) for directory_id, online in changed.items()]
            broker = replace(broker, log_dirs=(*kept, *added))
        brokers[record.broker_id] = broker
        self.delta.brokers.add(record.broker_id)

    def broker_unregistered(self, record: pb.BrokerUnregistered) -> None:
        brokers = self._open("brokers", self._image.brokers)
        self._registered(brokers, record.broker_id, record.broker_epoch)
        del brokers[record.broker_id]
        self.delta.brokers.add(record.broker_id)

    @staticmethod
    def _registered(brokers: Mapping[int, BrokerImage], broker_id: int, epoch: int) -> BrokerImage:
        broker = brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ReplayError(f"no broker {broker_id} is registered with epoch {epoch}")
        return broker

    # Topics and partitions.

    def topic_created(self, record: pb.TopicCreated) -> None:
        topic_id = UUID(bytes=record.topic_id)
        topics = self._open("topics", self._image.topics)
        names = self._open("topic_ids", self._image.topic_ids)
        if topic_id in topics or record.name in names:
            raise ReplayError(f"topic {record.name!r} ({topic_id}) is created twice")
        topics[topic_id] = TopicImage(topic_id=topic_id, name=record.name, partitions=())
        names[record.name] = topic_id
        self._partitions[topic_id] = []
        self.delta.created_topics.add(topic_id)

    def topic_deleted(self, record: pb.TopicDeleted) -> None:
        topic_id = UUID(bytes=record.topic_id)
        topics = self._open("topics", self._image.topics)
        topic = topics.pop(topic_id, None)
        if topic is None:
            raise ReplayError(f"topic {topic_id} is deleted and does not exist")
        del self._open("topic_ids", self._image.topic_ids)[topic.name]
        self._partitions.pop(topic_id, None)
        key = (pb.CONFIG_RESOURCE_TYPE_TOPIC, topic.name)
        if key in self._changes.get("configs", self._image.configs):
            del self._open("configs", self._image.configs)[key]
            self.delta.configs.add(key)
        self.delta.partitions.pop(topic_id, None)
        if topic_id in self.delta.created_topics:
            self.delta.created_topics.discard(topic_id)
        else:
            self.delta.deleted_topics[topic_id] = self._image.topics[topic_id]

    def partition(self, record: pb.PartitionRecord) -> None:
        topic_id = UUID(bytes=record.topic_id)
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._changes.get("topics", self._image.topics).get(topic_id)
            if topic is None:
                raise ReplayError(f"partition {record.partition} of topic {topic_id}, which does not exist")
            partitions = self._partitions[topic_id] = list(topic.partitions)
        number = record.partition
        changed = partition_from(record)
        if number == len(partitions):
            partitions.append(changed)
        elif 0 <= number < len(partitions):
            partitions[number] = changed
        else:
            raise ReplayError(f"partition {number} of topic {topic_id}, which has {len(partitions)}")
        self.delta.partitions.setdefault(topic_id, set()).add(number)

    # The rest.

    def config(self, record: pb.ConfigRecord) -> None:
        key = (record.type, record.name)
        configs = self._open("configs", self._image.configs)
        values = dict(configs.get(key, {}))
        if record.HasField("value"):
            values[record.key] = record.value
        else:
            values.pop(record.key, None)
        if values:
            configs[key] = values
        else:
            configs.pop(key, None)
        self.delta.configs.add(key)

    def producer_ids_reserved(self, record: pb.ProducerIdsReserved) -> None:
        if record.next_producer_id < self._changes.get("next_producer_id", self._image.next_producer_id):
            raise ReplayError("producer ids are given away twice")
        self._changes["next_producer_id"] = record.next_producer_id

    def request_done(self, record: pb.RequestDone) -> None:
        requests = self._open("requests", self._image.requests)
        requests[record.request_id] = record.response
        if len(requests) > REQUESTS_KEPT:
            del requests[next(iter(requests))]


def partition_from(record: pb.PartitionRecord) -> PartitionImage:
    return PartitionImage(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.elr),
        record.last_known_leader[0] if record.last_known_leader else NO_LEADER,
        tuple(record.adding),
        tuple(record.removing),
        record.recovering,
        tuple(UUID(bytes=one) for one in record.directories),
    )


def _endpoints(endpoints: Iterable[pb.Endpoint]) -> tuple[EndpointImage, ...]:
    return tuple(EndpointImage(one.listener, one.host, one.port, one.tls) for one in endpoints)


def _features(features: Iterable[pb.FeatureRange]) -> dict[str, FeatureSupport]:
    return {one.name: FeatureSupport(one.min_level, one.max_level) for one in features}


_KINDS = pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["kind"].fields
_HANDLERS: dict[str, Callable[[_Builder, Any], None]] = {
    kind.name: getattr(_Builder, kind.name) for kind in _KINDS if hasattr(_Builder, kind.name)
}
