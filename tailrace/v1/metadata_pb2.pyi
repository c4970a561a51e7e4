from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigResourceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONFIG_RESOURCE_TYPE_UNSPECIFIED: _ClassVar[ConfigResourceType]
    CONFIG_RESOURCE_TYPE_TOPIC: _ClassVar[ConfigResourceType]
    CONFIG_RESOURCE_TYPE_BROKER: _ClassVar[ConfigResourceType]
CONFIG_RESOURCE_TYPE_UNSPECIFIED: ConfigResourceType
CONFIG_RESOURCE_TYPE_TOPIC: ConfigResourceType
CONFIG_RESOURCE_TYPE_BROKER: ConfigResourceType

class MetadataBatch(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[MetadataRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[MetadataRecord, _Mapping]]] = ...) -> None: ...

class MetadataSnapshot(_message.Message):
    __slots__ = ("version", "controller_epoch", "records")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    version: int
    controller_epoch: int
    records: _containers.RepeatedCompositeFieldContainer[MetadataRecord]
    def __init__(self, version: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., records: _Optional[_Iterable[_Union[MetadataRecord, _Mapping]]] = ...) -> None: ...

class MetadataRecord(_message.Message):
    __slots__ = ("cluster_created", "feature_level", "controller_registered", "broker_registered", "broker_changed", "broker_unregistered", "topic_created", "topic_deleted", "partition", "config", "producer_ids_reserved", "request_done", "broker_epochs_used")
    CLUSTER_CREATED_FIELD_NUMBER: _ClassVar[int]
    FEATURE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    BROKER_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    BROKER_CHANGED_FIELD_NUMBER: _ClassVar[int]
    BROKER_UNREGISTERED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_DELETED_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_RESERVED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_DONE_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCHS_USED_FIELD_NUMBER: _ClassVar[int]
    cluster_created: ClusterCreated
    feature_level: FeatureLevel
    controller_registered: ControllerRegistered
    broker_registered: BrokerRegistered
    broker_changed: BrokerChanged
    broker_unregistered: BrokerUnregistered
    topic_created: TopicCreated
    topic_deleted: TopicDeleted
    partition: PartitionRecord
    config: ConfigRecord
    producer_ids_reserved: ProducerIdsReserved
    request_done: RequestDone
    broker_epochs_used: BrokerEpochsUsed
    def __init__(self, cluster_created: _Optional[_Union[ClusterCreated, _Mapping]] = ..., feature_level: _Optional[_Union[FeatureLevel, _Mapping]] = ..., controller_registered: _Optional[_Union[ControllerRegistered, _Mapping]] = ..., broker_registered: _Optional[_Union[BrokerRegistered, _Mapping]] = ..., broker_changed: _Optional[_Union[BrokerChanged, _Mapping]] = ..., broker_unregistered: _Optional[_Union[BrokerUnregistered, _Mapping]] = ..., topic_created: _Optional[_Union[TopicCreated, _Mapping]] = ..., topic_deleted: _Optional[_Union[TopicDeleted, _Mapping]] = ..., partition: _Optional[_Union[PartitionRecord, _Mapping]] = ..., config: _Optional[_Union[ConfigRecord, _Mapping]] = ..., producer_ids_reserved: _Optional[_Union[ProducerIdsReserved, _Mapping]] = ..., request_done: _Optional[_Union[RequestDone, _Mapping]] = ..., broker_epochs_used: _Optional[_Union[BrokerEpochsUsed, _Mapping]] = ...) -> None: ...

