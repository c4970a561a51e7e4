from tailrace.v1 import errors_pb2 as _errors_pb2
from tailrace.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_SOURCE_UNSPECIFIED: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_TOPIC: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_BROKER: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER: _ClassVar[ConfigSource]
    CONFIG_SOURCE_STATIC_BROKER: _ClassVar[ConfigSource]
    CONFIG_SOURCE_DEFAULT: _ClassVar[ConfigSource]
CONFIG_SOURCE_UNSPECIFIED: ConfigSource
CONFIG_SOURCE_DYNAMIC_TOPIC: ConfigSource
CONFIG_SOURCE_DYNAMIC_BROKER: ConfigSource
CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER: ConfigSource
CONFIG_SOURCE_STATIC_BROKER: ConfigSource
CONFIG_SOURCE_DEFAULT: ConfigSource

class ReplicaAssignment(_message.Message):
    __slots__ = ("broker_ids",)
    BROKER_IDS_FIELD_NUMBER: _ClassVar[int]
    broker_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, broker_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateTopicsRequest(_message.Message):
    __slots__ = ("topics", "validate_only", "request_id")
    class Topic(_message.Message):
        __slots__ = ("name", "partitions", "replication_factor", "assignment", "configs")
        class ConfigsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        NAME_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
        ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
        CONFIGS_FIELD_NUMBER: _ClassVar[int]
        name: str
        partitions: int
        replication_factor: int
        assignment: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
        configs: _containers.ScalarMap[str, str]
        def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., assignment: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping]]] = ..., configs: _Optional[_Mapping[str, str]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreateTopicsRequest.Topic]
    validate_only: bool
    request_id: bytes
    def __init__(self, topics: _Optional[_Iterable[_Union[CreateTopicsRequest.Topic, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class CreateTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    class Topic(_message.Message):
        __slots__ = ("name", "error", "topic_id", "partitions", "replication_factor", "configs")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
        CONFIGS_FIELD_NUMBER: _ClassVar[int]
        name: str
        error: _errors_pb2.Error
        topic_id: bytes
        partitions: int
        replication_factor: int
        configs: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
        def __init__(self, name: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., topic_id: _Optional[bytes] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., configs: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreateTopicsResponse.Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[CreateTopicsResponse.Topic, _Mapping]]] = ...) -> None: ...

class TopicRef(_message.Message):
    __slots__ = ("name", "topic_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: bytes
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsRequest(_message.Message):
    __slots__ = ("topics", "request_id")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicRef]
    request_id: bytes
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicRef, _Mapping]]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class DeleteTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "error")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: bytes
        error: _errors_pb2.Error
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[DeleteTopicsResponse.Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[DeleteTopicsResponse.Topic, _Mapping]]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("topics", "validate_only", "request_id")
    class Topic(_message.Message):
        __slots__ = ("name", "count", "assignment")
        NAME_FIELD_NUMBER: _ClassVar[int]
        COUNT_FIELD_NUMBER: _ClassVar[int]
        ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
        name: str
        count: int
        assignment: _containers.RepeatedCompositeFieldContainer[ReplicaAssignment]
        def __init__(self, name: _Optional[str] = ..., count: _Optional[int] = ..., assignment: _Optional[_Iterable[_Union[ReplicaAssignment, _Mapping]]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreatePartitionsRequest.Topic]
    validate_only: bool
    request_id: bytes
    def __init__(self, topics: _Optional[_Iterable[_Union[CreatePartitionsRequest.Topic, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("topics",)
    class Topic(_message.Message):
        __slots__ = ("name", "error")
        NAME_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        name: str
        error: _errors_pb2.Error
        def __init__(self, name: _Optional[str] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[CreatePartitionsResponse.Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[CreatePartitionsResponse.Topic, _Mapping]]] = ...) -> None: ...

class DescribeTopicsRequest(_message.Message):
    __slots__ = ("topics", "names_only", "include_internal")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_INTERNAL_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicRef]
    names_only: bool
    include_internal: bool
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicRef, _Mapping]]] = ..., names_only: _Optional[bool] = ..., include_internal: _Optional[bool] = ...) -> None: ...

