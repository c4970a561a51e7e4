"""What an operation of the controller comes to: records to agree on, and the answer once they are.

An operation is a function of the image and the request. It changes nothing; the caller replays the records
onto its image, proposes them to the quorum, and lets the answer go when they are committed. An operation with
no records may be answered at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.v1.errors_pb2 import Error
from tailrace.v1.metadata_pb2 import MetadataRecord

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Response]):
    """`records` are applied together or not at all."""

    response: Response
    records: list[MetadataRecord] = field(default_factory=list)


def error_of(code: ErrorCode, message: str = "") -> Error:
    return Error(code=int(code), message=message or code.summary)  # type: ignore[arg-type]


def error_from(failure: TailraceError) -> Error:
    return error_of(failure.code, failure.args[0])
