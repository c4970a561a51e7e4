from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RaftHello(_message.Message):
    __slots__ = ("protocol_version", "cluster_id", "voters_digest", "node_id", "target_node_id")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    VOTERS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    cluster_id: str
    voters_digest: bytes
    node_id: int
    target_node_id: int
    def __init__(self, protocol_version: _Optional[int] = ..., cluster_id: _Optional[str] = ..., voters_digest: _Optional[bytes] = ..., node_id: _Optional[int] = ..., target_node_id: _Optional[int] = ...) -> None: ...

class RaftFrames(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, frames: _Optional[_Iterable[bytes]] = ...) -> None: ...
