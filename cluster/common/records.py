"""The decoder: one batch in, columns of Python objects or records out.

Consumers, coordinators and the cleaner read batches through `Batch`. Decoding is total: whatever the
bytes, the result is records or a TailraceError that says what is wrong, without a crash, a hang, or an
allocation beyond the limits of the format. `batch.read_directory` has checked what needs no column bytes;
the methods here check what does, as they read it.

A batch is decompressed once, when the first column is asked for, and no column is decoded before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import accumulate, compress, repeat
from operator import ge
from struct import unpack_from
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tailrace.cluster.common import directory as layout
from tailrace.cluster.common.assembly import Fields, assemble
from tailrace.cluster.common.batch import (
    DIRECTORY_ENTRY_SIZE,
    HEADER_SIZE,
    MAX_EXPANSION,
    MAX_RECORDS,
    BatchHeader,
    check_crc,
    corrupt,
    parse_header,
    read_directory,
)
from tailrace.cluster.common.codecs import Codec, decompress
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.directory import Directory, StringColumns
from tailrace.cluster.common.types import Bytes

RecordHeaders = tuple[tuple[str, bytes | None], ...]

_SMALL: Final = 48
_LONG: Final = 512
_NOTHING: Final = (0, 0, 0)
_FORMATS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


class Batch:
    """A view of one batch inside `data`.

    Without `header`, the batch is checked first, checksum included. With it, the caller has done so (or
    trusts the bytes); the directory is read again, because the columns are found through it.
    """

    __slots__ = ("_block", "_block_start", "_columns", "_data", "_position", "header")

    def __init__(self, data: Bytes, header: BatchHeader | None = None, position: int = 0) -> None:
        if header is None:
            header = parse_header(data, position)
            check_crc(data, header, position)
        elif position + header.size > len(data):
            raise corrupt(
                f"the batch at byte {position} is cut off: {len(data) - position} of {header.size} bytes"
            )
        self.header = header
        self._data = data
        self._position = position
        self._columns: Directory = read_directory(data, header, position)
        self._block: Bytes | None = None
        self._block_start = 0

    def __len__(self) -> int:
        return self.header.record_count

    def __repr__(self) -> str:
        header = self.header
        return f"Batch({header.record_count} records, offsets {header.base_offset} to {header.last_offset})"

    @property
    def data(self) -> memoryview:
        """The batch's own bytes, header included, without a copy."""
        return memoryview(self._data)[self._position : self._position + self.header.size]

    @property
    def directory(self) -> Directory:
        return self._columns

    def block(self) -> tuple[Bytes, int]:
        """What holds the decompressed columns, uncopied if possible, and where in it the first one starts."""
        block = self._block
        if block is None:
            header = self.header
            start = self._position + HEADER_SIZE + DIRECTORY_ENTRY_SIZE * len(self._columns)
            end = self._position + header.size
            if header.attributes & layout.CODEC_MASK:
                view = memoryview(self._data)[start:end]
                block = decompress(header.attributes & layout.CODEC_MASK, view, header.uncompressed_size)
            else:
                block = self._data
                self._block_start = start
            self._block = block
        return block, self._block_start

    def keys(self) -> list[bytes | None]:
        return self._strings(layout.KEYS, self.header.record_count)

    def values(self) -> list[bytes | None]:
        return self._strings(layout.VALUES, self.header.record_count)

    def timestamps(self) -> list[int]:
        """Each record's timestamp; all are the append timestamp in a batch that has one."""
        header = self.header
        count = header.record_count
        if header.append_timestamp >= 0:
            return [header.append_timestamp] * count
        base = header.base_timestamp
        entry = self._columns.get(layout.TIMESTAMP_DELTAS)
        if entry is None:
            return [base] * count
        if entry[0] and count > _SMALL:
            timestamps: list[int] = self.timestamp_array().tolist()
            return timestamps
        deltas = self._integers(layout.TIMESTAMP_DELTAS, count)
        if max(deltas) > header.max_timestamp - base:
            raise _timestamp_out_of_range(max(deltas), header)
        return [base + delta for delta in deltas]

    def timestamp_array(self) -> npt.NDArray[np.int64]:
        """What `timestamps` returns, as an array."""
        header = self.header
        count = header.record_count
        entry = self._columns.get(layout.TIMESTAMP_DELTAS)
        if header.append_timestamp >= 0 or entry is None:
            same = header.append_timestamp if header.append_timestamp >= 0 else header.base_timestamp
            return np.full(count, same, np.int64)
        deltas = self.integer_array(layout.TIMESTAMP_DELTAS, count)
        largest = int(np.maximum.reduce(deltas))
        if largest > header.max_timestamp - header.base_timestamp:
            raise _timestamp_out_of_range(largest, header)
        # Deltas may need 64 bits unsigned; the sum modulo 2^64 is right, since it is within the range.
        timestamps = deltas.astype(np.int64)
        timestamps += header.base_timestamp
        return timestamps

    def offsets(self) -> Sequence[int]:
        header = self.header
        if layout.OFFSET_DELTAS not in self._columns:
            return range(header.base_offset, header.base_offset + header.record_count)
        base = header.base_offset
        return [base + delta for delta in self.offset_deltas()]

    def offset_deltas(self) -> Sequence[int]:
        header = self.header
        count = header.record_count
        if layout.OFFSET_DELTAS not in self._columns:
            return range(count)
        deltas = self._integers(layout.OFFSET_DELTAS, count)
        if deltas[-1] > header.last_offset_delta or any(map(ge, deltas, deltas[1:])):
            raise _offsets_out_of_order(header)
        return deltas

    def offset_array(self) -> npt.NDArray[np.int64]:
        """What `offsets` returns, as an array."""
        header = self.header
        base = header.base_offset
        count = header.record_count
        if layout.OFFSET_DELTAS not in self._columns:
            return np.arange(base, base + count, dtype=np.int64)
        deltas = self.integer_array(layout.OFFSET_DELTAS, count)
        if int(deltas[-1]) > header.last_offset_delta or not (deltas[1:] > deltas[:-1]).all():
            raise _offsets_out_of_order(header)
        return deltas.astype(np.int64) + base

    def headers(self) -> list[RecordHeaders]:
        """Each record's headers; an empty tuple for a record without."""
        count = self.header.record_count
        if layout.HEADER_COUNTS not in self._columns:
            return [()] * count
        counts = self._integers(layout.HEADER_COUNTS, count)
        total = self._check_header_total(sum(counts))
        values = self._strings(layout.HEADER_VALUES, total)
        pairs = list(zip(self.header_names(total), values, strict=True))
        ends = accumulate(counts)
        return [tuple(pairs[end - size : end]) for size, end in zip(counts, ends, strict=True)]

    def header_count_array(self, count: int) -> npt.NDArray[np.int64]:
        """How many headers each record has."""
        if layout.HEADER_COUNTS not in self._columns:
            return np.zeros(count, np.int64)
        counts = self.integer_array(layout.HEADER_COUNTS, count)
        # Checked as a whole first, so that sums of 64-bit counts cannot wrap around.
        self._check_header_total(int(counts.max(initial=0)))
        wide = counts.astype(np.int64)
        self._check_header_total(int(wide.sum()))
        return wide

    def _check_header_total(self, total: int) -> int:
        if total > min(self.header.size * MAX_EXPANSION, MAX_RECORDS):
            raise corrupt(f"the batch would expand too far: {self.header.size} bytes for {total} headers")
        return total

    def header_names(self, total: int) -> list[str]:
        if layout.HEADER_KEY_SIZES not in self._columns:
            return [""] * total
        names = self._strings(layout.HEADER_NAMES, total)
        try:
            return [name.decode() for name in names if name is not None]
        except UnicodeDecodeError as reason:
            raise corrupt(f"the batch has a header name that is not UTF-8: {reason}") from None

    def records(self, topic: str, partition: int) -> list[Record]:
        columns = self.offsets(), self.timestamps(), self.keys(), self.values(), self.headers()
        rows = zip(repeat(topic), repeat(partition), *columns)
        # Half the cost of calling the class, whose own __new__ does nothing else.
        return list(map(tuple.__new__, repeat(Record), rows))

    def select(
        self, keep: npt.NDArray[np.bool_], *, delete_horizon: int | None = None, codec: int | None = None
    ) -> bytes:
        """This batch with only the records where `keep` is true, for the cleaner.

        Offsets, producer fields, epochs and the append timestamp stay. The base and max timestamps become
        those of the records that are left; a batch without any keeps the ones it had.
        """
        header = self.header
        if len(keep) != header.record_count:
            raise ValueError(f"the mask has {len(keep)} elements for {header.record_count} records")
        chosen = keep.tolist()
        kept = sum(chosen)
        horizon = header.delete_horizon if delete_horizon is None else delete_horizon
        if not kept:
            return self._emptied(horizon)
        stamps: int | list[int] = header.base_timestamp
        if layout.TIMESTAMP_DELTAS in self._columns:
            own = self if header.append_timestamp < 0 else self._with_own_timestamps()
            stamps = list(compress(own.timestamps(), chosen))
        return encode_batch(
            values=list(compress(self.values(), chosen)),
            keys=list(compress(self.keys(), chosen)) if layout.KEY_SIZES in self._columns else None,
            timestamps=stamps,
            headers=list(compress(self.headers(), chosen)) if layout.HEADER_COUNTS in self._columns else None,
            codec=header.codec if codec is None else codec,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
            delete_horizon=horizon,
            offset_deltas=list(compress(self.offset_deltas(), chosen)),
            last_offset_delta=header.last_offset_delta,
            append_timestamp=header.append_timestamp,
        )

    def _emptied(self, delete_horizon: int) -> bytes:
        header = self.header
        fields = Fields(
            Codec.NONE,
            None,
            header.base_offset,
            header.leader_epoch,
            header.append_timestamp,
            header.attributes & ~layout.CODEC_MASK,
            header.last_offset_delta,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            delete_horizon,
        )
        return assemble([], fields, 0, 0, (header.base_timestamp, header.max_timestamp))

    def _with_own_timestamps(self) -> Batch:
        return Batch(self._data, self.header._replace(append_timestamp=-1), self._position)

    def _strings(self, places: StringColumns, count: int) -> list[bytes | None]:
        """Keys, values, header names or header values."""
        validity, sizes_column, data_column, what = places
        entry = self._columns.get(sizes_column)
        if entry is None:
            return [None] * count
        encoding, size, _ = entry
        _, length, start = self._columns.get(data_column, _NOTHING)
        block, block_start = self.block()
        start += block_start
        strings: list[bytes | None]
        if encoding == 0:
            if size * count != length:
                raise _wrong_sum(what, size * count, length)
            strings = _split_evenly(block, start, size, count)
        else:
            sizes = self._integers(sizes_column, count)
            total = _sum(sizes)
            if total != length:
                raise _wrong_sum(what, total, length)
            if isinstance(block, bytes):
                # Shares the bytes instead of copying them.
                reader = BytesIO(block)
                reader.seek(start)
            else:
                reader = BytesIO(block[start : start + length])
            strings = list(map(reader.read, sizes))
        if validity in self._columns:
            for index in np.flatnonzero(~self.valid_array(validity, count)).tolist():
                if strings[index]:
                    raise corrupt(f"the batch has a null {what} with bytes, at {index}")
                strings[index] = None
        return strings

    def valid_array(self, validity: int, count: int) -> npt.NDArray[np.bool_]:
        _, length, start = self._columns[validity]
        if length != (count + 7) >> 3:
            raise corrupt(f"the batch has a validity bitmap of {length} bytes for {count} elements")
        block, block_start = self.block()
        bits = np.frombuffer(block, np.uint8, length, block_start + start)
        return np.unpackbits(bits, count=count, bitorder="little").view(np.bool_)

    def _integers(self, column: int, count: int) -> Sequence[int]:
        encoding, argument, start = self._columns[column]
        if encoding == 0:
            return [argument] * count
        if argument != encoding * count:
            raise _wrong_number(column, argument // encoding, count)
        block, block_start = self.block()
        start += block_start
        if encoding == 1:
            return bytes(block[start : start + count])
        return unpack_from(f"<{count}{_FORMATS[encoding]}", block, start)

    def integer_array(self, column: int, count: int) -> npt.NDArray[np.unsignedinteger]:
        """A column of integers as an array, without a copy unless it is a constant."""
        encoding, argument, start = self._columns[column]
        if encoding == 0:
            return np.full(count, argument, np.uint32)
        if argument != encoding * count:
            raise _wrong_number(column, argument // encoding, count)
        block, block_start = self.block()
        return np.frombuffer(block, f"<u{encoding}", count, block_start + start)


def _wrong_number(column: int, found: int, count: int) -> Exception:
    return corrupt(f"the batch has {found} {layout.COLUMN_NAMES[column]} for {count} elements")


def _wrong_sum(what: str, total: int, length: int) -> Exception:
    return corrupt(f"the batch has {length} bytes of {what}s, but their sizes add up to {total}")


def _offsets_out_of_order(header: BatchHeader) -> Exception:
    return corrupt(f"the batch's offset deltas do not grow, or exceed {header.last_offset_delta}")


def _timestamp_out_of_range(delta: int, header: BatchHeader) -> Exception:
    return corrupt(
        f"the batch has a timestamp {delta} ms after its base, which is outside {header.base_timestamp} to "
        f"{header.max_timestamp}"
    )


def _sum(sizes: Sequence[int]) -> int:
    if len(sizes) < _LONG or not isinstance(sizes, bytes):
        return sum(sizes)
    return int(np.frombuffer(sizes, np.uint8).sum())


def _split_evenly(block: Bytes, start: int, size: int, count: int) -> list[bytes | None]:
    if size == 0:
        return [b""] * count
    if count == 1:
        return [bytes(block[start : start + size])]
    # An array of opaque items turns into a list of bytes twice as fast as anything else does.
    strings: list[bytes | None] = np.ndarray(count, f"V{size}", block, start).tolist()
    return strings


def iterate_batches(data: Bytes) -> Iterator[Batch]:
    """The batches that stand one behind the other in `data`; anything else in there is an error."""
    position = 0
    end = len(data)
    while position < end:
        batch = Batch(data, None, position)
        position += batch.header.size
        yield batch