class DescribeTopicsResponse(_message.Message):
    __slots__ = ("topics", "metadata_version")
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "error", "internal", "partitions", "partition_count")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        INTERNAL_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: bytes
        error: _errors_pb2.Error
        internal: bool
        partitions: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.PartitionRecord]
        partition_count: int
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[bytes] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., internal: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[_metadata_pb2.PartitionRecord, _Mapping]]] = ..., partition_count: _Optional[int] = ...) -> None: ...
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[DescribeTopicsResponse.Topic]
    metadata_version: int
    def __init__(self, topics: _Optional[_Iterable[_Union[DescribeTopicsResponse.Topic, _Mapping]]] = ..., metadata_version: _Optional[int] = ...) -> None: ...

class ConfigResource(_message.Message):
    __slots__ = ("type", "name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    type: _metadata_pb2.ConfigResourceType
    name: str
    def __init__(self, type: _Optional[_Union[_metadata_pb2.ConfigResourceType, str]] = ..., name: _Optional[str] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value", "source", "read_only", "sensitive", "documentation", "type", "synonyms")
    class Synonym(_message.Message):
        __slots__ = ("name", "value", "source")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        name: str
        value: str
        source: ConfigSource
        def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[ConfigSource, str]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    SENSITIVE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SYNONYMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    source: ConfigSource
    read_only: bool
    sensitive: bool
    documentation: str
    type: str
    synonyms: _containers.RepeatedCompositeFieldContainer[ConfigEntry.Synonym]
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[ConfigSource, str]] = ..., read_only: _Optional[bool] = ..., sensitive: _Optional[bool] = ..., documentation: _Optional[str] = ..., type: _Optional[str] = ..., synonyms: _Optional[_Iterable[_Union[ConfigEntry.Synonym, _Mapping]]] = ...) -> None: ...

class DescribeConfigsRequest(_message.Message):
    __slots__ = ("resources", "include_synonyms", "include_documentation")
    class Resource(_message.Message):
        __slots__ = ("resource", "keys")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        KEYS_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        keys: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., keys: _Optional[_Iterable[str]] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_SYNONYMS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DOCUMENTATION_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[DescribeConfigsRequest.Resource]
    include_synonyms: bool
    include_documentation: bool
    def __init__(self, resources: _Optional[_Iterable[_Union[DescribeConfigsRequest.Resource, _Mapping]]] = ..., include_synonyms: _Optional[bool] = ..., include_documentation: _Optional[bool] = ...) -> None: ...

class DescribeConfigsResponse(_message.Message):
    __slots__ = ("resources",)
    class Resource(_message.Message):
        __slots__ = ("resource", "error", "entries")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        error: _errors_pb2.Error
        entries: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[DescribeConfigsResponse.Resource]
    def __init__(self, resources: _Optional[_Iterable[_Union[DescribeConfigsResponse.Resource, _Mapping]]] = ...) -> None: ...

