"""The cluster as the metadata log describes it up to a version: an immutable value.

Made by `replay` alone. Whoever holds an image may read it from any thread, for as long as it likes; parts
that did not change are shared between versions. Dictionaries here are never changed after the image was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tailrace.cluster.common.types import TopicPartition
from tailrace.v1.metadata_pb2 import ConfigResourceType

NO_LEADER = -1
METADATA_VERSION = "metadata.version"
# As many answers to requests with ids are kept as can still be asked for again by a patient client.
REQUESTS_KEPT = 2_000


class EndpointImage(NamedTuple):
    listener: str
    host: str
    port: int
    tls: bool


class LogDirImage(NamedTuple):
    directory_id: UUID
    online: bool


class FeatureSupport(NamedTuple):
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    broker_id: int
    incarnation: UUID
    epoch: int
    endpoints: tuple[EndpointImage, ...]
    rack: str
    host: str
    log_dirs: tuple[LogDirImage, ...]
    features: Mapping[str, FeatureSupport]
    fenced: bool
    shutting_down: bool

    @property
    def active(self) -> bool:
        """Whether it may lead, and be taken into an ISR."""
        return not self.fenced and not self.shutting_down

    @property
    def offline_dirs(self) -> frozenset[UUID]:
        return frozenset(one.directory_id for one in self.log_dirs if not one.online)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    node_id: int
    incarnation: UUID
    endpoints: tuple[EndpointImage, ...]
    features: Mapping[str, FeatureSupport]


class PartitionImage(NamedTuple):
    """`isr` holds the leader whenever there is one. `partition_epoch` grows with every change."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: tuple[int, ...] = ()
    # Who led before there was no leader: the best guess of an unclean election.
    last_known_leader: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    # Elected without having everything committed.
    recovering: bool = False
    # The log directory of each replica; empty when none has been told.
    directories: tuple[UUID, ...] = ()

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    topic_id: UUID
    name: str
    partitions: tuple[PartitionImage, ...]


ConfigKey = tuple["ConfigResourceType", str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """`version` counts the entries of the metadata log; `controller_epoch` is the one of the newest."""

    version: int = 0
    controller_epoch: int = 0
    cluster_id: str = ""
    features: Mapping[str, int] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    # Larger than the epoch of every registration that ever was.
    next_broker_epoch: int = 1
    topics: Mapping[UUID, TopicImage] = field(default_factory=dict)
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    configs: Mapping[ConfigKey, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    # Answers to requests with ids, oldest first.
    requests: Mapping[bytes, bytes] = field(default_factory=dict)

    @property
    def metadata_level(self) -> int:
        return self.features.get(METADATA_VERSION, 0)

    def topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_partition: TopicPartition) -> PartitionImage | None:
        topic = self.topic(topic_partition.topic)
        if topic is None or not 0 <= topic_partition.partition < len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition]

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self.topics.values():
            for number, partition in enumerate(topic.partitions):
                yield topic, number, partition

    def topic_configs(self, name: str) -> Mapping[str, str]:
        return self.configs.get((ConfigResourceType.CONFIG_RESOURCE_TYPE_TOPIC, name), {})

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Of one broker, or the default of all brokers."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get((ConfigResourceType.CONFIG_RESOURCE_TYPE_BROKER, name), {})


EMPTY_IMAGE = ClusterImage()
