"""Batches as Arrow record batches, and Arrow columns as batches. With `arrow_encoder`, the only importer of
pyarrow here.

`to_arrow` gives exactly the columns that Spark's Kafka source gives, under the same names and types. The
values of a single uncompressed batch are not copied: the Arrow column points into the batch's own bytes,
and keeps them alive. Several batches, or compressed ones, cost one copy. In both directions the number of
operations grows with the number of batches, never with that of records.

The Spark source, `Consumer.poll_arrow` and `Producer.send_arrow` call this.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.cluster.common import directory as layout
from tailrace.cluster.common.arrow_encoder import encode_arrow
from tailrace.cluster.common.directory import StringColumns, corrupt
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch

__all__ = ["SCHEMA", "SCHEMA_WITH_HEADERS", "encode_arrow", "to_arrow"]

_HEADER_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", _HEADER_TYPE))

_MICROSECONDS: Final = 1000
_LARGEST_MILLISECONDS: Final = ((1 << 63) - 1) // _MICROSECONDS
_LARGEST_COLUMN: Final = (1 << 31) - 1
# Columns in which every row is the same are kept up to this many rows, and cut to length.
_CACHED_ROWS: Final = 1 << 14

# As encoding, -1 is none that a directory could hold.
_ABSENT: Final = (-1, 0, 0)
_BINARY = pa.binary()
_STRING = pa.string()
_INT32 = pa.int32()
_INT64 = pa.int64()
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_from_buffers = pa.Array.from_buffers
_py_buffer = pa.py_buffer
_EMPTY: Final = pa.py_buffer(b"")


def to_arrow(
    batches: Sequence[Batch], topic: str, partition: int, include_headers: bool = False
) -> pa.RecordBatch:
    """All records of `batches`, in their order. The caller leaves control batches out.

    Raises RECORD_TOO_LARGE when a column would exceed Arrow's 2 GiB (pass fewer batches), and
    INVALID_TIMESTAMP for a timestamp that has no place in 64 bits of microseconds.
    """
    batches = [batch for batch in batches if batch.header.record_count]
    counts = [batch.header.record_count for batch in batches]
    rows = sum(counts)
    arrays = [
        _binary_column(batches, counts, rows, layout.KEYS),
        _binary_column(batches, counts, rows, layout.VALUES),
        _repeated_text(topic, rows),
        _repeated_integer(partition, rows),
        _int64_column(_INT64, [batch.offset_array() for batch in batches], rows),
        _timestamp_column(batches, rows),
        _timestamp_types(batches, counts, rows),
    ]
    if not include_headers:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    arrays.append(_header_column(batches, counts, rows))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA_WITH_HEADERS)


def _joined(arrays: list[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _int64_column(kind: pa.DataType, arrays: list[npt.NDArray[np.int64]], rows: int) -> pa.Array:
    return _from_buffers(kind, rows, [None, _py_buffer(_joined(arrays, np.int64))], 0)


def _timestamp_column(batches: Sequence[Batch], rows: int) -> pa.Array:
    arrays = []
    for batch in batches:
        header = batch.header
        latest = header.largest_timestamp
        earliest = latest if header.append_timestamp >= 0 else header.base_timestamp
        if earliest < -_LARGEST_MILLISECONDS or latest > _LARGEST_MILLISECONDS:
            raise TailraceError(
                ErrorCode.INVALID_TIMESTAMP,
                f"the batch at offset {header.base_offset} has timestamps {earliest} to {latest}, which do "
                "not fit Arrow's microseconds; read it as records",
            )
        microseconds = batch.timestamp_array()
        microseconds *= _MICROSECONDS
        arrays.append(microseconds)
    return _int64_column(_TIMESTAMP, arrays, rows)


def _timestamp_types(batches: Sequence[Batch], counts: list[int], rows: int) -> pa.Array:
    kinds = [1 if batch.header.append_timestamp >= 0 else 0 for batch in batches]
    if kinds.count(0) in (0, len(kinds)):
        return _repeated_integer(kinds[0] if kinds else 0, rows)
    return _from_buffers(_INT32, rows, [None, _py_buffer(np.repeat(np.array(kinds, np.int32), counts))], 0)


def _repeated_integer(integer: int, rows: int) -> pa.Array:
    return _cut_integers(integer, rows) if rows <= _CACHED_ROWS else _integer_column(integer, rows)


def _repeated_text(text: str, rows: int) -> pa.Array:
    return _cut_texts(text, rows) if rows <= _CACHED_ROWS else _text_column(text, rows)


# Cut columns share the memory of the full ones, so that keeping many of them costs next to nothing.
@lru_cache(maxsize=1024)
def _cut_integers(integer: int, rows: int) -> pa.Array:
    return _full_integers(integer).slice(0, rows)


@lru_cache(maxsize=1024)
def _cut_texts(text: str, rows: int) -> pa.Array:
    return _full_texts(text).slice(0, rows)


@lru_cache(maxsize=64)
def _full_integers(integer: int) -> pa.Array:
    return _integer_column(integer, _CACHED_ROWS)


@lru_cache(maxsize=64)
def _full_texts(text: str) -> pa.Array:
    return _text_column(text, _CACHED_ROWS)


def _integer_column(integer: int, rows: int) -> pa.Array:
    return _from_buffers(_INT32, rows, [None, _py_buffer(np.full(rows, integer, np.int32))], 0)


def _text_column(text: str, rows: int) -> pa.Array:
    data = text.encode()
    _check_column_size(len(data) * rows, "topic names")
    return _from_buffers(_STRING, rows, [None, _even_offsets(len(data), rows), _py_buffer(data * rows)], 0)


def _even_offsets(size: int, rows: int) -> pa.Buffer:
    return _cached_even_offsets(size, rows) if rows <= _CACHED_ROWS else _make_even_offsets(size, rows)


def _make_even_offsets(size: int, rows: int) -> pa.Buffer:
    if size == 0:
        return _py_buffer(np.zeros(rows + 1, np.int32))
    return _py_buffer(np.arange(0, size * rows + 1, size, dtype=np.int32))


_cached_even_offsets = lru_cache(maxsize=64)(_make_even_offsets)


def _check_column_size(size: int, what: str) -> None:
    if size > _LARGEST_COLUMN:
        raise TailraceError(
            ErrorCode.RECORD_TOO_LARGE,
            f"the {what} of these batches have {size} bytes, more than the 2 GiB of an Arrow column; pass "
            "fewer batches at a time",
        )


def _binary_column(batches: Sequence[Batch], counts: list[int], rows: int, places: StringColumns) -> pa.Array:
    lengths = [batch.directory.get(places.data, _ABSENT)[1] for batch in batches]
    total = sum(lengths)
    _check_column_size(total, f"{places.what}s")
    bitmap: pa.Buffer | None = None
    nulls = 0
    size = _common_size(batches, places)
    if size >= 0 and lengths == [size * count for count in counts]:
        offsets = _even_offsets(size, rows)
    elif any(places.sizes in batch.directory for batch in batches):
        sizes, offsets = _sizes_and_offsets(batches, counts, lengths, places)
        bitmap, nulls = _bitmap(batches, counts, sizes, places)
    else:
        return pa.nulls(rows, _BINARY)
    data = (
        _bytes_of(batches[0], places.data)
        if len(batches) == 1
        else _copied_bytes(batches, places.data, total)
    )
    return _from_buffers(_BINARY, rows, [bitmap, offsets, data], nulls)


def _common_size(batches: Sequence[Batch], places: StringColumns) -> int:
    """The one size that all strings of all batches have, if the directories say so and none is null."""
    common = -1
    for batch in batches:
        encoding, size, _ = batch.directory.get(places.sizes, _ABSENT)
        if encoding != 0 or common not in (-1, size) or places.validity in batch.directory:
            return -1
        common = size
    return common


def _bytes_of(batch: Batch, column: int) -> pa.Buffer:
    _, length, start = batch.directory.get(column, _ABSENT)
    if length == 0:
        return _EMPTY
    block, block_start = batch.block()
    return _py_buffer(block).slice(block_start + start, length)


def _copied_bytes(batches: Sequence[Batch], column: int, total: int) -> pa.Buffer:
    # Arrow's pool keeps the memory it has; fresh memory from the system costs more than the copy.
    joined = pa.allocate_buffer(total)
    target = np.frombuffer(joined, np.uint8)
    at = 0
    for batch in batches:
        _, length, start = batch.directory.get(column, _ABSENT)
        if length:
            block, block_start = batch.block()
            target[at : at + length] = np.frombuffer(block, np.uint8, length, block_start + start)
            at += length
    return joined


def _sizes_and_offsets(
    batches: Sequence[Batch], counts: list[int], lengths: list[int], places: StringColumns
) -> tuple[npt.NDArray[Any], pa.Buffer]:
    pieces: list[npt.NDArray[Any]] = []
    for batch, count, length in zip(batches, counts, lengths, strict=True):
        if places.sizes not in batch.directory:
            pieces.append(np.zeros(count, np.uint8))
            continue
        piece = batch.integer_array(places.sizes, count)
        if piece.itemsize == 8:
            # Sums of 2^24 narrower ones cannot leave 64 bits.
            if int(piece.max(initial=0)) > length:
                raise corrupt(f"the batch at offset {batch.header.base_offset} has a size beyond its bytes")
            piece = piece.astype(np.uint32)
        pieces.append(piece)
    sizes = _joined(pieces, np.uint8)
    # One-byte sizes of so few rows cannot leave 32 bits; any others are added up in 64 before they are cut.
    narrow = sizes.itemsize == 1 and len(sizes) < 1 << 23
    ends = np.empty(len(sizes) + 1, np.int32 if narrow else np.int64)
    ends[0] = 0
    np.add.accumulate(sizes, out=ends[1:], dtype=ends.dtype)
    # Each batch's sizes must add up to its own bytes, not only all of them together.
    for end, expected in zip(accumulate(counts), accumulate(lengths), strict=True):
        if int(ends[end]) != expected:
            raise corrupt(f"the sizes of a batch's {places.what}s do not add up to their bytes")
    return sizes, _py_buffer(ends if narrow else ends.astype(np.int32))


def _bitmap(
    batches: Sequence[Batch], counts: list[int], sizes: npt.NDArray[Any], places: StringColumns
) -> tuple[pa.Buffer | None, int]:
    if all(places.sizes in batch.directory and places.validity not in batch.directory for batch in batches):
        return None, 0
    pieces = []
    for batch, count in zip(batches, counts, strict=True):
        if places.validity in batch.directory:
            pieces.append(batch.valid_array(places.validity, count))
        else:
            pieces.append(np.full(count, places.sizes in batch.directory, np.bool_))
    valid = _joined(pieces, np.bool_)
    nulls = len(valid) - int(np.count_nonzero(valid))
    if nulls and sizes[~valid].any():
        raise corrupt(f"a batch has a null {places.what} with bytes")
    return _py_buffer(np.packbits(valid, bitorder="little")), nulls


def _header_column(batches: Sequence[Batch], counts: list[int], rows: int) -> pa.Array:
    per_record = [batch.header_count_array(count) for batch, count in zip(batches, counts, strict=True)]
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(_joined(per_record, np.int64), out=ends[1:])
    # Batches whose counts are all zero go along, because what they say beside must be checked too.
    with_headers = [batch for batch in batches if layout.HEADER_COUNTS in batch.directory]
    totals = [
        int(counted.sum())
        for batch, counted in zip(batches, per_record, strict=True)
        if layout.HEADER_COUNTS in batch.directory
    ]
    names = _names(with_headers, totals)
    values = _binary_column(with_headers, totals, sum(totals), layout.HEADER_VALUES)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE.value_type))
    return pa.Array.from_buffers(_HEADER_TYPE, rows, [None, _py_buffer(ends)], 0, 0, [pairs])


def _names(batches: Sequence[Batch], totals: list[int]) -> pa.Array:
    # Text is checked by decoding it, which also serves the batches without a column of name sizes.
    names: list[str] = []
    for batch, total in zip(batches, totals, strict=True):
        names += batch.header_names(total)
    return pa.array(names, _STRING)
