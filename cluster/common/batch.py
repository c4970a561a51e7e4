"""The fixed part of a batch: its header, its checksums, and what a broker checks before it stores one.

This module owns the header of docs/batch-format.md, `directory` the table of columns behind it; `columns`
writes whole batches, `records` and `arrow` read them. Brokers call `check_batch` on everything that
arrives, storage calls `parse_header` to walk a log, leaders call `leader_part` to put a batch in its place.

Invariants: the checksum of bytes 36 to the end is written once, by the producer (or the cleaner), and
nothing here changes what it covers. Nothing here decompresses, and nothing here allocates more than a
small multiple of the header, whatever the input says.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

import numpy as np
from google_crc32c import value as _crc32c

from tailrace.cluster.common.directory import (
    CODEC_MASK,
    CONTROL,
    DIRECTORY_ENTRY_SIZE,
    HEADER_SIZE,
    KEY_SIZES,
    KEY_VALIDITY,
    MAX_EXPANSION,
    MAX_RECORDS,
    TRANSACTIONAL,
    corrupt,
    read_directory,
)
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import Bytes

LEADER_PART_SIZE: Final = 32
VERSION: Final = 1
MAX_BATCH_SIZE: Final = (1 << 31) - 1
MAX_BASE_OFFSET: Final = (1 << 63) - 1 - (1 << 32)

_HEADER: Final = Struct("<qIiqIIIBBHIIqqqiiqI")
_LEADER_FIELDS: Final = Struct("<qIiqI")
_U32: Final = Struct("<I")
_unpack_header = _HEADER.unpack_from
_new_tuple = tuple.__new__

# Below this size a copied slice is cheaper for the checksum than a numpy view of the same bytes.
_COPY_LIMIT: Final = 8192


class BatchHeader(NamedTuple):
    """The 92 bytes in the order of the format; see docs/batch-format.md for what each field means."""

    base_offset: int
    size: int
    leader_epoch: int
    append_timestamp: int
    sync_mark: int
    header_crc: int
    crc: int
    version: int
    attributes: int
    columns: int
    record_count: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    delete_horizon: int
    uncompressed_size: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The codec's number; `Codec(header.codec)` names it."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record as it was produced, or -1 for a batch without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def largest_timestamp(self) -> int:
        return self.append_timestamp if self.append_timestamp >= 0 else self.max_timestamp

    @property
    def all_keys_present(self) -> bool:
        key_columns = self.columns & (1 << KEY_SIZES | 1 << KEY_VALIDITY)
        return key_columns == 1 << KEY_SIZES or self.record_count == 0


def parse_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Read and check the header at `position`; the rest of the batch need not be there."""
    try:
        header = _new_tuple(BatchHeader, _unpack_header(data, position))
    except error:
        raise corrupt(
            f"the batch at byte {position} is cut off: its header has {HEADER_SIZE} bytes, "
            f"and {max(len(data) - position, 0)} are there"
        ) from None
    base_offset, size, leader_epoch, append_timestamp, _, header_crc, _, version = header[:8]
    if _crc32c(bytes(data[position : position + 28])) != header_crc:
        raise corrupt(
            f"the batch at byte {position} has header checksum {header_crc:#010x}, "
            f"which is not that of its first 28 bytes"
        )
    if version != VERSION:
        raise TailraceError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the batch at byte {position} has format version {version}; this software reads {VERSION}",
        )
    if (
        not HEADER_SIZE <= size <= MAX_BATCH_SIZE
        or not 0 <= base_offset <= MAX_BASE_OFFSET
        or leader_epoch < -1
        or append_timestamp < -1
    ):
        raise corrupt(
            f"the batch at byte {position} has impossible leader fields: size {size}, base offset "
            f"{base_offset}, leader epoch {leader_epoch}, append timestamp {append_timestamp}"
        )
    return header


def check_batch(data: Bytes, position: int = 0) -> BatchHeader:
    """Everything that can be checked without decompressing; what a broker does before it stores a batch."""
    header = parse_header(data, position)
    check_crc(data, header, position)
    read_directory(data, header, position)
    return header


def check_crc(data: Bytes, header: BatchHeader, position: int = 0) -> None:
    """Check that the whole batch is there, and the checksum of all that its producer wrote."""
    size = header.size
    end = position + size
    if end > len(data):
        raise corrupt(
            f"the batch at byte {position} is cut off: it has {size} bytes, of which {len(data) - position} "
            "are there"
        )
    if size <= _COPY_LIMIT:
        computed = _crc32c(bytes(data[position + 36 : end]))
    else:
        # The checksum takes no memoryview, but arrays; this one looks at the same bytes.
        computed = _crc32c(np.frombuffer(data, np.uint8, size - 36, position + 36))
    if computed != header.crc:
        raise corrupt(
            f"the batch at byte {position} has checksum {header.crc:#010x}, "
            f"but its bytes 36 to {size} have {computed:#010x}"
        )


def leader_part(
    *, size: int, base_offset: int, leader_epoch: int, append_timestamp: int = -1, sync_mark: int = 0
) -> bytes:
    """The first 32 bytes, with their checksum; behind them a batch goes on as its producer sent it."""
    try:
        fields = _LEADER_FIELDS.pack(base_offset, size, leader_epoch, append_timestamp, sync_mark)
    except error as reason:
        raise corrupt(
            f"no leader part can hold size {size}, base offset {base_offset}, leader epoch {leader_epoch}, "
            f"append timestamp {append_timestamp}, sync mark {sync_mark}: {reason}"
        ) from None
    return fields + _U32.pack(_crc32c(fields))


def restamp(buffer: bytearray | memoryview, position: int, sync_mark: int) -> None:
    """Put another unsynced span, and the checksum that goes with it, into the batch at `position`."""
    _U32.pack_into(buffer, position + 24, sync_mark)
    _U32.pack_into(buffer, position + 28, _crc32c(bytes(buffer[position : position + 28])))


__all__ = [
    "CODEC_MASK",
    "CONTROL",
    "DIRECTORY_ENTRY_SIZE",
    "HEADER_SIZE",
    "LEADER_PART_SIZE",
    "MAX_BASE_OFFSET",
    "MAX_BATCH_SIZE",
    "MAX_EXPANSION",
    "MAX_RECORDS",
    "TRANSACTIONAL",
    "VERSION",
    "BatchHeader",
    "check_batch",
    "check_crc",
    "corrupt",
    "leader_part",
    "parse_header",
    "read_directory",
    "restamp",
]
