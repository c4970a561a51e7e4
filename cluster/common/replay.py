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
# The size up to which answers to requests with ids are kept, beside their number REQUESTS_KEPT: long ones
# would make every snapshot long. The newest is kept in any case.
REQUEST_BYTES_KEPT = 4 * 1024 * 1024

_K = TypeVar("_K")
_V = TypeVar("_V")
_Replicas = tuple[int, ...]


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


class _OpenTopic:
    """A topic whose partitions are being changed."""

    __slots__ = ("name", "partitions", "topic_id", "touched")

    def __init__(self, topic: TopicImage) -> None:
        self.topic_id = topic.topic_id
        self.name = topic.name
        self.partitions = list(topic.partitions)
        self.touched: set[int] = set()

    def close(self) -> TopicImage:
        return TopicImage(topic_id=self.topic_id, name=self.name, partitions=tuple(self.partitions))


class _Builder:
    def __init__(self, image: ClusterImage) -> None:
        self.delta = Delta()
        self._image = image
        self._changes: dict[str, Any] = {}
        # By the id's bytes, as records carry them: a snapshot has very many partitions, and to make and hash
        # a UUID for each of them is slow.
        self._open_topics: dict[bytes, _OpenTopic] = {}
        self._replica_lists: dict[_Replicas, _Replicas] = {}
        self._request_bytes: int | None = None

    def build(self, version: int, controller_epoch: int) -> ClusterImage:
        for opened in self._open_topics.values():
            if opened.touched:
                self._open("topics", self._image.topics)[opened.topic_id] = opened.close()
                self.delta.partitions[opened.topic_id] = opened.touched
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
            incarnation=_uuid(record.incarnation),
            endpoints=_endpoints(record.endpoints),
            features=_features(record.features),
        )

    # Brokers.

    def broker_registered(self, record: pb.BrokerRegistered) -> None:
        brokers = self._open("brokers", self._image.brokers)
        before = brokers.get(record.broker_id)
        if before is not None and record.broker_epoch <= before.epoch:
            # The same process may register again with its epoch, to tell other endpoints.
            same_process = record.incarnation == before.incarnation.bytes
            if not same_process or record.broker_epoch < before.epoch:
                raise ReplayError(f"broker {record.broker_id} registers with an epoch that is not larger")
        brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            incarnation=_uuid(record.incarnation),
            epoch=record.broker_epoch,
            endpoints=_endpoints(record.endpoints),
            rack=record.rack,
            host=record.host,
            log_dirs=tuple(LogDirImage(_uuid(one.id), one.online) for one in record.log_dirs),
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
            changed = {_uuid(one.id): one.online for one in record.log_dirs}
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
        topic_id = _uuid(record.topic_id)
        topics = self._open("topics", self._image.topics)
        names = self._open("topic_ids", self._image.topic_ids)
        if topic_id in topics or record.name in names:
            raise ReplayError(f"topic {record.name!r} ({topic_id}) is created twice")
        topics[topic_id] = created = TopicImage(topic_id=topic_id, name=record.name, partitions=())
        names[record.name] = topic_id
        self._open_topics[record.topic_id] = _OpenTopic(created)
        self.delta.created_topics.add(topic_id)

    def topic_deleted(self, record: pb.TopicDeleted) -> None:
        topic_id = _uuid(record.topic_id)
        topics = self._open("topics", self._image.topics)
        topic = topics.pop(topic_id, None)
        if topic is None:
            raise ReplayError(f"topic {topic_id} is deleted and does not exist")
        del self._open("topic_ids", self._image.topic_ids)[topic.name]
        self._open_topics.pop(record.topic_id, None)
        key = (pb.CONFIG_RESOURCE_TYPE_TOPIC, topic.name)
        if key in self._changes.get("configs", self._image.configs):
            del self._open("configs", self._image.configs)[key]
            self.delta.configs.add(key)
        if topic_id in self.delta.created_topics:
            self.delta.created_topics.discard(topic_id)
        else:
            self.delta.deleted_topics[topic_id] = self._image.topics[topic_id]

    def partition(self, record: pb.PartitionRecord) -> None:
        opened = self._open_topics.get(record.topic_id) or self._open_topic(record)
        partitions = opened.partitions
        number = record.partition
        if number == len(partitions):
            partitions.append(partition_from(record, self._replica_lists))
        elif 0 <= number < len(partitions):
            partitions[number] = partition_from(record, self._replica_lists)
        else:
            raise ReplayError(f"partition {number} of topic {opened.topic_id}, which has {len(partitions)}")
        opened.touched.add(number)

    def _open_topic(self, record: pb.PartitionRecord) -> _OpenTopic:
        topic_id = _uuid(record.topic_id)
        topic = self._changes.get("topics", self._image.topics).get(topic_id)
        if topic is None:
            raise ReplayError(f"partition {record.partition} of topic {topic_id}, which does not exist")
        opened = self._open_topics[record.topic_id] = _OpenTopic(topic)
        return opened

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
        if self._request_bytes is None:
            self._request_bytes = sum(map(len, requests.values()))
        replaced = requests.pop(record.request_id, b"")
        requests[record.request_id] = record.response
        self._request_bytes += len(record.response) - len(replaced)
        while len(requests) > REQUESTS_KEPT or self._request_bytes > REQUEST_BYTES_KEPT:
            if len(requests) == 1:
                break
            self._request_bytes -= len(requests.pop(next(iter(requests))))


def partition_from(
    record: pb.PartitionRecord, known_lists: dict[_Replicas, _Replicas] | None = None
) -> PartitionImage:
    """A list of replicas that is in `known_lists` is taken from there: partitions are many, lists are few."""
    replicas = tuple(record.replicas)
    isr = tuple(record.isr)
    if known_lists is not None:
        replicas = known_lists.setdefault(replicas, replicas)
        isr = known_lists.setdefault(isr, isr)
    elr, adding, removing = record.elr, record.adding, record.removing
    last_known_leader, directories = record.last_known_leader, record.directories
    # Making a tuple of nothing takes as long as making one of something, and these are nearly always empty.
    return PartitionImage(
        replicas,
        isr,
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(elr) if elr else (),
        last_known_leader[0] if last_known_leader else NO_LEADER,
        tuple(adding) if adding else (),
        tuple(removing) if removing else (),
        record.recovering,
        tuple([_uuid(one) for one in directories]) if directories else (),
    )


def _uuid(value: bytes) -> UUID:
    if len(value) != 16:
        raise ReplayError(f"an id of {len(value)} bytes instead of 16")
    return UUID(bytes=value)


def _endpoints(endpoints: Iterable[pb.Endpoint]) -> tuple[EndpointImage, ...]:
    return tuple(EndpointImage(one.listener, one.host, one.port, one.tls) for one in endpoints)


def _features(features: Iterable[pb.FeatureRange]) -> dict[str, FeatureSupport]:
    return {one.name: FeatureSupport(one.min_level, one.max_level) for one in features}


_KINDS = pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["kind"].fields
_HANDLERS: dict[str, Callable[[_Builder, Any], None]] = {
    kind.name: getattr(_Builder, kind.name) for kind in _KINDS if hasattr(_Builder, kind.name)
}