class AlterConfigsRequest(_message.Message):
    __slots__ = ("resources", "validate_only", "request_id")
    class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OP_SET: _ClassVar[AlterConfigsRequest.Op]
        OP_DELETE: _ClassVar[AlterConfigsRequest.Op]
        OP_APPEND: _ClassVar[AlterConfigsRequest.Op]
        OP_SUBTRACT: _ClassVar[AlterConfigsRequest.Op]
    OP_SET: AlterConfigsRequest.Op
    OP_DELETE: AlterConfigsRequest.Op
    OP_APPEND: AlterConfigsRequest.Op
    OP_SUBTRACT: AlterConfigsRequest.Op
    class Change(_message.Message):
        __slots__ = ("key", "op", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        OP_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        op: AlterConfigsRequest.Op
        value: str
        def __init__(self, key: _Optional[str] = ..., op: _Optional[_Union[AlterConfigsRequest.Op, str]] = ..., value: _Optional[str] = ...) -> None: ...
    class Resource(_message.Message):
        __slots__ = ("resource", "changes")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        CHANGES_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        changes: _containers.RepeatedCompositeFieldContainer[AlterConfigsRequest.Change]
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[AlterConfigsRequest.Change, _Mapping]]] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsRequest.Resource]
    validate_only: bool
    request_id: bytes
    def __init__(self, resources: _Optional[_Iterable[_Union[AlterConfigsRequest.Resource, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AlterConfigsResponse(_message.Message):
    __slots__ = ("resources",)
    class Resource(_message.Message):
        __slots__ = ("resource", "error")
        RESOURCE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        resource: ConfigResource
        error: _errors_pb2.Error
        def __init__(self, resource: _Optional[_Union[ConfigResource, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    resources: _containers.RepeatedCompositeFieldContainer[AlterConfigsResponse.Resource]
    def __init__(self, resources: _Optional[_Iterable[_Union[AlterConfigsResponse.Resource, _Mapping]]] = ...) -> None: ...

class PartitionRef(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class ElectLeadersRequest(_message.Message):
    __slots__ = ("kind", "partitions", "request_id")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_PREFERRED: _ClassVar[ElectLeadersRequest.Kind]
        KIND_UNCLEAN: _ClassVar[ElectLeadersRequest.Kind]
    KIND_PREFERRED: ElectLeadersRequest.Kind
    KIND_UNCLEAN: ElectLeadersRequest.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    kind: ElectLeadersRequest.Kind
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRef]
    request_id: bytes
    def __init__(self, kind: _Optional[_Union[ElectLeadersRequest.Kind, str]] = ..., partitions: _Optional[_Iterable[_Union[PartitionRef, _Mapping]]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class ElectLeadersResponse(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("partition", "error")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        partition: PartitionRef
        error: _errors_pb2.Error
        def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ElectLeadersResponse.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ElectLeadersResponse.Partition, _Mapping]]] = ...) -> None: ...

class AlterReassignmentsRequest(_message.Message):
    __slots__ = ("partitions", "request_id")
    class Partition(_message.Message):
        __slots__ = ("partition", "replicas")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        partition: PartitionRef
        replicas: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., replicas: _Optional[_Iterable[int]] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[AlterReassignmentsRequest.Partition]
    request_id: bytes
    def __init__(self, partitions: _Optional[_Iterable[_Union[AlterReassignmentsRequest.Partition, _Mapping]]] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class AlterReassignmentsResponse(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("partition", "error")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        partition: PartitionRef
        error: _errors_pb2.Error
        def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[AlterReassignmentsResponse.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[AlterReassignmentsResponse.Partition, _Mapping]]] = ...) -> None: ...

class ListReassignmentsRequest(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionRef]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionRef, _Mapping]]] = ...) -> None: ...

class ListReassignmentsResponse(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("partition", "replicas", "adding", "removing")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        REPLICAS_FIELD_NUMBER: _ClassVar[int]
        ADDING_FIELD_NUMBER: _ClassVar[int]
        REMOVING_FIELD_NUMBER: _ClassVar[int]
        partition: PartitionRef
        replicas: _containers.RepeatedScalarFieldContainer[int]
        adding: _containers.RepeatedScalarFieldContainer[int]
        removing: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., replicas: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[ListReassignmentsResponse.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[ListReassignmentsResponse.Partition, _Mapping]]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("cluster_id", "controller_id", "controller_epoch", "brokers", "controllers", "metadata_version")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CONTROLLERS_FIELD_NUMBER: _ClassVar[int]
    METADATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    controller_id: int
    controller_epoch: int
    brokers: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.BrokerRegistered]
    controllers: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.ControllerRegistered]
    metadata_version: int
    def __init__(self, cluster_id: _Optional[str] = ..., controller_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[_metadata_pb2.BrokerRegistered, _Mapping]]] = ..., controllers: _Optional[_Iterable[_Union[_metadata_pb2.ControllerRegistered, _Mapping]]] = ..., metadata_version: _Optional[int] = ...) -> None: ...

