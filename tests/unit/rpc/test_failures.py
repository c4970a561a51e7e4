"""Errors between both ends: what travels, and what a caller makes of it."""

from __future__ import annotations

import grpc
import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.failures import ERROR_CODE_KEY, Failure, RemoteError, error_of, failure_of


@pytest.mark.parametrize("code", list(ErrorCode))
def test_error_is_the_same_at_the_caller_when_it_has_any_code(code: ErrorCode) -> None:
    raised = error_of(failure_of(TailraceError(code, "what was wrong")), "somewhere")
    assert raised.code is code
    assert raised.args == ("what was wrong",)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_status_is_never_ok_when_there_is_an_error(code: ErrorCode) -> None:
    assert failure_of(TailraceError(code)).status not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED)


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (grpc.StatusCode.UNAVAILABLE, "refused", ErrorCode.CONNECTION_LOST),
        (grpc.StatusCode.CANCELLED, "", ErrorCode.CONNECTION_LOST),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", ErrorCode.REQUEST_TIMED_OUT),
        (grpc.StatusCode.UNIMPLEMENTED, "", ErrorCode.UNSUPPORTED_VERSION),
        (grpc.StatusCode.UNAUTHENTICATED, "", ErrorCode.AUTHENTICATION_FAILED),
        (grpc.StatusCode.PERMISSION_DENIED, "", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls", ErrorCode.THROTTLING_QUOTA_EXCEEDED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "message larger than max (9 vs. 4)", ErrorCode.INVALID_REQUEST),
        (grpc.StatusCode.INTERNAL, "RST_STREAM", ErrorCode.UNKNOWN_SERVER_ERROR),
        (grpc.StatusCode.UNKNOWN, "", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failure_of_the_network_gets_a_code_when_the_other_end_gave_none(
    status: grpc.StatusCode, message: str, code: ErrorCode
) -> None:
    raised = error_of(Failure(status, message), "host:1 /path")
    assert raised.code is code
    assert not isinstance(raised, RemoteError)
    assert str(raised).startswith(f"{code.name}: host:1 /path: ")


@pytest.mark.parametrize("number", ["999999", "2"])
def test_code_is_an_unknown_error_when_its_number_is_not_known_here(number: str) -> None:
    failure = Failure(grpc.StatusCode.UNAVAILABLE, "new kind of error", ((ERROR_CODE_KEY, number),))
    raised = error_of(failure, "somewhere")
    assert raised.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "new kind of error" in str(raised)


def test_code_is_not_believed_when_it_is_no_number() -> None:
    failure = Failure(grpc.StatusCode.UNAVAILABLE, "", ((ERROR_CODE_KEY, "\u0661x"),))
    assert error_of(failure, "somewhere").code is ErrorCode.CONNECTION_LOST


def test_trailers_stay_small_when_an_error_says_much() -> None:
    error = RemoteError(ErrorCode.INVALID_REQUEST, "m" * 100_000, {"a": "b", "much": "x" * 100_000, "c": "d"})
    failure = failure_of(error)
    assert len(failure.message) == 2_000
    assert sum(len(key) + len(value) for key, value in failure.metadata) < 2_200
    raised = error_of(failure, "somewhere")
    assert isinstance(raised, RemoteError)
    assert raised.error_metadata["a"] == "b"
    assert "much" not in raised.error_metadata