class ClusterCreated(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    def __init__(self, cluster_id: _Optional[str] = ...) -> None: ...

class FeatureLevel(_message.Message):
    __slots__ = ("name", "level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    level: int
    def __init__(self, name: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class FeatureRange(_message.Message):
    __slots__ = ("name", "min_level", "max_level")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    name: str
    min_level: int
    max_level: int
    def __init__(self, name: _Optional[str] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("listener", "host", "port", "tls")
    LISTENER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    TLS_FIELD_NUMBER: _ClassVar[int]
    listener: str
    host: str
    port: int
    tls: bool
    def __init__(self, listener: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., tls: _Optional[bool] = ...) -> None: ...

class ControllerRegistered(_message.Message):
    __slots__ = ("node_id", "incarnation", "endpoints", "features")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    features: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    def __init__(self, node_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[FeatureRange, _Mapping]]] = ...) -> None: ...

class LogDir(_message.Message):
    __slots__ = ("id", "online")
    ID_FIELD_NUMBER: _ClassVar[int]
    ONLINE_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    online: bool
    def __init__(self, id: _Optional[bytes] = ..., online: _Optional[bool] = ...) -> None: ...

class BrokerRegistered(_message.Message):
    __slots__ = ("broker_id", "incarnation", "broker_epoch", "endpoints", "rack", "host", "log_dirs", "features", "fenced", "shutting_down")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation: bytes
    broker_epoch: int
    endpoints: _containers.RepeatedCompositeFieldContainer[Endpoint]
    rack: str
    host: str
    log_dirs: _containers.RepeatedCompositeFieldContainer[LogDir]
    features: _containers.RepeatedCompositeFieldContainer[FeatureRange]
    fenced: bool
    shutting_down: bool
    def __init__(self, broker_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., broker_epoch: _Optional[int] = ..., endpoints: _Optional[_Iterable[_Union[Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ..., log_dirs: _Optional[_Iterable[_Union[LogDir, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[FeatureRange, _Mapping]]] = ..., fenced: _Optional[bool] = ..., shutting_down: _Optional[bool] = ...) -> None: ...

class BrokerChanged(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "fenced", "shutting_down", "log_dirs")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    fenced: bool
    shutting_down: bool
    log_dirs: _containers.RepeatedCompositeFieldContainer[LogDir]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., fenced: _Optional[bool] = ..., shutting_down: _Optional[bool] = ..., log_dirs: _Optional[_Iterable[_Union[LogDir, _Mapping]]] = ...) -> None: ...

class BrokerEpochsUsed(_message.Message):
    __slots__ = ("next_broker_epoch",)
    NEXT_BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    next_broker_epoch: int
    def __init__(self, next_broker_epoch: _Optional[int] = ...) -> None: ...

class BrokerUnregistered(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class TopicCreated(_message.Message):
    __slots__ = ("topic_id", "name")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    name: str
    def __init__(self, topic_id: _Optional[bytes] = ..., name: _Optional[str] = ...) -> None: ...

class TopicDeleted(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    def __init__(self, topic_id: _Optional[bytes] = ...) -> None: ...

class PartitionRecord(_message.Message):
    __slots__ = ("topic_id", "partition", "replicas", "isr", "leader", "leader_epoch", "partition_epoch", "elr", "last_known_leader", "adding", "removing", "recovering", "directories")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    ISR_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ELR_FIELD_NUMBER: _ClassVar[int]
    LAST_KNOWN_LEADER_FIELD_NUMBER: _ClassVar[int]
    ADDING_FIELD_NUMBER: _ClassVar[int]
    REMOVING_FIELD_NUMBER: _ClassVar[int]
    RECOVERING_FIELD_NUMBER: _ClassVar[int]
    DIRECTORIES_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    replicas: _containers.RepeatedScalarFieldContainer[int]
    isr: _containers.RepeatedScalarFieldContainer[int]
    leader: int
    leader_epoch: int
    partition_epoch: int
    elr: _containers.RepeatedScalarFieldContainer[int]
    last_known_leader: _containers.RepeatedScalarFieldContainer[int]
    adding: _containers.RepeatedScalarFieldContainer[int]
    removing: _containers.RepeatedScalarFieldContainer[int]
    recovering: bool
    directories: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., replicas: _Optional[_Iterable[int]] = ..., isr: _Optional[_Iterable[int]] = ..., leader: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., elr: _Optional[_Iterable[int]] = ..., last_known_leader: _Optional[_Iterable[int]] = ..., adding: _Optional[_Iterable[int]] = ..., removing: _Optional[_Iterable[int]] = ..., recovering: _Optional[bool] = ..., directories: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ConfigRecord(_message.Message):
    __slots__ = ("type", "name", "key", "value")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: ConfigResourceType
    name: str
    key: str
    value: str
    def __init__(self, type: _Optional[_Union[ConfigResourceType, str]] = ..., name: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class ProducerIdsReserved(_message.Message):
    __slots__ = ("next_producer_id",)
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    next_producer_id: int
    def __init__(self, next_producer_id: _Optional[int] = ...) -> None: ...

class RequestDone(_message.Message):
    __slots__ = ("request_id", "response")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    request_id: bytes
    response: bytes
    def __init__(self, request_id: _Optional[bytes] = ..., response: _Optional[bytes] = ...) -> None: ...
