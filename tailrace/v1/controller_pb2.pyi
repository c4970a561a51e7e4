from tailrace.v1 import errors_pb2 as _errors_pb2
from tailrace.v1 import metadata_pb2 as _metadata_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RegisterControllerResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class RegisterBrokerRequest(_message.Message):
    __slots__ = ("cluster_id", "broker_id", "incarnation", "endpoints", "rack", "host", "log_dirs", "features", "clean_shutdown_epoch", "flushes_to_os")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CLEAN_SHUTDOWN_EPOCH_FIELD_NUMBER: _ClassVar[int]
    FLUSHES_TO_OS_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    broker_id: int
    incarnation: bytes
    endpoints: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.Endpoint]
    rack: str
    host: str
    log_dirs: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.LogDir]
    features: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.FeatureRange]
    clean_shutdown_epoch: int
    flushes_to_os: bool
    def __init__(self, cluster_id: _Optional[str] = ..., broker_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., endpoints: _Optional[_Iterable[_Union[_metadata_pb2.Endpoint, _Mapping]]] = ..., rack: _Optional[str] = ..., host: _Optional[str] = ..., log_dirs: _Optional[_Iterable[_Union[_metadata_pb2.LogDir, _Mapping]]] = ..., features: _Optional[_Iterable[_Union[_metadata_pb2.FeatureRange, _Mapping]]] = ..., clean_shutdown_epoch: _Optional[int] = ..., flushes_to_os: _Optional[bool] = ...) -> None: ...

class RegisterBrokerResponse(_message.Message):
    __slots__ = ("error", "broker_epoch", "cluster_id", "metadata_version")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    broker_epoch: int
    cluster_id: str
    metadata_version: int
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., broker_epoch: _Optional[int] = ..., cluster_id: _Optional[str] = ..., metadata_version: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "metadata_version", "wants_fence", "wants_shutdown", "offline_log_dirs")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_VERSION_FIELD_NUMBER: _ClassVar[int]
    WANTS_FENCE_FIELD_NUMBER: _ClassVar[int]
    WANTS_SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    OFFLINE_LOG_DIRS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    metadata_version: int
    wants_fence: bool
    wants_shutdown: bool
    offline_log_dirs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., metadata_version: _Optional[int] = ..., wants_fence: _Optional[bool] = ..., wants_shutdown: _Optional[bool] = ..., offline_log_dirs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("error", "fenced", "shutting_down", "may_stop", "controller_epoch", "heartbeat_interval_ms", "session_timeout_ms")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    SHUTTING_DOWN_FIELD_NUMBER: _ClassVar[int]
    MAY_STOP_FIELD_NUMBER: _ClassVar[int]
    CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    fenced: bool
    shutting_down: bool
    may_stop: bool
    controller_epoch: int
    heartbeat_interval_ms: int
    session_timeout_ms: int
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., fenced: _Optional[bool] = ..., shutting_down: _Optional[bool] = ..., may_stop: _Optional[bool] = ..., controller_epoch: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., session_timeout_ms: _Optional[int] = ...) -> None: ...

class FollowMetadataRequest(_message.Message):
    __slots__ = ("from_version", "cluster_id", "node_id")
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    from_version: int
    cluster_id: str
    node_id: int
    def __init__(self, from_version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., node_id: _Optional[int] = ...) -> None: ...

