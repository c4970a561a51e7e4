"""Markers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import Marker, decode_markers, encode_marker
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch


@pytest.mark.parametrize("commit", [True, False])
def test_marker_names_all_producers_when_decoded(commit: bool) -> None:
    data = encode_marker(
        commit=commit,
        producers=[(1, 0), (2**63 - 1, 2**31 - 1)],
        coordinator_epoch=6,
        timestamp=1000,
        base_offset=8,
    )
    header = check_batch(data)
    assert header.is_control
    assert not header.has_producer
    assert (header.base_offset, header.last_offset, header.max_timestamp) == (8, 9, 1000)
    assert decode_markers(Batch(data)) == (
        Marker(1, 0, 6, commit),
        Marker(2**63 - 1, 2**31 - 1, 6, commit),
    )


def test_marker_has_the_bytes_of_the_format_when_encoded() -> None:
    batch = Batch(encode_marker(commit=True, producers=[(258, 3)], coordinator_epoch=4, timestamp=0))
    assert batch.keys() == [b"\0\0\1"]
    assert batch.values() == [bytes.fromhex("02010000000000000300000004000000")]


def test_markers_are_none_when_the_cleaner_removed_them() -> None:
    batch = Batch(encode_marker(commit=True, producers=[(1, 0)], coordinator_epoch=0, timestamp=0))
    assert decode_markers(Batch(batch.select(np.zeros(1, np.bool_), delete_horizon=5))) == ()


@pytest.mark.parametrize(
    ("producers", "epoch"), [([], 0), ([(2**63, 0)], 0), ([(1, 2**31)], 0), ([(1, 0)], 2**31), ([(1,)], 0)]
)
def test_marker_is_refused_when_a_field_has_no_room(producers: Any, epoch: int) -> None:
    with pytest.raises(TailraceError, match="marker") as caught:
        encode_marker(commit=True, producers=producers, coordinator_epoch=epoch, timestamp=0)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"control": False}, ErrorCode.CORRUPT_BATCH),
        ({"producer_id": 3}, ErrorCode.CORRUPT_BATCH),
        ({"keys": None}, ErrorCode.CORRUPT_BATCH),
        ({"keys": [b"\0\0"]}, ErrorCode.CORRUPT_BATCH),
        ({"values": [None]}, ErrorCode.CORRUPT_BATCH),
        ({"values": [bytes(15)]}, ErrorCode.CORRUPT_BATCH),
        ({"keys": [b"\1\0\1"]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"keys": [b"\0\0\2"]}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_decode_markers_names_the_error_when_the_batch_is_no_marker(fields: Any, code: ErrorCode) -> None:
    arguments = {"keys": [b"\0\0\1"], "values": [bytes(16)], "timestamps": 0, "control": True, **fields}
    with pytest.raises(TailraceError) as caught:
        decode_markers(Batch(encode_batch(**arguments)))
    assert caught.value.code is code
