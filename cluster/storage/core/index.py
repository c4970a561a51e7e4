"""The sparse index of one segment: where in the file to start looking for an offset or a time.

The index holds some of the segment's batches (about one for each `index.interval.bytes`), three numbers
for each: its base offset relative to the segment's, its position in the file, and the largest timestamp of
all batches of the segment up to *and including* this one. Offsets and positions grow strictly from entry to
entry, the timestamps never fall. Every look-up therefore names a place at or before the one sought, from
which the segment walks batch headers; None means "start with the segment's first batch".

The segment owns its index, appends to it while writing, and appends `encode_frame` to the `.index` file from
time to time. The file is derived data: `decode_index` takes as much of it as can be trusted, and the segment
rebuilds the rest from the log.

Frames (shared with the index of aborted transactions), little-endian:
count u32, CRC-32C u32 of (purpose, count, payload), then `count` entries of a fixed size. The purpose is not
stored; it makes a frame of another segment or another kind of file look damaged instead of plausible.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import numpy as np

from tailrace.cluster.common.types import Bytes

_FRAME = struct.Struct("<II")
_COUNT = struct.Struct("<I")
_U32_MAX = 2**32 - 1
_ENTRY_SIZE = 4 + 4 + 8


class IndexFullError(OverflowError):
    """The entry lies further from the segment's start than 32 bits can say; roll the segment first."""


class IndexEntry(NamedTuple):
    offset: int
    position: int
    largest_timestamp: int
    """The largest timestamp in the segment from its first batch through the batch at this entry."""


class SparseIndex:
    """The index of one segment, in memory. Not safe for several threads; its log's owner calls it."""

    __slots__ = ("_offsets", "_positions", "_timestamps", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("I")
        self._positions = array("I")
        self._timestamps = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def entries(self) -> Iterator[IndexEntry]:
        for offset, position, timestamp in zip(self._offsets, self._positions, self._timestamps, strict=True):
            yield IndexEntry(self.base_offset + offset, position, timestamp)

    @property
    def last(self) -> IndexEntry | None:
        if not self._offsets:
            return None
        return IndexEntry(self.base_offset + self._offsets[-1], self._positions[-1], self._timestamps[-1])

    def append(self, offset: int, position: int, largest_timestamp: int) -> None:
        """Adds the batch with this base offset at this position.

        `largest_timestamp` is the running maximum of the whole segment including this batch, not the
        batch's own: batches between two entries must count, or `first_reaching` would step over them.
        """
        relative = offset - self.base_offset
        if not (0 <= relative <= _U32_MAX and 0 <= position <= _U32_MAX):
            raise IndexFullError(
                f"offset {offset} at position {position} is out of reach of the segment at {self.base_offset}"
            )
        offsets = self._offsets
        if offsets and (
            relative <= offsets[-1]
            or position <= self._positions[-1]
            or largest_timestamp < self._timestamps[-1]
        ):
            raise ValueError(
                f"index entry {(offset, position, largest_timestamp)} does not follow {self.last}"
            )
        self._timestamps.append(largest_timestamp)
        self._positions.append(position)
        offsets.append(relative)

    def floor_offset(self, offset: int) -> tuple[int, int] | None:
        """The last entry at or below an offset, as (offset, position)."""
        return self._entry(bisect_right(self._offsets, offset - self.base_offset) - 1)

    def floor_position(self, position: int) -> tuple[int, int] | None:
        """The last entry at or below a byte position, as (offset, position): a batch begins there."""
        return self._entry(bisect_right(self._positions, position) - 1)

    def first_reaching(self, timestamp: int) -> tuple[int, int] | None:
        """Where to start scanning for the first batch whose largest timestamp is `timestamp` or later.

        Let i be the first entry whose running maximum reaches the timestamp. No batch up to and including
        entry i-1 does, and some batch after it, up to and including entry i, does; so the scan starts at
        entry i-1. When no entry reaches it, only batches after the last entry can.
        """
        return self._entry(bisect_left(self._timestamps, timestamp) - 1)

    def truncate(self, offset: int) -> None:
        """Drops the entries at or beyond an offset; the file, if it held them, must be written anew."""
        keep = bisect_left(self._offsets, offset - self.base_offset)
        del self._offsets[keep:]
        del self._positions[keep:]
        del self._timestamps[keep:]

    def encode_frame(self, start_entry: int = 0) -> bytes:
        """The entries from that number on as one frame to append to the file; empty without entries."""
        columns = (self._offsets[start_entry:], self._positions[start_entry:], self._timestamps[start_entry:])
        payload = b"".join(_little_endian(column).tobytes() for column in columns)
        return pack_frame(_purpose(self.base_offset), len(columns[0]), payload)

    def _entry(self, number: int) -> tuple[int, int] | None:
        if number < 0:
            return None
        return self.base_offset + self._offsets[number], self._positions[number]


def decode_index(data: Bytes, base_offset: int, log_size: int) -> tuple[SparseIndex, int]:
    """The index in the longest trustworthy prefix of a file, and that prefix's length in bytes.

    A frame counts when its checksum is right, its entries continue those before it, and all of them lie
    within a log of `log_size` bytes. Garbage of any kind ends the prefix and never raises.
    """
    index = SparseIndex(base_offset)
    valid = 0
    for count, payload, end in read_frames(data, _purpose(base_offset), _ENTRY_SIZE):
        offsets = np.frombuffer(payload, "<u4", count)
        positions = np.frombuffer(payload, "<u4", count, 4 * count)
        timestamps = np.frombuffer(payload, "<i8", count, 8 * count)
        last = index.last
        continues = last is None or (
            int(offsets[0]) > last.offset - base_offset
            and int(positions[0]) > last.position
            and int(timestamps[0]) >= last.largest_timestamp
        )
        if not (
            continues
            and int(positions[-1]) < log_size
            and bool((offsets[1:] > offsets[:-1]).all())
            and bool((positions[1:] > positions[:-1]).all())
            and bool((timestamps[1:] >= timestamps[:-1]).all())
        ):
            break
        index._offsets.frombytes(offsets.astype("=u4").tobytes())
        index._positions.frombytes(positions.astype("=u4").tobytes())
        index._timestamps.frombytes(timestamps.astype("=i8").tobytes())
        valid = end
    return index, valid


def pack_frame(purpose: bytes, count: int, payload: bytes) -> bytes:
    """One frame of `count` entries; nothing at all for none, because an empty frame ends a file."""
    if count == 0:
        return b""
    return _FRAME.pack(count, _checksum(purpose, count, payload)) + payload


def read_frames(data: Bytes, purpose: bytes, entry_size: int) -> Iterator[tuple[int, bytes, int]]:
    """(count, payload, end of the frame in `data`) for each frame, up to the first that is not whole."""
    view = memoryview(data)
    at = 0
    while at + _FRAME.size <= len(view):
        count, crc = _FRAME.unpack_from(view, at)
        end = at + _FRAME.size + count * entry_size
        if count == 0 or end > len(view):
            return
        payload = bytes(view[at + _FRAME.size : end])
        if _checksum(purpose, count, payload) != crc:
            return
        yield count, payload, end
        at = end


def _checksum(purpose: bytes, count: int, payload: bytes) -> int:
    crc: int = google_crc32c.extend(google_crc32c.value(purpose + _COUNT.pack(count)), payload)
    return crc


def _purpose(base_offset: int) -> bytes:
    return b"index %d" % base_offset


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column
