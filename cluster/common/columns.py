"""The encoder: sequences of keys, values, timestamps and headers in, one batch out.

Producers, coordinators and the cleaner call `encode_batch`; `arrow` builds the same columns from Arrow's
buffers and ends in the same `assemble`. What is written here is always the smallest form of the format:
constants where all elements agree, the narrowest width otherwise, and no column that says nothing.

There is no loop per record in the common case. A batch of plain bytes is `bytes(map(len, values))` and one
join; nulls, large sizes and headers take slower paths, and only when they occur. Up to `_SMALL` records,
plain Python is faster than numpy's fixed cost for each call.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence, Sized
from itertools import chain
from operator import index
from struct import error, pack
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tailrace.cluster.common import directory as layout
from tailrace.cluster.common.assembly import (
    BLOCK_LIMIT,
    Column,
    Fields,
    LengthMismatchError,
    assemble,
    check_count,
    check_length,
    invalid,
    too_large,
    width_of,
)
from tailrace.cluster.common.batch import CONTROL, MAX_RECORDS, TRANSACTIONAL
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.directory import StringColumns
from tailrace.cluster.common.errors import TailraceError

HeaderPairs = Sequence[tuple[str, bytes | None]]

_SMALL: Final = 48
_LONG: Final = 512
_FORMATS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_TIMESTAMPS: Final = "timestamps are integers of 64 bits: milliseconds since 1970-01-01 UTC"


def encode_batch(
    *,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps: int | Sequence[int],
    headers: Sequence[HeaderPairs] | None = None,
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
    offset_deltas: Sequence[int] | None = None,
    last_offset_delta: int | None = None,
    append_timestamp: int = -1,
) -> bytes:
    """One batch of the records whose n-th value, key, timestamp and headers stand at n in the sequences.

    One integer as `timestamps` is every record's timestamp. `offset_deltas` are for batches that have lost
    records to compaction; without them record n has offset base_offset + n. Raises TailraceError, with
    INVALID_RECORD or RECORD_TOO_LARGE, for what no batch can hold.
    """
    try:
        count = len(values)
        check_count(count)
        columns: list[Column] = []
        tail: list[Column] = []
        header_total = 0
        if isinstance(timestamps, int):
            base_timestamp = max_timestamp = timestamps
        else:
            check_length("timestamps", len(timestamps), count)
            base_timestamp, max_timestamp = _add_timestamps(columns, timestamps, count)
        if keys is not None:
            check_length("keys", len(keys), count)
            _add_strings(columns, tail, keys, layout.KEYS)
        _add_strings(columns, tail, values, layout.VALUES)
        if offset_deltas is not None:
            check_length("offset deltas", len(offset_deltas), count)
            last_offset_delta = _add_offsets(columns, offset_deltas, last_offset_delta)
        if headers is not None:
            check_length("headers", len(headers), count)
            header_total = _add_headers(columns, headers)
        fields = Fields(
            codec,
            level,
            base_offset,
            leader_epoch,
            append_timestamp,
            (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0),
            count - 1 if last_offset_delta is None else last_offset_delta,
            producer_id,
            producer_epoch,
            base_sequence,
            delete_horizon,
        )
        columns += tail
        return assemble(columns, fields, count, header_total, (base_timestamp, max_timestamp))
    except (TypeError, ValueError, AttributeError, BufferError, error, LengthMismatchError) as reason:
        # Types are looked at only now: each look at each record would cost as much as all the rest.
        raise _wrong_input(values, keys, timestamps, headers, offset_deltas, reason) from reason


def _wrong_input(
    values: object, keys: object, timestamps: object, headers: object, deltas: object, reason: Exception
) -> TailraceError:
    """Why the encoder could not go on, in the words of whoever called it."""
    columns = {"values": values, "keys": keys, "headers": headers, "offset deltas": deltas}
    for what, column in columns.items():
        if not isinstance(column, Sized) and (column is not None or what == "values"):
            return invalid(f"{what} are a sequence with one for each record, not {type(column).__name__}")
    if not isinstance(timestamps, (int, Sized)):
        return invalid(f"{_TIMESTAMPS}, one for each record or one for all, not {timestamps!r}")
    for what, strings in (("key", keys), ("value", values)):
        if isinstance(strings, Iterable) and not all(map(_is_bytes, strings)):
            return _not_bytes(strings, what)
    if isinstance(headers, Iterable):
        header_values = [value for pairs in headers for _, value in pairs]
        if not all(map(_is_bytes, header_values)):
            return _not_bytes(header_values, layout.HEADER_VALUES.what)
    if isinstance(reason, (BufferError, LengthMismatchError)):
        return invalid("a key, value or header value has another length than it has bytes")
    return invalid(f"the batch cannot be encoded: {reason}")


def _add_timestamps(columns: list[Column], timestamps: Sequence[int], count: int) -> tuple[int, int]:
    try:
        if count > _SMALL:
            return add_timestamp_array(columns, np.frombuffer(_int64s(timestamps), np.int64))
        base = min(timestamps)
        top = max(timestamps)
        if base != top:
            deltas = [timestamp - base for timestamp in timestamps]
            columns.append(_integers(layout.TIMESTAMP_DELTAS, deltas, top - base))
        return base, top
    except (TypeError, OverflowError, error):
        raise invalid(_TIMESTAMPS) from None


def _int64s(timestamps: Any) -> Any:
    """The same integers in something with a buffer; unlike numpy, struct refuses fractions."""
    if isinstance(timestamps, array) and timestamps.typecode == "q":
        return timestamps
    if isinstance(timestamps, np.ndarray) and timestamps.dtype == np.int64 and timestamps.flags.c_contiguous:
        return timestamps
    return pack(f"={len(timestamps)}q", *timestamps)


def add_timestamp_array(columns: list[Column], timestamps: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Add the column of timestamp deltas, if they differ; returns the smallest and the largest."""
    base = int(timestamps.min())
    top = int(timestamps.max())
    if base != top:
        width = width_of(top - base)
        # The difference of two 64-bit integers may need all 64 bits; as unsigned it is right again.
        deltas = (timestamps - np.int64(base)).view(np.uint64) if width == 8 else timestamps - base
        data = deltas.astype(f"<u{width}").tobytes()
        columns.append((layout.TIMESTAMP_DELTAS, width, len(data), (data,)))
    return base, top


