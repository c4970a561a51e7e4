"""The five codecs of the batch format, as bounded functions from bytes to bytes.

Each codec is a standard format: gzip (RFC 1952, one member), snappy (one raw block, no framing), lz4 (one
raw block; the batch header already knows the size, and a block decompresses five times faster than a frame
through the same library), zstd (one frame that states its content size). `decompress` allocates nothing
beyond the size that it is told to expect, and any other outcome than exactly that many bytes is
CORRUPT_BATCH. Everything here may be called from any thread.
"""

from __future__ import annotations

import threading
import zlib
from enum import IntEnum

import cramjam
import lz4.block
import zstandard

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import Bytes


class Codec(IntEnum):
    """A codec by its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The codec of a setting such as compression.type."""
        try:
            return _BY_NAME[name]
        except (KeyError, TypeError):
            known = ", ".join(_BY_NAME)
            raise TailraceError(
                ErrorCode.UNKNOWN_CODEC, f"there is no compression codec {name!r}; known are {known}"
            ) from None


_BY_NAME = {codec.name.lower(): codec for codec in Codec}

_GZIP_WINDOW = 31  # zlib's way to say: the largest window, with a gzip header and trailer around it
_GZIP_LEVEL = 4
_ZSTD_LEVEL = 1
_LEVELS = {Codec.GZIP: range(10), Codec.LZ4: range(13), Codec.ZSTD: range(-100, 23)}


class _PerThread(threading.local):
    """zstandard's objects hold a context that only one thread may use at a time."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}


_local = _PerThread()


def compress(codec: int, data: Bytes, level: int | None = None) -> bytes:
    """`data` as one block of `codec`; without `level`, the level that suits a log: fast rather than small."""
    if level is not None and codec in _LEVELS and level not in _LEVELS[Codec(codec)]:
        levels = _LEVELS[Codec(codec)]
        raise TailraceError(
            ErrorCode.INVALID_CONFIG,
            f"compression level {level} is outside what {Codec(codec).name.lower()} knows: "
            f"{levels.start} to {levels.stop - 1}",
        )
    if codec == Codec.LZ4:
        if level is None or level == 0:
            return lz4.block.compress(data, store_size=False)  # type: ignore[no-any-return]
        return lz4.block.compress(  # type: ignore[no-any-return]
            data, mode="high_compression", compression=level, store_size=False
        )
    if codec == Codec.ZSTD:
        return _zstd_compressor(_ZSTD_LEVEL if level is None else level).compress(data)
    if codec == Codec.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    if codec == Codec.GZIP:
        compressor = zlib.compressobj(_GZIP_LEVEL if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return compressor.compress(data) + compressor.flush()
    if codec == Codec.NONE:
        return bytes(data)
    raise _unknown(codec)


def decompress(codec: int, data: Bytes, size: int) -> bytes:
    """The `size` bytes that `data` stands for, or CORRUPT_BATCH."""
    if codec == Codec.NONE:
        result = bytes(data)
    elif codec == Codec.LZ4:
        result = _lz4_decompress(data, size)
    elif codec == Codec.ZSTD:
        result = _zstd_decompress(data, size)
    elif codec == Codec.SNAPPY:
        result = _snappy_decompress(data, size)
    elif codec == Codec.GZIP:
        result = _gzip_decompress(data, size)
    else:
        raise _unknown(codec)
    if len(result) != size:
        raise _corrupt(codec, f"it holds {len(result)} bytes where the header says {size}")
    return result


def _lz4_decompress(data: Bytes, size: int) -> bytes:
    try:
        return lz4.block.decompress(data, uncompressed_size=size)  # type: ignore[no-any-return]
    except (lz4.block.LZ4BlockError, ValueError) as reason:
        raise _corrupt(Codec.LZ4, str(reason)) from None


def _zstd_decompress(data: Bytes, size: int) -> bytes:
    try:
        # The library allocates what the frame declares, so the declaration is checked first.
        declared = zstandard.frame_content_size(data)
        if declared != size:
            raise _corrupt(Codec.ZSTD, f"its frame declares {declared} bytes where the header says {size}")
        if size == 0:
            # The library returns at once for an empty frame, without a look at what follows the header.
            return b""
        return _local.decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as reason:
        raise _corrupt(Codec.ZSTD, str(reason)) from None


def _snappy_decompress(data: Bytes, size: int) -> bytes:
    try:
        declared = cramjam.snappy.decompress_raw_len(data)
        if declared != size:
            raise _corrupt(Codec.SNAPPY, f"it declares {declared} bytes where the header says {size}")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as reason:
        raise _corrupt(Codec.SNAPPY, str(reason)) from None


def _gzip_decompress(data: Bytes, size: int) -> bytes:
    decompressor = zlib.decompressobj(_GZIP_WINDOW)
    try:
        # One byte more than expected, so that the member's end, with its checksum, is reached and checked.
        result = decompressor.decompress(data, size + 1)
    except zlib.error as reason:
        raise _corrupt(Codec.GZIP, str(reason)) from None
    if len(result) == size and (not decompressor.eof or decompressor.unused_data):
        raise _corrupt(Codec.GZIP, "its one member does not end where the batch ends")
    return result


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    compressor = _local.compressors.get(level)
    if compressor is None:
        compressor = _local.compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressor


def _corrupt(codec: int, reason: str) -> TailraceError:
    return TailraceError(
        ErrorCode.CORRUPT_BATCH,
        f"the batch's {Codec(codec).name.lower()} block cannot be decompressed: {reason}",
    )


def _unknown(codec: int) -> TailraceError:
    return TailraceError(ErrorCode.UNKNOWN_CODEC, f"there is no compression codec of number {codec}")
