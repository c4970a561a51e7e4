"""Images of clusters for tests of the metadata, made as real ones are: by replaying records.

    image = image_with(brokers=[1, 2, broker(3, rack="b", fenced=True)], topics={"t": [(1, 2, 3), (2, 3, 1)]})
    image = apply(image, decision)

Ids are derived from names and numbers, so a test can name them: `topic_id("t")`, `incarnation(1)`,
`directory(1)`. Brokers get the epochs 1, 2, 3, ... in the order in which they are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid5

from tailrace.cluster.common.image import (
    EMPTY_IMAGE,
    METADATA_VERSION,
    NO_LEADER,
    ClusterImage,
    PartitionImage,
)
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.common.replay import MAX_METADATA_LEVEL, MIN_METADATA_LEVEL, replay
from tailrace.cluster.controller.core.decision import Decision
from tailrace.v1 import metadata_pb2 as pb

CLUSTER_ID = "test-cluster"
CONTROLLER_EPOCH = 1
_NAMES = UUID("5b2f6a4e-35d4-4a44-9b0e-2f1a8f6f7c11")


def image_with(
    *,
    brokers: Iterable[int | pb.BrokerRegistered] = (),
    topics: Mapping[str, Sequence[Sequence[int] | PartitionImage]] | None = None,
    configs: Mapping[str, Mapping[str, str]] | None = None,
    broker_configs: Mapping[str, Mapping[str, str]] | None = None,
) -> ClusterImage:
    """A cluster at version 1. Each partition is its replicas in order, or a `PartitionImage` as it is;
    `configs` are those of topics by name, `broker_configs` by broker id, "" for the default of all."""
    records = [
        pb.MetadataRecord(cluster_created=pb.ClusterCreated(cluster_id=CLUSTER_ID)),
        pb.MetadataRecord(feature_level=pb.FeatureLevel(name=METADATA_VERSION, level=MIN_METADATA_LEVEL)),
    ]
    registered = [broker(one) if isinstance(one, int) else one for one in brokers]
    for epoch, one in enumerate(registered, 1):
        changed = pb.BrokerRegistered()
        changed.CopyFrom(one)
        changed.broker_epoch = epoch
        records.append(pb.MetadataRecord(broker_registered=changed))
    active = {one.broker_id for one in registered if not one.fenced and not one.shutting_down}
    for name, partitions in (topics or {}).items():
        records += topic_records(name, partitions, active=active)
    for kind, changes in (
        (pb.CONFIG_RESOURCE_TYPE_TOPIC, configs or {}),
        (pb.CONFIG_RESOURCE_TYPE_BROKER, broker_configs or {}),
    ):
        for name, values in changes.items():
            for key, value in values.items():
                config = pb.ConfigRecord(type=kind, name=name, key=key, value=value)
                records.append(pb.MetadataRecord(config=config))
    return apply(EMPTY_IMAGE, records)


def apply(image: ClusterImage, decision: Decision[Any] | Iterable[pb.MetadataRecord]) -> ClusterImage:
    """The image after the decision's records, as one entry of the metadata log."""
    records = decision.records if isinstance(decision, Decision) else decision
    changed, _ = replay(image, records, version=image.version + 1, controller_epoch=CONTROLLER_EPOCH)
    return changed


def broker(
    broker_id: int,
    *,
    rack: str = "",
    host: str = "",
    fenced: bool = False,
    shutting_down: bool = False,
    offline_dirs: Iterable[int] = (),
    dirs: int = 1,
    life: int = 1,
    features: Mapping[str, tuple[int, int]] | None = None,
) -> pb.BrokerRegistered:
    """A registration with an epoch yet to be given. `offline_dirs` are numbers below `dirs`; `life` tells
    one incarnation of a broker from the next."""
    offline = set(offline_dirs)
    return pb.BrokerRegistered(
        broker_id=broker_id,
        incarnation=incarnation(broker_id, life).bytes,
        endpoints=endpoints(broker_id),
        rack=rack,
        host=host or f"host-{broker_id}",
        log_dirs=[
            pb.LogDir(id=directory(broker_id, number).bytes, online=number not in offline)
            for number in range(dirs)
        ],
        features=feature_ranges(features),
        fenced=fenced,
        shutting_down=shutting_down,
    )


def partition(
    *replicas: int,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    elr: Sequence[int] = (),
    last_known_leader: int = NO_LEADER,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    recovering: bool = False,
    directories: Sequence[UUID] = (),
) -> PartitionImage:
    """Everything not said: all replicas in sync, led by the first of the ISR."""
    in_sync = tuple(replicas if isr is None else isr)
    if leader is None:
        leader = in_sync[0] if in_sync else NO_LEADER
    return PartitionImage(
        replicas=replicas,
        isr=in_sync,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        elr=tuple(elr),
        last_known_leader=last_known_leader,
        adding=tuple(adding),
        removing=tuple(removing),
        recovering=recovering,
        directories=tuple(directories),
    )


def topic_records(
    name: str, partitions: Sequence[Sequence[int] | PartitionImage], *, active: Iterable[int]
) -> list[pb.MetadataRecord]:
    """A topic is created. Of partitions given by their replicas alone, the active ones are in sync."""
    identity = topic_id(name)
    records = [pb.MetadataRecord(topic_created=pb.TopicCreated(topic_id=identity.bytes, name=name))]
    in_service = set(active)
    for number, given in enumerate(partitions):
        if isinstance(given, PartitionImage):
            image = given
        else:
            in_sync = [one for one in given if one in in_service]
            image = partition(*given, isr=in_sync or given, leader=None if in_sync else NO_LEADER)
        records.append(pb.MetadataRecord(partition=partition_record(identity, number, image)))
    return records


def topic_id(name: str) -> UUID:
    return uuid5(_NAMES, f"topic {name}")


def incarnation(node_id: int, life: int = 1) -> UUID:
    return uuid5(_NAMES, f"incarnation {node_id} {life}")


def directory(broker_id: int, number: int = 0) -> UUID:
    return uuid5(_NAMES, f"directory {broker_id} {number}")


def endpoints(node_id: int) -> list[pb.Endpoint]:
    return [
        pb.Endpoint(listener="CLIENT", host=f"host-{node_id}", port=9092),
        pb.Endpoint(listener="CLUSTER", host=f"host-{node_id}", port=9093),
    ]


def feature_ranges(features: Mapping[str, tuple[int, int]] | None = None) -> list[pb.FeatureRange]:
    """What a node supports; by default metadata.version as this release does."""
    supported = {METADATA_VERSION: (MIN_METADATA_LEVEL, MAX_METADATA_LEVEL)} if features is None else features
    return [
        pb.FeatureRange(name=name, min_level=least, max_level=most)
        for name, (least, most) in sorted(supported.items())
    ]