def _add_strings(
    columns: list[Column], tail: list[Column], strings: Sequence[bytes | None], places: StringColumns
) -> None:
    """Add validity and sizes of keys, values, header names or header values, and to `tail` their bytes."""
    count = len(strings)
    pieces: Sequence[bytes] = strings  # type: ignore[assignment]
    try:
        sizes = bytes(map(len, pieces))
        first = sizes[0]
        if sizes == sizes[:1] * count:
            columns.append((places.sizes, 0, first, ()))
            total = first * count
        else:
            columns.append((places.sizes, 1, count, (sizes,)))
            total = sum(sizes) if count < _LONG else int(np.frombuffer(sizes, np.uint8).sum())
    except (ValueError, TypeError):
        # A size beyond one byte, a null, or something that is not bytes.
        total, pieces = _add_other_strings(columns, strings, places)
    if total > BLOCK_LIMIT:
        raise too_large(f"the batch's {places.what}s have {total} bytes; a batch has less than 2 GiB")
    if total:
        tail.append((places.data, 0, total, pieces))


def _add_other_strings(
    columns: list[Column], strings: Sequence[bytes | None], places: StringColumns
) -> tuple[int, Sequence[bytes]]:
    nulls = sum(string is None for string in strings)
    if nulls == len(strings):
        return 0, ()
    pieces: Sequence[bytes] = strings  # type: ignore[assignment]
    try:
        if nulls:
            sizes = [0 if string is None else len(string) for string in strings]
            pieces = [string for string in strings if string is not None]
        else:
            sizes = list(map(len, pieces))
    except TypeError:
        raise _not_bytes(strings, places.what) from None
    if nulls:
        bitmap = pack_bits([string is not None for string in strings])
        columns.append((places.validity, 0, len(bitmap), (bitmap,)))
    columns.append(_integers(places.sizes, sizes, max(sizes)))
    return sum(sizes), pieces


