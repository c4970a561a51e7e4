"""Each codec: standard format, bounded output, named errors."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import cramjam
import lz4.block
import pytest
import zstandard

from tailrace.cluster.common.codecs import Codec, compress, decompress
from tailrace.cluster.common.errors import ErrorCode, TailraceError

DATA = b"".join(b'{"id": %d, "name": "record"}' % number for number in range(500))
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", DATA, bytes(100_000)])
def test_codec_returns_the_same_bytes_when_decompressed(codec: Codec, data: bytes) -> None:
    block = compress(codec, data)
    assert isinstance(block, bytes)
    assert decompress(codec, block, len(data)) == data
    assert decompress(codec, memoryview(block), len(data)) == data
    assert decompress(codec, memoryview(bytearray(block)), len(data)) == data
    assert compress(codec, memoryview(data)) == block


def test_codec_blocks_are_standard_formats_when_read_by_other_software() -> None:
    assert gzip.decompress(compress(Codec.GZIP, DATA)) == DATA
    assert bytes(cramjam.snappy.decompress_raw(compress(Codec.SNAPPY, DATA))) == DATA
    assert lz4.block.decompress(compress(Codec.LZ4, DATA), uncompressed_size=len(DATA)) == DATA
    assert zstandard.ZstdDecompressor().decompress(compress(Codec.ZSTD, DATA)) == DATA


def test_gzip_is_reproducible_when_compressed_twice() -> None:
    assert compress(Codec.GZIP, DATA)[4:8] == bytes(4)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("wrong", [-1, 1, -len(DATA), 10_000])
def test_decompress_refuses_a_block_when_its_length_is_not_the_expected_one(codec: Codec, wrong: int) -> None:
    with pytest.raises(TailraceError) as caught:
        decompress(codec, compress(codec, DATA), len(DATA) + wrong)
    assert caught.value.code is ErrorCode.CORRUPT_BATCH
    assert codec.name.lower() in str(caught.value)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompress_refuses_a_block_when_bytes_are_missing_or_added(codec: Codec) -> None:
    block = compress(codec, DATA)
    for broken in (b"", block[:1], block[:-1], block[: len(block) // 2], block + b"\0", block + block):
        with pytest.raises(TailraceError) as caught:
            decompress(codec, broken, len(DATA))
        assert caught.value.code is ErrorCode.CORRUPT_BATCH


@pytest.mark.parametrize("codec", COMPRESSING)
def test_decompress_allocates_no_more_than_expected_when_the_block_is_a_bomb(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TailraceError) as caught:
            decompress(codec, bomb, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.CORRUPT_BATCH
    assert peak < 1 << 20


def test_decompress_refuses_a_zstd_frame_when_it_does_not_state_its_size() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(DATA)
    with pytest.raises(TailraceError, match="zstd"):
        decompress(Codec.ZSTD, frame, len(DATA))


def test_decompress_refuses_a_gzip_member_when_its_checksum_is_wrong() -> None:
    block = bytearray(compress(Codec.GZIP, DATA))
    block[-5] ^= 1
    with pytest.raises(TailraceError, match="gzip"):
        decompress(Codec.GZIP, bytes(block), len(DATA))
    with pytest.raises(TailraceError, match="gzip"):
        decompress(Codec.GZIP, zlib.compress(DATA), len(DATA))


@pytest.mark.parametrize("name", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codec_is_found_by_its_name_when_the_name_is_known(name: str) -> None:
    assert Codec.from_name(name).name.lower() == name


@pytest.mark.parametrize("name", ["", "LZ4", "brotli", "producer"])
def test_codec_names_the_known_ones_when_the_name_is_unknown(name: str) -> None:
    with pytest.raises(TailraceError, match="known are none, gzip, snappy, lz4, zstd") as caught:
        Codec.from_name(name)
    assert caught.value.code is ErrorCode.UNKNOWN_CODEC


@pytest.mark.parametrize("number", [5, 15, -1])
def test_codec_functions_refuse_a_number_when_it_is_unknown(number: int) -> None:
    for call in (partial(compress, number, b""), partial(decompress, number, b"", 0)):
        with pytest.raises(TailraceError) as caught:
            call()
        assert caught.value.code is ErrorCode.UNKNOWN_CODEC


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, 9), (Codec.LZ4, 9), (Codec.LZ4, 0), (Codec.ZSTD, 19)]
)
def test_compress_honours_a_level_when_the_codec_has_levels(codec: Codec, level: int) -> None:
    block = compress(codec, DATA, level)
    assert decompress(codec, block, len(DATA)) == DATA
    assert len(block) < len(DATA) / 2


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 10), (Codec.LZ4, 13), (Codec.ZSTD, 23)])
def test_compress_names_the_range_when_a_level_is_outside_it(codec: Codec, level: int) -> None:
    with pytest.raises(TailraceError, match=f"compression level {level}") as caught:
        compress(codec, DATA, level)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_codecs_give_right_results_when_many_threads_use_them() -> None:
    inputs = [bytes([number]) * 1000 + DATA for number in range(64)]

    def there_and_back(data: bytes) -> bool:
        return all(decompress(codec, compress(codec, data), len(data)) == data for codec in Codec)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(there_and_back, inputs))
