"""The error table: equal to the protobuf enum, and carried whole by its exception."""

from __future__ import annotations

import pickle

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.v1 import errors_pb2

PREFIX = "ERROR_CODE_"


def test_error_table_equals_the_protobuf_enum_in_names_and_numbers() -> None:
    on_the_wire = {name.removeprefix(PREFIX): number for name, number in errors_pb2.ErrorCode.items()}
    assert on_the_wire == {code.name: code.value for code in ErrorCode}


def test_protobuf_error_names_carry_the_enum_name_as_prefix() -> None:
    assert [name for name in errors_pb2.ErrorCode.keys() if not name.startswith(PREFIX)] == []  # noqa: SIM118


def test_error_numbers_are_distinct_so_that_no_name_is_an_alias() -> None:
    assert len(ErrorCode.__members__) == len({code.value for code in ErrorCode})


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_error_code_has_a_summary_and_is_retriable_when_metadata_must_be_refreshed(code: ErrorCode) -> None:
    assert code.summary
    assert not code.summary.endswith(".")
    assert code.retriable or not code.refresh_metadata


def test_error_message_is_the_summary_when_none_is_given() -> None:
    error = TailraceError(ErrorCode.NOT_LEADER)
    assert str(error) == f"NOT_LEADER: {ErrorCode.NOT_LEADER.summary}"
    assert error.retriable
    assert error.refresh_metadata


def test_error_keeps_code_and_message_when_pickled() -> None:
    error = pickle.loads(pickle.dumps(TailraceError(ErrorCode.CORRUPT_BATCH, "byte 17 is wrong")))
    assert isinstance(error, TailraceError)
    assert error.code is ErrorCode.CORRUPT_BATCH
    assert str(error) == "CORRUPT_BATCH: byte 17 is wrong"
    assert not error.retriable
