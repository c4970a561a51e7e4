"""The encoder: smallest forms, bounds, and clear refusals."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import numpy as np
import pytest

from tailrace.cluster.common import directory as layout
from tailrace.cluster.common.batch import MAX_BASE_OFFSET, MAX_EXPANSION, check_batch
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tests.vectors.forge import forge


def directory_of(data: bytes) -> dict[int, tuple[int, int]]:
    return {number: entry[:2] for number, entry in Batch(data).directory.items()}


def test_encoder_writes_exactly_the_bytes_of_the_format_when_records_are_plain() -> None:
    written = encode_batch(
        values=[b"one", b"three"], keys=[b"ab", b"cd"], timestamps=[105, 100], base_offset=3, producer_id=9
    )
    by_hand = forge(
        {
            0: (1, 2, b"\5\0"),
            2: (0, 2, b""),
            4: (1, 2, b"\3\5"),
            12: (0, 4, b"abcd"),
            13: (0, 8, b"onethree"),
        },
        record_count=2,
        base_timestamp=100,
        max_timestamp=105,
        base_offset=3,
        producer_id=9,
    )
    assert written == by_hand


def test_encoder_writes_headers_when_some_records_have_them() -> None:
    written = encode_batch(
        values=[None, None], timestamps=7, headers=[[("é", b"1"), ("bc", None)], []], control=True
    )
    by_hand = forge(
        {
            6: (1, 2, b"\2\0"),
            7: (0, 2, b""),
            8: (0, 1, b"\1"),
            9: (1, 2, b"\1\0"),
            10: (0, 4, "ébc".encode()),
            11: (0, 1, b"1"),
        },
        record_count=2,
        base_timestamp=7,
        attributes=0x20,
    )
    assert written == by_hand


@pytest.mark.parametrize("count", [1, 2, 47, 48, 49, 600])
def test_encoder_leaves_columns_out_when_they_say_nothing(count: int) -> None:
    nulls = [None] * count
    assert directory_of(encode_batch(values=nulls, timestamps=[5] * count, headers=[()] * count)) == {}
    assert directory_of(encode_batch(values=nulls, keys=nulls, timestamps=5)) == {}
    empty = [b""] * count
    assert directory_of(encode_batch(values=empty, timestamps=5)) == {layout.VALUE_SIZES: (0, 0)}
    deltas = encode_batch(values=nulls, timestamps=5, offset_deltas=range(count))
    assert directory_of(deltas) == {}


@pytest.mark.parametrize("count", [2, 40, 200, 1000])
@pytest.mark.parametrize(("span", "width"), [(255, 1), (256, 2), (65536, 4), (2**32, 8), (2**64 - 1, 8)])
def test_encoder_takes_the_narrowest_width_when_timestamps_span_a_range(
    count: int, span: int, width: int
) -> None:
    base = -(2**63)
    timestamps = [base] * (count - 1) + [base + span]
    data = encode_batch(values=[None] * count, timestamps=timestamps)
    assert directory_of(data) == {layout.TIMESTAMP_DELTAS: (width, width * count)}
    assert Batch(data).timestamps() == timestamps
    header = check_batch(data)
    assert (header.base_timestamp, header.max_timestamp) == (base, base + span)


def test_encoder_takes_arrays_of_timestamps_when_they_have_64_bits() -> None:
    timestamps = list(range(1000, 1300))
    data = encode_batch(values=[None] * 300, timestamps=timestamps)
    assert encode_batch(values=[None] * 300, timestamps=array("q", timestamps)) == data
    numbers: Any = np.array(timestamps)
    assert encode_batch(values=[None] * 300, timestamps=numbers) == data
    assert encode_batch(values=[None] * 300, timestamps=numbers.astype(np.int32)) == data


@pytest.mark.parametrize(("size", "width"), [(255, 1), (256, 2), (70_000, 4)])
def test_encoder_takes_the_narrowest_width_when_values_are_long(size: int, width: int) -> None:
    values = [b"", b"v" * size]
    data = encode_batch(values=values, timestamps=0)
    assert directory_of(data)[layout.VALUE_SIZES] == (width, 2 * width)
    assert Batch(data).values() == values
    assert directory_of(encode_batch(values=[b"v" * size] * 2, timestamps=0))[layout.VALUE_SIZES] == (0, size)


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_encoder_takes_other_bytes_when_their_items_are_bytes(kind: Any) -> None:
    data = encode_batch(values=[kind(b"abc"), kind(b"de")], keys=[kind(b"k"), None], timestamps=0)
    assert Batch(data).values() == [b"abc", b"de"]
    assert Batch(data).keys() == [b"k", None]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"values": []}, "a batch needs at least one record"),
        ({"values": [], "timestamps": []}, "a batch needs at least one record"),
        ({"values": 5}, "values are a sequence with one for each record, not int"),
        ({"values": None}, "values are a sequence with one for each record, not NoneType"),
        ({"values": (b"v" for _ in range(2))}, "values are a sequence with one for each record, not gen"),
        ({"values": b"ab"}, "value of record 0 is int"),
        ({"values": [b"a"], "keys": 5}, "keys are a sequence with one for each record, not int"),
        ({"values": [b"a"], "headers": 5}, "headers are a sequence with one for each record, not int"),
        ({"values": [b"a"], "offset_deltas": 5}, "offset deltas are a sequence"),
        ({"values": [b"a"], "keys": []}, "0 keys for 1 values"),
        ({"values": [b"a"], "timestamps": [1, 2]}, "2 timestamps for 1 values"),
        ({"values": [b"a"], "headers": [[], []]}, "2 headers for 1 values"),
        ({"values": [b"a"], "offset_deltas": [1, 2]}, "2 offset deltas for 1 values"),
        ({"values": [b"a", "b"]}, "value of record 1 is str"),
        ({"values": [b"a"], "keys": ["k"]}, "key of record 0 is str"),
        ({"values": [b"a", None, 5]}, "value of record 2 is int"),
        ({"values": [b"a", None, "x" * 3]}, "value of record 2 is str"),
        ({"values": [[b"a"]]}, "value of record 0 is list"),
        ({"values": ["b" * 300]}, "value of record 0 is str"),
        ({"values": ["a"], "codec": Codec.LZ4}, "value of record 0 is str"),
        ({"values": [memoryview(array("i", [1]))]}, "another length than it has bytes"),
        ({"values": [b"a"], "headers": [[(b"h", b"v")]]}, "headers are"),
        ({"values": [b"a"], "headers": [["header"]]}, "headers are"),
        ({"values": [b"a"], "headers": [[("h",)]]}, "headers are"),
        ({"values": [b"a"], "headers": [[("h", "v")]]}, "header value 0 of the batch is str"),
        ({"values": [b"a"], "headers": [[("h", b""), ("h", 5)]]}, "header value 1 of the batch is int"),
        ({"values": [b"a", "b"], "headers": [[], []], "codec": Codec.ZSTD}, "value of record 1 is str"),
        ({"values": [b"a"], "headers": [[("\ud800", b"v")]]}, "UTF-8"),
        ({"values": [b"a"], "headers": [None]}, "headers are"),
        ({"values": [b"a"], "timestamps": 1.5}, "timestamps are integers .* not 1.5"),
        ({"values": [b"a"], "timestamps": None}, "timestamps are integers .* not None"),
        ({"values": [b"a"], "timestamps": "1"}, "not an integer"),
        ({"values": [b"a"], "timestamps": [None]}, "not an integer"),
        ({"values": [b"a"] * 2, "timestamps": [None, 1]}, "timestamps are integers"),
        ({"values": [b"a"], "timestamps": [1.5]}, "does not fit"),
        ({"values": [b"a"] * 2, "timestamps": [1, 1.5]}, "timestamps are integers"),
        ({"values": [b"a"] * 99, "timestamps": [1.5] * 99}, "timestamps are integers"),
        ({"values": [b"a"] * 99, "timestamps": [2**63] * 99}, "timestamps are integers"),
        ({"values": [b"a"], "timestamps": [2**63]}, "does not fit"),
        ({"values": [b"a"], "timestamps": -(2**63) - 1}, "does not fit"),
        ({"values": [b"a"] * 2, "offset_deltas": [1, 1]}, "offset deltas grow"),
        ({"values": [b"a"], "offset_deltas": ["x"]}, "offset deltas are integers"),
        ({"values": [b"a"], "offset_deltas": [1.5]}, "offset deltas are integers"),
        ({"values": [b"a"] * 2, "offset_deltas": [0, 2**70]}, "cannot be encoded"),
        ({"values": [b"a"] * 2, "offset_deltas": [-1, 1]}, "offset deltas grow"),
        (
            {"values": [b"a"], "offset_deltas": [5], "last_offset_delta": 4},
            "at most the last offset delta, 4",
        ),
        ({"values": [b"a"] * 3, "last_offset_delta": 1}, "3 records do not fit a last offset delta of 1"),
        ({"values": [b"a"], "base_offset": -1}, "negative"),
        ({"values": [b"a"], "base_offset": 1.5}, "base_offset is 1.5; it must be an integer"),
        ({"values": [b"a"], "base_offset": "0"}, "base_offset is '0'; it must be an integer"),
        ({"values": [b"a"], "leader_epoch": None}, "leader_epoch is None; it must be an integer"),
        ({"values": [b"a"], "producer_id": "7"}, "producer_id is '7'; it must be an integer"),
        ({"values": [b"a"], "delete_horizon": 1.5}, "delete_horizon is 1.5; it must be an integer"),
        ({"values": [b"a"], "base_offset": MAX_BASE_OFFSET + 1}, "largest offset"),
        ({"values": [b"a"], "producer_id": -2}, "negative"),
        ({"values": [b"a"], "producer_epoch": 2**31}, "does not fit"),
        ({"values": [b"a"], "append_timestamp": -2}, "negative"),
    ],
)
def test_encoder_says_what_is_wrong_when_the_input_has_no_batch(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TailraceError, match=text) as caught:
        encode_batch(**{"timestamps": 0, **arguments})
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_encoder_names_the_limit_when_there_are_too_many_records() -> None:
    with pytest.raises(TailraceError, match="at most 16777216 records") as caught:
        encode_batch(values=[None] * (layout.MAX_RECORDS + 1), timestamps=0)
    assert caught.value.code is ErrorCode.RECORD_TOO_LARGE


@pytest.mark.parametrize("codec", list(Codec))
def test_encoder_stays_within_the_bounds_when_values_compress_too_well(codec: Codec) -> None:
    data = encode_batch(values=[bytes(4 << 20)], timestamps=0, codec=codec)
    header = check_batch(data)
    assert header.uncompressed_size <= len(data) * MAX_EXPANSION
    assert Batch(data).values() == [bytes(4 << 20)]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("value", [None, b""])
def test_encoder_writes_constants_out_when_records_would_outnumber_the_bytes(
    codec: Codec, value: bytes | None
) -> None:
    count = 300_000
    data = encode_batch(values=[value] * count, timestamps=5, codec=codec)
    header = check_batch(data)
    assert count <= len(data) * MAX_EXPANSION
    assert header.record_count == count
    assert Batch(data).values() == [value] * count
    assert Batch(data).timestamps() == [5] * count


def test_encoder_writes_constants_out_when_headers_would_outnumber_the_bytes() -> None:
    headers = [(("", None),) * 50_000] * 4
    data = encode_batch(values=[None] * 4, timestamps=5, headers=headers)
    assert Batch(data).headers() == headers


def test_encoder_marks_flags_when_asked() -> None:
    header = check_batch(
        encode_batch(values=[b"v"], timestamps=0, transactional=True, control=True, codec=Codec.ZSTD)
    )
    assert (header.is_transactional, header.is_control, header.codec) == (True, True, Codec.ZSTD)


def test_encoder_uses_no_codec_when_there_is_nothing_to_compress() -> None:
    data = encode_batch(values=[None], timestamps=0, codec=Codec.ZSTD)
    assert len(data) == 92
    assert check_batch(data).codec == Codec.NONE


def test_encoder_writes_both_sides_of_the_copy_limit_alike_when_sizes_differ_by_one() -> None:
    for size in range(16_384 - 130, 16_384 + 10):
        data = encode_batch(values=[b"v" * size], timestamps=0)
        assert data[-size:] == b"v" * size
        assert struct.unpack_from("<I", data, 8) == (len(data),)
        check_batch(data)