def _not_bytes(strings: Iterable[object], what: str) -> TailraceError:
    of_record = what in (layout.KEYS.what, layout.VALUES.what)
    for number, string in enumerate(strings):
        if not _is_bytes(string):
            which = f"the {what} of record {number}" if of_record else f"{what} {number} of the batch"
            return invalid(f"{which} is {type(string).__name__}; {what}s are bytes or None")
    return invalid(f"a {what} has another length than it has bytes; {what}s are bytes or None")


def _is_bytes(string: object) -> bool:
    return string is None or isinstance(string, (bytes, bytearray, memoryview))


def _add_offsets(columns: list[Column], deltas: Sequence[int], last_offset_delta: int | None) -> int:
    try:
        ints = list(map(index, deltas))
    except TypeError:
        raise invalid("offset deltas are integers") from None
    last = ints[-1] if last_offset_delta is None else last_offset_delta
    if ints[0] < 0 or ints[-1] > last or any(map(int.__ge__, ints, ints[1:])):
        raise invalid(f"offset deltas grow from 0 or more to at most the last offset delta, {last}")
    # Deltas of 0, 1, 2, ... are what a batch without the column has.
    if ints[-1] != len(ints) - 1:
        columns.append(_integers(layout.OFFSET_DELTAS, ints, ints[-1]))
    return last


def _add_headers(columns: list[Column], headers: Sequence[HeaderPairs]) -> int:
    try:
        counts = list(map(len, headers))
        pairs = list(chain.from_iterable(headers))
        if not pairs:
            return 0
        if len(pairs) > MAX_RECORDS:
            raise too_large(f"a batch holds at most {MAX_RECORDS} headers, not {len(pairs)}")
        names = [name.encode() for name, _ in pairs]
        values = [value for _, value in pairs]
    except (TypeError, ValueError, AttributeError) as reason:
        raise invalid(
            f"headers are (name, value) pairs for each record, the name text in UTF-8: {reason}"
        ) from None
    tail: list[Column] = []
    columns.append(_integers(layout.HEADER_COUNTS, counts, max(counts)))
    _add_strings(columns, tail, names, layout.HEADER_NAMES)
    _add_strings(columns, tail, values, layout.HEADER_VALUES)
    columns += tail
    return len(pairs)


def _integers(column: int, integers: list[int], largest: int) -> Column:
    """A column of integers, none of them negative and none above `largest`."""
    first = integers[0]
    if first < 1 << 32 and integers.count(first) == len(integers):
        return column, 0, first, ()
    width = width_of(largest)
    data = bytes(integers) if width == 1 else pack(f"<{len(integers)}{_FORMATS[width]}", *integers)
    return column, width, len(data), (data,)


def integer_array_column(column: int, integers: npt.NDArray[Any]) -> Column:
    """The same for an array of at least one element, none of them negative."""
    largest = int(integers.max())
    if largest < 1 << 32 and largest == int(integers.min()):
        return column, 0, largest, ()
    width = width_of(largest)
    data = integers.astype(f"<u{width}").tobytes()
    return column, width, len(data), (data,)


def pack_bits(bits: Sequence[bool] | npt.NDArray[np.bool_]) -> bytes:
    """A bitmap in Arrow's order: bit n of the whole is bit n % 8 of byte n // 8."""
    return np.packbits(np.array(bits, np.bool_), bitorder="little").tobytes()
