from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class IdentifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentifyResponse(_message.Message):
    __slots__ = ("node_id", "incarnation", "cluster_id", "release")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    incarnation: bytes
    cluster_id: str
    release: str
    def __init__(self, node_id: _Optional[int] = ..., incarnation: _Optional[bytes] = ..., cluster_id: _Optional[str] = ..., release: _Optional[str] = ...) -> None: ...