class MetadataUpdate(_message.Message):
    __slots__ = ("snapshot", "batches")
    class Batch(_message.Message):
        __slots__ = ("version", "controller_epoch", "batch")
        VERSION_FIELD_NUMBER: _ClassVar[int]
        CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        BATCH_FIELD_NUMBER: _ClassVar[int]
        version: int
        controller_epoch: int
        batch: _metadata_pb2.MetadataBatch
        def __init__(self, version: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., batch: _Optional[_Union[_metadata_pb2.MetadataBatch, _Mapping]] = ...) -> None: ...
    class SnapshotPart(_message.Message):
        __slots__ = ("version", "controller_epoch", "records", "first", "last")
        VERSION_FIELD_NUMBER: _ClassVar[int]
        CONTROLLER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        RECORDS_FIELD_NUMBER: _ClassVar[int]
        FIRST_FIELD_NUMBER: _ClassVar[int]
        LAST_FIELD_NUMBER: _ClassVar[int]
        version: int
        controller_epoch: int
        records: _containers.RepeatedCompositeFieldContainer[_metadata_pb2.MetadataRecord]
        first: bool
        last: bool
        def __init__(self, version: _Optional[int] = ..., controller_epoch: _Optional[int] = ..., records: _Optional[_Iterable[_Union[_metadata_pb2.MetadataRecord, _Mapping]]] = ..., first: _Optional[bool] = ..., last: _Optional[bool] = ...) -> None: ...
    class Batches(_message.Message):
        __slots__ = ("batches",)
        BATCHES_FIELD_NUMBER: _ClassVar[int]
        batches: _containers.RepeatedCompositeFieldContainer[MetadataUpdate.Batch]
        def __init__(self, batches: _Optional[_Iterable[_Union[MetadataUpdate.Batch, _Mapping]]] = ...) -> None: ...
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    snapshot: MetadataUpdate.SnapshotPart
    batches: MetadataUpdate.Batches
    def __init__(self, snapshot: _Optional[_Union[MetadataUpdate.SnapshotPart, _Mapping]] = ..., batches: _Optional[_Union[MetadataUpdate.Batches, _Mapping]] = ...) -> None: ...

class AlterPartitionsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch", "partitions")
    class Partition(_message.Message):
        __slots__ = ("topic_id", "partition", "leader_epoch", "partition_epoch", "isr", "isr_broker_epochs", "recovered")
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
        PARTITION_EPOCH_FIELD_NUMBER: _ClassVar[int]
        ISR_FIELD_NUMBER: _ClassVar[int]
        ISR_BROKER_EPOCHS_FIELD_NUMBER: _ClassVar[int]
        RECOVERED_FIELD_NUMBER: _ClassVar[int]
        topic_id: bytes
        partition: int
        leader_epoch: int
        partition_epoch: int
        isr: _containers.RepeatedScalarFieldContainer[int]
        isr_broker_epochs: _containers.RepeatedScalarFieldContainer[int]
        recovered: bool
        def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., partition_epoch: _Optional[int] = ..., isr: _Optional[_Iterable[int]] = ..., isr_broker_epochs: _Optional[_Iterable[int]] = ..., recovered: _Optional[bool] = ...) -> None: ...
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionsRequest.Partition]
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionsRequest.Partition, _Mapping]]] = ...) -> None: ...

class AlterPartitionsResponse(_message.Message):
    __slots__ = ("error", "partitions")
    class Partition(_message.Message):
        __slots__ = ("error", "state")
        ERROR_FIELD_NUMBER: _ClassVar[int]
        STATE_FIELD_NUMBER: _ClassVar[int]
        error: _errors_pb2.Error
        state: _metadata_pb2.PartitionRecord
        def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., state: _Optional[_Union[_metadata_pb2.PartitionRecord, _Mapping]] = ...) -> None: ...
    ERROR_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    partitions: _containers.RepeatedCompositeFieldContainer[AlterPartitionsResponse.Partition]
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[AlterPartitionsResponse.Partition, _Mapping]]] = ...) -> None: ...

class AllocateProducerIdsRequest(_message.Message):
    __slots__ = ("broker_id", "broker_epoch")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    broker_epoch: int
    def __init__(self, broker_id: _Optional[int] = ..., broker_epoch: _Optional[int] = ...) -> None: ...

class AllocateProducerIdsResponse(_message.Message):
    __slots__ = ("error", "first_producer_id", "count")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FIRST_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    error: _errors_pb2.Error
    first_producer_id: int
    count: int
    def __init__(self, error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ..., first_producer_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...