class UnregisterBrokerRequest(_message.Message):
    __slots__ = ("broker_id", "request_id")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    request_id: bytes
    def __init__(self, broker_id: _Optional[int] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class UnregisterBrokerResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class DescribeFeaturesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeFeaturesResponse(_message.Message):
    __slots__ = ("features",)
    class Feature(_message.Message):
        __slots__ = ("name", "level", "min_supported", "max_supported")
        NAME_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        MIN_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
        MAX_SUPPORTED_FIELD_NUMBER: _ClassVar[int]
        name: str
        level: int
        min_supported: int
        max_supported: int
        def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., min_supported: _Optional[int] = ..., max_supported: _Optional[int] = ...) -> None: ...
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[DescribeFeaturesResponse.Feature]
    def __init__(self, features: _Optional[_Iterable[_Union[DescribeFeaturesResponse.Feature, _Mapping]]] = ...) -> None: ...

class UpdateFeaturesRequest(_message.Message):
    __slots__ = ("features", "validate_only", "request_id")
    class Feature(_message.Message):
        __slots__ = ("name", "level", "allow_downgrade")
        NAME_FIELD_NUMBER: _ClassVar[int]
        LEVEL_FIELD_NUMBER: _ClassVar[int]
        ALLOW_DOWNGRADE_FIELD_NUMBER: _ClassVar[int]
        name: str
        level: int
        allow_downgrade: bool
        def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ..., allow_downgrade: _Optional[bool] = ...) -> None: ...
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedCompositeFieldContainer[UpdateFeaturesRequest.Feature]
    validate_only: bool
    request_id: bytes
    def __init__(self, features: _Optional[_Iterable[_Union[UpdateFeaturesRequest.Feature, _Mapping]]] = ..., validate_only: _Optional[bool] = ..., request_id: _Optional[bytes] = ...) -> None: ...

class UpdateFeaturesResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class DescribeQuorumRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeQuorumResponse(_message.Message):
    __slots__ = ("node_id", "leader_id", "controller_epoch", "term", "last_index", "commit_index", "applied_index", "metadata_version", "voters", "snapshot_version", "snapshot_bytes", "snapshot_age_ms", "journal_entries", "journal_bytes", "snapshots_failed")
    class Voter(_message.Message):
        __slots__ = ("node_id", "host", "port", "connected", "match_index", "lag", "last_contact_ms")
        NODE_ID_FIELD_NUMBER: _ClassVar[int]
        HOST_FIELD_NUMBER: _ClassVar[int]
        PORT_FIELD_NUMBER: _ClassVar[int]
        CONNECTED_FIELD_NUMBER: _ClassVar[int]
        MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
        LAG_FIELD_NUMBER: _ClassVar[int]
        LAST_CONTACT_MS_FIELD_NUMBER: _ClassVar[int]
        node_id: int
        host: str
        port: int
        connected: bool
        match_index: int
        lag: int
        last_contact_ms: int
        def __init__(self, node_id: _Optional[int] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., connected: _Optional[bool] = ..., match_index: _Optional[int] = ..., lag: _Optional[int] = ..., last_contact_ms: _Optional[int] = ...) -> None: ...
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_ID_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    METADATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_FAILED_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    leader_id: int
    controller_epoch: int
    term: int
    last_index: int
    commit_index: int
    applied_index: int
    metadata_version: int
    voters: _containers.RepeatedCompositeFieldContainer[DescribeQuorumResponse.Voter]
    snapshot_version: int
    snapshot_bytes: int
    snapshot_age_ms: int
    journal_entries: int
    journal_bytes: int
    snapshots_failed: int
    def __init__(self, node_id: _Optional[int] = ..., leader_id: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., term: _Optional[int] = ..., last_index: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., metadata_version: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[DescribeQuorumResponse.Voter, _Mapping]]] = ..., snapshot_version: _Optional[int] = ..., snapshot_bytes: _Optional[int] = ..., snapshot_age_ms: _Optional[int] = ..., journal_entries: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., snapshots_failed: _Optional[int] = ...) -> None: ...
