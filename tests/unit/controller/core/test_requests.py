"""Requests with ids: the answer is kept with the change, and given again."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import REQUESTS_KEPT
from tailrace.cluster.common.image_records import records_of
from tailrace.cluster.common.replay import image_from_records
from tailrace.cluster.controller.core.requests import LONGEST_REQUEST_ID, already_done, done_record
from tailrace.v1 import admin_pb2 as admin
from tests.support.metadata import apply, image_with

EMPTY = image_with()
ANSWER = admin.CreatePartitionsResponse(topics=[admin.CreatePartitionsResponse.Topic(name="t")])


def test_answer_is_given_again_when_the_request_was_done() -> None:
    image = apply(EMPTY, [done_record(b"id", ANSWER)])
    assert already_done(image, b"id", admin.CreatePartitionsResponse) == ANSWER
    assert already_done(image, b"other", admin.CreatePartitionsResponse) is None


def test_answer_is_given_again_when_the_image_came_from_a_snapshot() -> None:
    image = apply(EMPTY, [done_record(b"id", ANSWER)])
    loaded = image_from_records(records_of(image), version=image.version, controller_epoch=1)
    assert already_done(loaded, b"id", admin.CreatePartitionsResponse) == ANSWER


def test_answer_is_given_again_when_it_is_empty() -> None:
    image = apply(EMPTY, [done_record(b"id", admin.UnregisterBrokerResponse())])
    assert already_done(image, b"id", admin.UnregisterBrokerResponse) == admin.UnregisterBrokerResponse()


def test_request_is_new_when_it_has_no_id() -> None:
    image = apply(EMPTY, [done_record(b"", ANSWER)])
    assert already_done(image, b"", admin.CreatePartitionsResponse) is None


def test_request_is_refused_when_its_id_was_used_for_another_operation() -> None:
    image = apply(EMPTY, [done_record(b"id", ANSWER)])
    with pytest.raises(TailraceError, match="CreatePartitionsResponse") as refused:
        already_done(image, b"id", admin.DeleteTopicsResponse)
    assert refused.value.code is ErrorCode.DUPLICATE_REQUEST


def test_request_is_refused_when_its_id_is_too_long() -> None:
    assert already_done(EMPTY, b"x" * LONGEST_REQUEST_ID, admin.DeleteTopicsResponse) is None
    with pytest.raises(TailraceError) as refused:
        already_done(EMPTY, b"x" * (LONGEST_REQUEST_ID + 1), admin.DeleteTopicsResponse)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_request_is_forgotten_when_many_others_were_done_since() -> None:
    image = apply(EMPTY, [done_record(b"first", ANSWER)])
    others = [done_record(number.to_bytes(4, "big"), ANSWER) for number in range(REQUESTS_KEPT - 1)]
    image = apply(image, others)
    assert already_done(image, b"first", admin.CreatePartitionsResponse) == ANSWER
    image = apply(image, [done_record(b"last", ANSWER)])
    assert already_done(image, b"first", admin.CreatePartitionsResponse) is None
    assert already_done(image, b"last", admin.CreatePartitionsResponse) == ANSWER
