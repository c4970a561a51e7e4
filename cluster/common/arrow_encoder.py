"""Arrow columns in, one batch out; re-exported by `arrow`, which says who calls it.

The number of operations does not depend on the number of records, and the bytes of keys and values are copied
once, from Arrow's buffers into the batch.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace.cluster.common import directory as layout
from tailrace.cluster.common.assembly import (
    BLOCK_LIMIT,
    Column,
    Fields,
    assemble,
    check_count,
    check_length,
    invalid,
    too_large,
)
from tailrace.cluster.common.batch import CONTROL, MAX_RECORDS, TRANSACTIONAL
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import add_timestamp_array, integer_array_column, pack_bits
from tailrace.cluster.common.directory import StringColumns

_BINARY: Final = pa.binary()
_INT64: Final = pa.int64()


def encode_arrow(
    *,
    values: pa.Array | pa.ChunkedArray,
    keys: pa.Array | pa.ChunkedArray | None = None,
    timestamps: int | pa.Array | pa.ChunkedArray | npt.NDArray[np.int64],
    headers: pa.Array | pa.ChunkedArray | None = None,
    codec: int = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int = -1,
    append_timestamp: int = -1,
) -> bytes:
    """What `encode_batch` does, from Arrow columns.

    Keys and values are binary or string of either size; timestamps one integer, an array of integers
    (milliseconds) or of Arrow timestamps; headers are list<struct<key: string, value: binary>>.
    """
    for what, array in (("values", values), ("keys", keys), ("headers", headers)):
        if not isinstance(array, (pa.Array, pa.ChunkedArray)) and (array is not None or what == "values"):
            raise invalid(f"{what} are an Arrow array, not {type(array).__name__}")
    count = len(values)
    check_count(count)
    if not isinstance(timestamps, int):
        if not isinstance(timestamps, Sized):
            raise invalid(f"timestamps are one integer or an array of them, not {timestamps!r}")
        check_length("timestamps", len(timestamps), count)
    for what, array in (("keys", keys), ("headers", headers)):
        if array is not None:
            check_length(what, len(array), count)
    columns: list[Column] = []
    tail: list[Column] = []
    header_total = 0
    timestamp_range = _add_timestamps(columns, timestamps)
    if keys is not None:
        _add_binary(columns, tail, keys, layout.KEYS)
    _add_binary(columns, tail, values, layout.VALUES)
    if headers is not None:
        header_total = _add_headers(columns, headers)
    fields = Fields(
        codec,
        level,
        base_offset,
        leader_epoch,
        append_timestamp,
        (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0),
        count - 1,
        producer_id,
        producer_epoch,
        base_sequence,
        delete_horizon,
    )
    return assemble(columns + tail, fields, count, header_total, timestamp_range)


def _add_timestamps(columns: list[Column], timestamps: Any) -> tuple[int, int]:
    if isinstance(timestamps, int):
        return timestamps, timestamps
    if isinstance(timestamps, (pa.Array, pa.ChunkedArray)):
        if timestamps.null_count:
            raise invalid("timestamps are never null")
        if pa.types.is_timestamp(timestamps.type):
            timestamps = timestamps.cast(pa.timestamp("ms", tz=timestamps.type.tz), safe=False)
        elif not pa.types.is_integer(timestamps.type):
            raise invalid(f"timestamps are integers or Arrow timestamps, not {timestamps.type}")
        timestamps = timestamps.cast(_INT64)
        timestamps = timestamps.to_numpy()
    milliseconds = np.asarray(timestamps)
    if milliseconds.dtype.kind not in "iu":
        raise invalid(f"timestamps are integers or Arrow timestamps, not {milliseconds.dtype}")
    return add_timestamp_array(columns, milliseconds.astype(np.int64, copy=False))


def _add_binary(columns: list[Column], tail: list[Column], array: Any, places: StringColumns) -> None:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        array = array.cast(_BINARY)
        kind = array.type
    if pa.types.is_null(kind):
        return
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    if not wide and not pa.types.is_binary(kind) and not pa.types.is_string(kind):
        raise invalid(f"{places.what}s are Arrow binary or string, not {kind}")
    count = len(array)
    nulls = array.null_count
    if nulls == count:
        return
    offsets, sizes = _offsets_and_sizes(array, np.int64 if wide else np.int32)
    if nulls:
        valid = _valid(array)
        bitmap = pack_bits(valid)
        columns.append((places.validity, 0, len(bitmap), (bitmap,)))
        if sizes[~valid].any():
            # Arrow lets a null have bytes, which nobody shall see; this format does not.
            sizes = np.where(valid, sizes, 0)
            array = array.drop_null()
            offsets, _ = _offsets_and_sizes(array, np.int64 if wide else np.int32)
    start = int(offsets[0])
    end = int(offsets[-1])
    columns.append(integer_array_column(places.sizes, sizes))
    if end > start:
        if end - start > BLOCK_LIMIT:
            raise too_large(f"the {places.what}s have {end - start} bytes; a batch has less than 2 GiB")
        tail.append((places.data, 0, end - start, (memoryview(array.buffers()[2])[start:end],)))


def _offsets_and_sizes(array: Any, dtype: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    item = np.dtype(dtype).itemsize
    offsets = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * item)
    return offsets, offsets[1:] - offsets[:-1]


def _valid(array: Any) -> npt.NDArray[np.bool_]:
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    end = array.offset + len(array)
    return np.unpackbits(bits, count=end, bitorder="little").view(np.bool_)[array.offset :]


def _add_headers(columns: list[Column], headers: Any) -> int:
    if isinstance(headers, pa.ChunkedArray):
        headers = headers.combine_chunks()
    kind = headers.type
    if (
        not pa.types.is_list(kind)
        or not pa.types.is_struct(kind.value_type)
        or kind.value_type.num_fields != 2
    ):
        raise invalid(f"headers are list<struct<key: string, value: binary>>, not {kind}")
    if not pa.types.is_string(kind.value_type[0].type):
        raise invalid(f"header names are Arrow strings, not {kind.value_type[0].type}")
    if headers.null_count:
        # A record whose list is null has no headers; filled with empty lists the offsets say just that.
        headers = _without_nulls(headers)
    offsets, counts = _offsets_and_sizes(headers, np.int32)
    total = int(offsets[-1]) - int(offsets[0])
    if total == 0:
        return 0
    if total > MAX_RECORDS:
        raise too_large(f"a batch holds at most {MAX_RECORDS} headers, not {total}")
    pairs = headers.values.slice(int(offsets[0]), total)
    names, values = pairs.flatten()
    if pairs.null_count or names.null_count:
        raise invalid("a header, and its name, are never null")
    tail: list[Column] = []
    columns.append(integer_array_column(layout.HEADER_COUNTS, counts))
    _add_binary(columns, tail, names, layout.HEADER_NAMES)
    _add_binary(columns, tail, values, layout.HEADER_VALUES)
    columns += tail
    return total


def _without_nulls(headers: Any) -> Any:
    _, counts = _offsets_and_sizes(headers, np.int32)
    counts = np.where(_valid(headers), counts, 0)
    ends = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    # flatten() leaves out what stands under null lists.
    return pa.ListArray.from_arrays(pa.array(ends), headers.flatten())
