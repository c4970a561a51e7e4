"""Between the values of administrators and the messages of the wire. Nothing here asks or decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from tailrace.clients.admin_types import (
    BrokerDescription,
    BrokerState,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigValue,
    ControllerDescription,
    CreatedTopic,
    Endpoint,
    FeatureRange,
    LogDir,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    QuorumDescription,
    TopicDescription,
    TopicListing,
    Voter,
)
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import metadata_pb2 as metadata
from tailrace.v1.errors_pb2 import Error

_RESOURCE_TYPES = {
    ConfigResourceType.TOPIC: metadata.CONFIG_RESOURCE_TYPE_TOPIC,
    ConfigResourceType.BROKER: metadata.CONFIG_RESOURCE_TYPE_BROKER,
}
_OPS = {
    ConfigOp.SET: admin.AlterConfigsRequest.OP_SET,
    ConfigOp.DELETE: admin.AlterConfigsRequest.OP_DELETE,
    ConfigOp.APPEND: admin.AlterConfigsRequest.OP_APPEND,
    ConfigOp.SUBTRACT: admin.AlterConfigsRequest.OP_SUBTRACT,
}
_SOURCES = {
    admin.CONFIG_SOURCE_DYNAMIC_TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    admin.CONFIG_SOURCE_DYNAMIC_BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    admin.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER: ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    admin.CONFIG_SOURCE_STATIC_BROKER: ConfigSource.STATIC_BROKER_CONFIG,
    admin.CONFIG_SOURCE_DEFAULT: ConfigSource.DEFAULT_CONFIG,
}


def failure_from(error: Error) -> TailraceError | None:
    """The error that a part of an answer carries, if it carries one."""
    number = int(error.code)
    if number == ErrorCode.NONE:
        return None
    code = next((one for one in ErrorCode if one == number), None)
    if code is not None:
        return TailraceError(code, error.message)
    told = f"{error.message} (error {number}, which this release of the client does not know)"
    return TailraceError(ErrorCode.UNKNOWN_SERVER_ERROR, told)


# Requests.


def new_topic(topic: NewTopic) -> admin.CreateTopicsRequest.Topic:
    return admin.CreateTopicsRequest.Topic(
        name=topic.name,
        partitions=_number_or_default(topic.partitions),
        replication_factor=_number_or_default(topic.replication_factor),
        assignment=_assignment(topic.replica_assignment),
        configs={key: _text(value) for key, value in topic.configs.items()},
    )


def new_partitions(name: str, wanted: int | NewPartitions) -> admin.CreatePartitionsRequest.Topic:
    new = NewPartitions(wanted) if isinstance(wanted, int) else wanted
    return admin.CreatePartitionsRequest.Topic(
        name=name, count=new.total, assignment=_assignment(new.replica_assignment)
    )


def topic_ref(topic: str | UUID) -> admin.TopicRef:
    return admin.TopicRef(topic_id=topic.bytes) if isinstance(topic, UUID) else admin.TopicRef(name=topic)


def partition_ref(partition: TopicPartition) -> admin.PartitionRef:
    return admin.PartitionRef(topic=partition[0], partition=partition[1])


def resource_message(resource: ConfigResource) -> admin.ConfigResource:
    return admin.ConfigResource(type=_RESOURCE_TYPES[resource.type], name=resource.name)


def resource_changes(
    resource: ConfigResource, changes: Iterable[ConfigChange]
) -> admin.AlterConfigsRequest.Resource:
    return admin.AlterConfigsRequest.Resource(
        resource=resource_message(resource),
        changes=[
            admin.AlterConfigsRequest.Change(key=one.key, op=_OPS[one.op], value=_text(one.value))
            for one in changes
        ],
    )


def _text(value: ConfigValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number_or_default(number: int | None) -> int:
    return -1 if number is None else number


def _assignment(assignment: Sequence[Sequence[int]]) -> list[admin.ReplicaAssignment]:
    return [admin.ReplicaAssignment(broker_ids=brokers) for brokers in assignment]


# Answers.


def created_topic(topic: admin.CreateTopicsResponse.Topic) -> CreatedTopic:
    return CreatedTopic(
        name=topic.name,
        topic_id=UUID(bytes=topic.topic_id) if topic.topic_id else None,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=config_entries(topic.configs),
    )


def topic_listing(topic: admin.DescribeTopicsResponse.Topic) -> TopicListing:
    return TopicListing(
        name=topic.name,
        topic_id=UUID(bytes=topic.topic_id),
        internal=topic.internal,
        partition_count=topic.partition_count,
    )


def topic_description(topic: admin.DescribeTopicsResponse.Topic) -> TopicDescription:
    return TopicDescription(
        name=topic.name,
        topic_id=UUID(bytes=topic.topic_id),
        internal=topic.internal,
        partitions=tuple(_partition(topic.name, one) for one in topic.partitions),
    )


def _partition(topic: str, record: metadata.PartitionRecord) -> PartitionDescription:
    return PartitionDescription(
        topic=topic,
        partition=record.partition,
        leader=_known(record.leader),
        leader_epoch=record.leader_epoch,
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        elr=tuple(record.elr),
        last_known_leader=next(iter(record.last_known_leader), None),
        adding=tuple(record.adding),
        removing=tuple(record.removing),
        recovering=record.recovering,
    )


def topic_partition(ref: admin.PartitionRef) -> TopicPartition:
    return TopicPartition(ref.topic, ref.partition)


def config_resource(resource: admin.ConfigResource) -> ConfigResource:
    kind = next(kind for kind, number in _RESOURCE_TYPES.items() if number == resource.type)
    return ConfigResource(kind, resource.name)


def config_entries(entries: Iterable[admin.ConfigEntry]) -> Mapping[str, ConfigEntry]:
    return {one.name: _config_entry(one) for one in entries}


def _config_entry(entry: admin.ConfigEntry) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        source=_source(entry.source),
        read_only=entry.read_only,
        sensitive=entry.sensitive,
        type=entry.type,
        documentation=entry.documentation,
        synonyms=tuple(
            ConfigSynonym(name=one.name, value=one.value, source=_source(one.source))
            for one in entry.synonyms
        ),
    )


def _source(number: admin.ConfigSource) -> ConfigSource:
    return _SOURCES.get(number, ConfigSource.UNKNOWN)


def cluster_description(response: admin.DescribeClusterResponse) -> ClusterDescription:
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=_known(response.controller_id),
        controller_epoch=response.controller_epoch,
        metadata_version=response.metadata_version,
        brokers=tuple(_broker(one) for one in response.brokers),
        controllers=tuple(_controller(one) for one in response.controllers),
    )


def _broker(broker: metadata.BrokerRegistered) -> BrokerDescription:
    state = BrokerState.ACTIVE
    if broker.fenced:
        state = BrokerState.FENCED
    elif broker.shutting_down:
        state = BrokerState.SHUTTING_DOWN
    return BrokerDescription(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        state=state,
        host=broker.host,
        rack=broker.rack or None,
        endpoints=_endpoints(broker.endpoints),
        log_dirs=tuple(LogDir(directory_id=UUID(bytes=one.id), online=one.online) for one in broker.log_dirs),
        features=_features(broker.features),
    )


def _controller(controller: metadata.ControllerRegistered) -> ControllerDescription:
    return ControllerDescription(
        node_id=controller.node_id,
        endpoints=_endpoints(controller.endpoints),
        features=_features(controller.features),
    )


def _endpoints(endpoints: Iterable[metadata.Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(listener=one.listener, host=one.host, port=one.port, tls=one.tls) for one in endpoints
    )


def _features(features: Iterable[metadata.FeatureRange]) -> Mapping[str, FeatureRange]:
    return {one.name: FeatureRange(min_level=one.min_level, max_level=one.max_level) for one in features}


def quorum_description(response: admin.DescribeQuorumResponse) -> QuorumDescription:
    return QuorumDescription(
        node_id=response.node_id,
        leader_id=_known(response.leader_id),
        controller_epoch=response.controller_epoch,
        term=response.term,
        last_index=response.last_index,
        commit_index=response.commit_index,
        applied_index=response.applied_index,
        metadata_version=response.metadata_version,
        voters=tuple(_voter(one) for one in response.voters),
        snapshot_version=_known(response.snapshot_version),
        snapshot_bytes=response.snapshot_bytes,
        snapshot_age_ms=_known(response.snapshot_age_ms),
        journal_entries=response.journal_entries,
        journal_bytes=response.journal_bytes,
        snapshots_failed=response.snapshots_failed,
    )


def _voter(voter: admin.DescribeQuorumResponse.Voter) -> Voter:
    return Voter(
        node_id=voter.node_id,
        host=voter.host,
        port=voter.port,
        connected=voter.connected,
        match_index=_known(voter.match_index),
        lag=_known(voter.lag),
        last_contact_ms=_known(voter.last_contact_ms),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
