"""What only a decoder can find: columns that contradict each other or the header."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tailrace.cluster.common.arrow import to_arrow
from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.codecs import Codec, compress
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tests.vectors.forge import forge

INVALID: dict[str, tuple[dict[int, tuple[int, int, bytes]], dict[str, int]]] = {
    "value sizes beyond the bytes": ({4: (1, 2, b"\3\3"), 13: (0, 4, b"abcd")}, {}),
    "value sizes short of the bytes": ({4: (1, 2, b"\1\0"), 13: (0, 4, b"abcd")}, {}),
    "value sizes without bytes": ({4: (1, 2, b"\1\0")}, {}),
    "huge value size": ({4: (8, 16, b"\xff" * 16), 13: (0, 4, b"abcd")}, {}),
    "sizes that add up only modulo 2^64": (
        {4: (8, 16, (2**63).to_bytes(8, "little") * 2), 13: (0, 4, b"abcd")},
        {},
    ),
    "key sizes beyond the bytes": ({2: (2, 4, b"\1\0\1\0"), 12: (0, 1, b"k")}, {}),
    "null value with bytes": ({3: (0, 1, b"\1"), 4: (0, 1, b""), 13: (0, 2, b"ab")}, {}),
    "null key with bytes": ({1: (0, 1, b"\2"), 2: (1, 2, b"\1\1"), 12: (0, 2, b"ab")}, {}),
    "timestamp above the maximum": ({0: (1, 2, b"\0\6")}, {"max_timestamp": 5}),
    "constant timestamp above the maximum": ({0: (0, 6, b"")}, {"max_timestamp": 5}),
    "64-bit timestamp above the maximum": ({0: (8, 16, bytes(8) + b"\xff" * 8)}, {"max_timestamp": 2**40}),
    "offsets that stand still": ({5: (1, 2, b"\1\1")}, {"last_offset_delta": 5}),
    "offsets that go back": ({5: (1, 2, b"\2\1")}, {"last_offset_delta": 5}),
    "offsets beyond the last": ({5: (1, 2, b"\1\6")}, {"last_offset_delta": 5}),
    "constant offsets": ({5: (0, 1, b"")}, {"last_offset_delta": 5}),
    "header counts without headers": ({6: (1, 2, b"\1\1"), 7: (1, 1, b"\0")}, {}),
    "more headers than sizes": ({6: (1, 2, b"\3\0"), 7: (1, 2, b"\1\1"), 10: (0, 2, b"ab")}, {}),
    "header count out of bounds": ({6: (4, 8, b"\xff" * 8)}, {}),
    "header counts that wrap around": ({6: (8, 16, b"\xff" * 16)}, {}),
    "header name sizes beyond the bytes": ({6: (0, 1, b""), 7: (1, 2, b"\2\2"), 10: (0, 2, b"ab")}, {}),
    "constant header name sizes beyond the bytes": ({6: (0, 1, b""), 7: (0, 2, b""), 10: (0, 2, b"ab")}, {}),
    "header names that are not UTF-8": ({6: (0, 1, b""), 7: (0, 1, b""), 10: (0, 2, b"\xc3\x28")}, {}),
    "header names cut within a character": ({6: (0, 1, b""), 7: (0, 1, b""), 10: (0, 2, "é".encode())}, {}),
    "header value sizes of another number": ({6: (1, 2, b"\1\1"), 9: (1, 3, b"\0\0\0")}, {}),
    "header value bitmap of another length": (
        {6: (1, 2, b"\1\1"), 8: (0, 2, b"\0\0"), 9: (0, 0, b"")},
        {},
    ),
    "header bytes but no headers": ({6: (1, 2, b"\0\0"), 9: (0, 1, b""), 11: (0, 1, b"a")}, {}),
    "header sizes but no headers": ({6: (1, 2, b"\0\0"), 7: (1, 1, b"\0")}, {}),
    "null header value with bytes": (
        {6: (0, 1, b""), 8: (0, 1, b"\1"), 9: (0, 1, b""), 11: (0, 2, b"ab")},
        {},
    ),
}


@pytest.mark.parametrize("name", INVALID)
@pytest.mark.parametrize(
    "read",
    [lambda batch: batch.records("t", 0), lambda batch: to_arrow([batch], "t", 0, include_headers=True)],
    ids=["records", "arrow"],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_decoder_raises_corrupt_batch_when_columns_contradict(
    name: str, read: Callable[[Batch], Any], codec: Codec
) -> None:
    columns, fields = INVALID[name]
    plain = b"".join(columns[number][2] for number in sorted(columns))
    block = compress(codec, plain) if plain else b""
    data = forge(columns, record_count=2, attributes=codec if plain else 0, block=block, **fields)
    with pytest.raises(TailraceError) as caught:
        read(Batch(data))
    assert caught.value.code is ErrorCode.CORRUPT_BATCH


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decoder_raises_corrupt_batch_when_the_block_is_not_what_the_codec_says(codec: Codec) -> None:
    columns = {4: (0, 500, b""), 13: (0, 1000, bytes(1000))}
    for block in (
        b"",
        b"\0" * 40,
        b"garbage that no codec wrote",
        compress(codec, bytes(999)),
        b"\xff" * 200,
    ):
        data = forge(columns, record_count=2, attributes=codec, block=block)
        check_batch(data)
        with pytest.raises(TailraceError) as caught:
            Batch(data).values()
        assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_decoder_reads_what_is_valid_but_not_smallest_when_another_writer_wrote_it() -> None:
    data = forge(
        {
            0: (0, 5, b""),
            1: (0, 1, b"\xff"),
            2: (8, 16, (1).to_bytes(8, "little") * 2),
            3: (0, 1, b"\xfc"),
            4: (4, 8, bytes(8)),
            5: (2, 4, b"\0\0\1\0"),
            6: (1, 2, b"\0\1"),
            9: (0, 0, b""),
            12: (0, 2, b"ab"),
        },
        record_count=2,
        base_timestamp=10,
        max_timestamp=20,
        base_offset=100,
    )
    batch = Batch(data)
    assert batch.timestamps() == [15, 15]
    assert batch.keys() == [b"a", b"b"]
    assert batch.values() == [None, None]
    assert list(batch.offsets()) == [100, 101]
    assert batch.headers() == [(), (("", b""),)]
    arrow = to_arrow([batch], "t", 0, include_headers=True)
    arrow.validate(full=True)
    assert arrow["value"].to_pylist() == [None, None]
    assert arrow["headers"].to_pylist() == [[], [{"key": "", "value": b""}]]
