"""Errors on their way from a handler to the caller: one form for every transport.

A `TailraceError` travels as a gRPC status (so that tools and other languages see something sensible), its own
number in the trailing metadata, its message as the status' text. What the network itself does to a call has
no number, and is given the code that says what a caller can do about it.

An error may carry more for programs, such as who the active controller is: an attribute `error_metadata` with
short texts by name. At the caller it is found on the `RemoteError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import grpc

from tailrace.cluster.common.errors import ErrorCode, TailraceError

ERROR_CODE_KEY = "tailrace-error-code"

# Values travel in binary metadata, which takes any text.
_METADATA_PREFIX, _METADATA_SUFFIX = "tailrace-error-", "-bin"
# Trailers as a whole must stay below gRPC's limit of 8 KiB.
_MAX_MESSAGE = 2_000
_MAX_METADATA = 2_000

_STATUS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: grpc.StatusCode.INTERNAL,
    ErrorCode.INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.UNSUPPORTED_VERSION: grpc.StatusCode.UNIMPLEMENTED,
    ErrorCode.NOT_YET_SUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorCode.REQUEST_TIMED_OUT: grpc.StatusCode.DEADLINE_EXCEEDED,
    ErrorCode.AUTHENTICATION_FAILED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_OF_NETWORK = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.CONNECTION_LOST,
    grpc.StatusCode.CANCELLED: ErrorCode.CONNECTION_LOST,
    grpc.StatusCode.ABORTED: ErrorCode.CONNECTION_LOST,
    grpc.StatusCode.OK: ErrorCode.CONNECTION_LOST,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.AUTHENTICATION_FAILED,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
# How gRPC says that a message was too large; it is told from a quota by its text alone.
_TOO_LARGE = "larger than max"


@runtime_checkable
class CarriesMetadata(Protocol):
    """An error that has more to say to programs."""

    @property
    def error_metadata(self) -> Mapping[str, str]:
        """Names of lower-case letters, digits and dashes."""


class RemoteError(TailraceError):
    """What a handler at the other end raised."""

    def __init__(
        self, code: ErrorCode, message: str = "", error_metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code, message)
        self.error_metadata: Mapping[str, str] = dict(error_metadata or {})

    def __reduce__(self) -> Any:
        return type(self), (self.code, self.args[0], self.error_metadata)


class Failure(NamedTuple):
    """An error as it travels."""

    status: grpc.StatusCode
    message: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()


def failure_of(error: TailraceError) -> Failure:
    extra = error.error_metadata if isinstance(error, CarriesMetadata) else {}
    metadata: list[tuple[str, str | bytes]] = [(ERROR_CODE_KEY, str(int(error.code)))]
    left = _MAX_METADATA
    for name, text in extra.items():
        value = text.encode()
        left -= len(name) + len(value)
        if left >= 0:
            metadata.append((f"{_METADATA_PREFIX}{name}{_METADATA_SUFFIX}", value))
    return Failure(_status_of(error.code), str(error.args[0])[:_MAX_MESSAGE], tuple(metadata))


def error_of(failure: Failure, where: str) -> TailraceError:
    """The error to raise at the caller; `where` says, for failures of the network, what was called."""
    found = dict(failure.metadata)
    number = _text(found.get(ERROR_CODE_KEY, ""))
    if number.isdecimal():
        return RemoteError(_code(int(number)), failure.message, _extra(failure.metadata))
    if failure.status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in failure.message:
        return TailraceError(ErrorCode.INVALID_REQUEST, f"{where}: {failure.message}")
    code = _OF_NETWORK.get(failure.status, ErrorCode.UNKNOWN_SERVER_ERROR)
    return TailraceError(code, f"{where}: {failure.message or code.summary}")


def _status_of(code: ErrorCode) -> grpc.StatusCode:
    if code in _STATUS:
        return _STATUS[code]
    return grpc.StatusCode.UNAVAILABLE if code.retriable else grpc.StatusCode.FAILED_PRECONDITION


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)  # type: ignore[call-arg]
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _extra(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    return {
        key.removeprefix(_METADATA_PREFIX).removesuffix(_METADATA_SUFFIX): _text(value)
        for key, value in metadata
        if key.startswith(_METADATA_PREFIX) and key.endswith(_METADATA_SUFFIX)
    }


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
