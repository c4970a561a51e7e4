"""The errors in answers, as the codes that tests name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tailrace.cluster.common.errors import ErrorCode
from tailrace.v1.errors_pb2 import Error


class Answer(Protocol):
    @property
    def error(self) -> Error: ...


def code_of(answer: Answer) -> ErrorCode:
    return next(code for code in ErrorCode if code == int(answer.error.code))


def codes_of(answers: Iterable[Answer]) -> list[ErrorCode]:
    return [code_of(one) for one in answers]
