"""Requests with ids: done once, however often they are sent.

The answer to such a request is kept with its records, in the same entry, so it is there exactly when they
are, also after another controller took over. The newest answers are kept (`replay` drops the oldest); what is
asked again after very many other requests is done again, as if it had no id.

    if (done := already_done(image, request.request_id, CreateTopicsResponse)) is not None:
        return Decision(done)
    ...
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.v1.metadata_pb2 import MetadataRecord, RequestDone

LONGEST_REQUEST_ID = 64

AnyResponse = TypeVar("AnyResponse", bound=Message)


def already_done(
    image: ClusterImage, request_id: bytes, response_type: type[AnyResponse]
) -> AnyResponse | None:
    """The answer that the request got when it was done; None for a new one and for one without an id.

    Raises INVALID_REQUEST for an id that is too long, and DUPLICATE_REQUEST when the id was used for an
    operation of another kind.
    """
    if not request_id:
        return None
    if len(request_id) > LONGEST_REQUEST_ID:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"the request's id has {len(request_id)} bytes; use {LONGEST_REQUEST_ID} or fewer",
        )
    kept = image.requests.get(request_id)
    if kept is None:
        return None
    kind, _, answer = kept.partition(b"\0")
    if kind == _kind_of(response_type):
        try:
            return response_type.FromString(answer)
        except DecodeError as problem:  # Written by us; only a damaged state could bring this about.
            raise TailraceError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"a kept answer is damaged: {problem}"
            ) from None
    raise TailraceError(
        ErrorCode.DUPLICATE_REQUEST,
        f"the request id {request_id.hex()} was used before, for an operation that answers with "
        f"{kind.decode('ascii', 'replace')}; give each request an id of its own",
    )


def done_record(request_id: bytes, response: Message) -> MetadataRecord:
    """Goes into the entry with the records of the operation that it answers."""
    kept = _kind_of(type(response)) + b"\0" + response.SerializeToString(deterministic=True)
    return MetadataRecord(request_done=RequestDone(request_id=request_id, response=kept))


def _kind_of(response_type: type[Message]) -> bytes:
    return str(response_type.DESCRIPTOR.name).encode("ascii")
