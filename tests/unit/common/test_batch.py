"""The header, its checksums, and what check_batch refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailrace.cluster.common.batch import (
    HEADER_SIZE,
    LEADER_PART_SIZE,
    MAX_BASE_OFFSET,
    BatchHeader,
    check_batch,
    leader_part,
    parse_header,
    restamp,
)
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tests.vectors.forge import forge


def small_batch() -> bytes:
    return encode_batch(
        values=[b"one", None, b"three"],
        keys=[b"a", b"b", b"c"],
        timestamps=[1000, 1300, 1001],
        headers=[[("h", b"x")], [], [("h", None), ("i", b"")]],
        producer_id=7,
        producer_epoch=2,
        base_sequence=2**31 - 2,
        base_offset=40,
    )


def refused(data: bytes) -> TailraceError:
    with pytest.raises(TailraceError) as caught:
        check_batch(data)
    return caught.value


def test_header_is_92_bytes_in_the_order_of_the_format_when_parsed() -> None:
    data = forge(
        {4: (0, 3, b""), 13: (0, 6, b"onetwo")},
        base_offset=1,
        leader_epoch=3,
        append_timestamp=4,
        sync_mark=5,
        attributes=0x10,
        record_count=2,
        last_offset_delta=9,
        base_timestamp=10,
        max_timestamp=11,
        producer_id=12,
        producer_epoch=13,
        base_sequence=14,
        delete_horizon=15,
    )
    header = check_batch(data)
    assert header[:5] == (1, len(data), 3, 4, 5)
    assert header[7:] == (1, 0x10, 1 << 4 | 1 << 13, 2, 9, 10, 11, 12, 13, 14, 15, 6)
    assert len(data) == HEADER_SIZE + 2 * 5 + 6


def test_header_properties_follow_from_the_fields_when_read() -> None:
    header = check_batch(small_batch())
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert header.codec == 0
    assert not header.is_transactional
    assert not header.is_control
    assert header.has_producer
    assert header.last_sequence == 0  # sequences wrap around at 2**31
    assert header.largest_timestamp == 1300
    assert header._replace(append_timestamp=9).largest_timestamp == 9
    assert header.all_keys_present
    assert header._replace(base_sequence=-1).last_sequence == -1
    assert not header._replace(producer_id=-1).has_producer


@pytest.mark.parametrize(
    ("keys", "present"), [(None, False), ([b"a", None], False), ([b"a", b""], True), ([None, None], False)]
)
def test_all_keys_present_is_known_from_the_header_when_keys_are_null_or_not(
    keys: list[bytes | None] | None, present: bool
) -> None:
    header = check_batch(encode_batch(values=[b"1", b"2"], keys=keys, timestamps=0))
    assert header.all_keys_present is present


def test_all_keys_present_holds_when_there_are_no_records() -> None:
    emptied = Batch(encode_batch(values=[b"v"], timestamps=0)).select(np.zeros(1, np.bool_))
    assert check_batch(emptied).all_keys_present


def test_check_batch_accepts_any_buffer_and_position_when_the_batch_is_whole() -> None:
    data = small_batch()
    padded = b"\xff" * 13 + data + b"\xff" * 7
    for buffer in (padded, bytearray(padded), memoryview(padded), memoryview(bytearray(padded))):
        assert check_batch(buffer, 13) == check_batch(data)


def test_check_batch_checks_large_batches_through_a_view_when_given_any_buffer() -> None:
    data = encode_batch(values=[b"v" * 50_000], timestamps=0)
    broken = bytearray(data)
    broken[-1] ^= 1
    for buffer in (data, bytearray(data), memoryview(data)):
        assert check_batch(buffer).size == len(data)
    for buffer in (bytes(broken), broken, memoryview(broken)):
        with pytest.raises(TailraceError, match="checksum"):
            check_batch(buffer)


def test_check_batch_detects_every_single_bit_flip_when_the_batch_is_small() -> None:
    data = small_batch()
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        code = refused(bytes(flipped)).code
        assert code in (ErrorCode.CORRUPT_BATCH, ErrorCode.UNSUPPORTED_VERSION), bit


def test_check_batch_refuses_every_truncation_when_bytes_are_missing() -> None:
    data = small_batch()
    for length in range(len(data)):
        error = refused(data[:length])
        assert error.code is ErrorCode.CORRUPT_BATCH
        assert "cut off" in str(error)


def test_parse_header_needs_no_more_than_the_header_when_the_rest_is_missing() -> None:
    data = small_batch()
    assert parse_header(data[:HEADER_SIZE]) == check_batch(data)
    assert isinstance(parse_header(memoryview(data)[:HEADER_SIZE]), BatchHeader)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"header_crc": 1}, ErrorCode.CORRUPT_BATCH, "header checksum 0x00000001"),
        ({"crc": 1}, ErrorCode.CORRUPT_BATCH, "checksum 0x00000001"),
        ({"version": 0}, ErrorCode.UNSUPPORTED_VERSION, "version 0"),
        ({"version": 2}, ErrorCode.UNSUPPORTED_VERSION, "version 2"),
        ({"size": 91}, ErrorCode.CORRUPT_BATCH, "size 91"),
        ({"size": 2**31}, ErrorCode.CORRUPT_BATCH, "size 2147483648"),
        ({"size": 2**31 - 1}, ErrorCode.CORRUPT_BATCH, "cut off"),
        ({"base_offset": -1}, ErrorCode.CORRUPT_BATCH, "base offset -1"),
        ({"base_offset": MAX_BASE_OFFSET + 1}, ErrorCode.CORRUPT_BATCH, "base offset"),
        ({"leader_epoch": -2}, ErrorCode.CORRUPT_BATCH, "leader epoch -2"),
        ({"append_timestamp": -2}, ErrorCode.CORRUPT_BATCH, "append timestamp -2"),
        ({"attributes": 0x05}, ErrorCode.UNKNOWN_CODEC, "codec 5"),
        ({"attributes": 0x0F}, ErrorCode.UNKNOWN_CODEC, "codec 15"),
        ({"attributes": 0x40}, ErrorCode.UNSUPPORTED_VERSION, "newer version"),
        ({"attributes": 0x80}, ErrorCode.UNSUPPORTED_VERSION, "newer version"),
        ({"columns": 1 << 14}, ErrorCode.UNSUPPORTED_VERSION, "newer version"),
        ({"columns": 1 << 15}, ErrorCode.UNSUPPORTED_VERSION, "newer version"),
        ({"base_timestamp": 5, "max_timestamp": 4}, ErrorCode.CORRUPT_BATCH, "timestamps 5 to 4"),
        ({"producer_id": -2}, ErrorCode.CORRUPT_BATCH, "producer -2"),
        ({"producer_epoch": -2}, ErrorCode.CORRUPT_BATCH, "epoch -2"),
        ({"base_sequence": -2}, ErrorCode.CORRUPT_BATCH, "sequence -2"),
        ({"delete_horizon": -2}, ErrorCode.CORRUPT_BATCH, "delete horizon -2"),
        ({"record_count": 3, "last_offset_delta": 1}, ErrorCode.CORRUPT_BATCH, "3 records"),
        ({"record_count": 92 * 1024 + 1}, ErrorCode.CORRUPT_BATCH, "expand too far"),
        ({"uncompressed_size": 92 * 1024 + 1}, ErrorCode.CORRUPT_BATCH, "expand too far"),
        ({"uncompressed_size": 1}, ErrorCode.CORRUPT_BATCH, "header says 1"),
        ({"block": b"x"}, ErrorCode.CORRUPT_BATCH, "block of 1 bytes"),
        ({"columns": 1}, ErrorCode.CORRUPT_BATCH, "ends within its column directory"),
    ],
)
def test_check_batch_names_the_wrong_field_when_one_is_corrupted(
    fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    error = refused(forge(**fields))
    assert error.code is code
    assert text in str(error)


def test_check_batch_says_where_when_a_later_batch_is_broken() -> None:
    data = small_batch()
    with pytest.raises(TailraceError, match=f"the batch at byte {len(data)} "):
        check_batch(data + b"\0" * 200, len(data))


def test_leader_part_replaces_the_first_32_bytes_when_a_leader_appends() -> None:
    sent = small_batch()
    stored = leader_part(
        size=len(sent), base_offset=900, leader_epoch=4, append_timestamp=77, sync_mark=100
    ) + bytes(memoryview(sent)[LEADER_PART_SIZE:])
    header = check_batch(stored)
    assert (header.base_offset, header.leader_epoch, header.append_timestamp) == (900, 4, 77)
    assert header.sync_mark == 100
    assert header[6:] == check_batch(sent)[6:]


def test_leader_part_refuses_what_has_no_room_when_a_field_is_out_of_range() -> None:
    with pytest.raises(TailraceError, match="sync mark 4294967296"):
        leader_part(size=92, base_offset=0, leader_epoch=0, sync_mark=2**32)


@pytest.mark.parametrize("position", [0, 11])
def test_restamp_changes_span_and_checksum_only_when_a_follower_writes(position: int) -> None:
    data = small_batch()
    buffer = bytearray(b"\xee" * position + data)
    restamp(buffer, position, 123)
    assert check_batch(buffer, position)._replace(header_crc=0) == check_batch(data)._replace(
        sync_mark=123, header_crc=0
    )
    assert buffer[position + 32 :] == data[32:]
    assert buffer[:position] == b"\xee" * position
