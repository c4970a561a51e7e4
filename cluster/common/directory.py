"""The column directory of a batch: which columns there are, and every rule that needs none of their bytes.

`batch.check_batch` calls `read_directory` for a broker, which stores what passes without decompressing it;
`records.Batch` calls it to find its columns. Between the two, no rule of docs/batch-format.md is left out:
what is not checked here needs the columns themselves, and decoders check it as they read them.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import Bytes

if TYPE_CHECKING:
    from tailrace.cluster.common.batch import BatchHeader

HEADER_SIZE: Final = 92
DIRECTORY_ENTRY_SIZE: Final = 5

# Neither the column block nor the number of records (or of headers) may exceed the batch's own size by
# more than this factor, so that a small message cannot make its reader allocate without bound.
MAX_EXPANSION: Final = 1024
# An absolute limit for records, and for headers, of one batch. Constants and nulls take no bytes, so the
# factor alone would let one megabyte stand for a thousand million of them.
MAX_RECORDS: Final = 1 << 24

CODEC_MASK: Final = 0x0F
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
KNOWN_ATTRIBUTES: Final = CODEC_MASK | TRANSACTIONAL | CONTROL
HIGHEST_CODEC: Final = 4

TIMESTAMP_DELTAS: Final = 0
KEY_VALIDITY: Final = 1
KEY_SIZES: Final = 2
VALUE_VALIDITY: Final = 3
VALUE_SIZES: Final = 4
OFFSET_DELTAS: Final = 5
HEADER_COUNTS: Final = 6
HEADER_KEY_SIZES: Final = 7
HEADER_VALUE_VALIDITY: Final = 8
HEADER_VALUE_SIZES: Final = 9
HEADER_KEY_BYTES: Final = 10
HEADER_VALUE_BYTES: Final = 11
KEY_BYTES: Final = 12
VALUE_BYTES: Final = 13
COLUMN_COUNT: Final = 14

COLUMN_NAMES: Final = (
    "timestamp deltas",
    "key validity",
    "key sizes",
    "value validity",
    "value sizes",
    "offset deltas",
    "header counts",
    "header key sizes",
    "header value validity",
    "header value sizes",
    "header key bytes",
    "header value bytes",
    "key bytes",
    "value bytes",
)

# A column on the left says nothing without the column on the right.
_REQUIRES: Final = (
    (KEY_VALIDITY, KEY_SIZES),
    (KEY_BYTES, KEY_SIZES),
    (VALUE_VALIDITY, VALUE_SIZES),
    (VALUE_BYTES, VALUE_SIZES),
    (HEADER_KEY_SIZES, HEADER_COUNTS),
    (HEADER_VALUE_SIZES, HEADER_COUNTS),
    (HEADER_VALUE_VALIDITY, HEADER_VALUE_SIZES),
    (HEADER_KEY_BYTES, HEADER_KEY_SIZES),
    (HEADER_VALUE_BYTES, HEADER_VALUE_SIZES),
)
RECORD_INTEGERS: Final = frozenset((TIMESTAMP_DELTAS, KEY_SIZES, VALUE_SIZES, OFFSET_DELTAS, HEADER_COUNTS))
HEADER_INTEGERS: Final = frozenset((HEADER_KEY_SIZES, HEADER_VALUE_SIZES))
INTEGERS: Final = RECORD_INTEGERS | HEADER_INTEGERS
_RECORD_VALIDITY: Final = frozenset((KEY_VALIDITY, VALUE_VALIDITY))
_SIZES_AND_BYTES: Final = ((KEY_SIZES, KEY_BYTES), (VALUE_SIZES, VALUE_BYTES))

_RECORD_INTEGER, _HEADER_INTEGER, _VALIDITY_OF_RECORDS, _VALIDITY_OF_HEADERS, _BYTES = range(5)
_WIDTHS: Final = frozenset((1, 2, 4, 8))


class StringColumns(NamedTuple):
    """The columns that together hold the keys, the values, or the names or values of headers."""

    validity: int
    sizes: int
    data: int
    what: str


KEYS: Final = StringColumns(KEY_VALIDITY, KEY_SIZES, KEY_BYTES, "key")
VALUES: Final = StringColumns(VALUE_VALIDITY, VALUE_SIZES, VALUE_BYTES, "value")
# Names are never null, and so have no validity; -1 is the number of no column.
HEADER_NAMES: Final = StringColumns(-1, HEADER_KEY_SIZES, HEADER_KEY_BYTES, "header name")
HEADER_VALUES: Final = StringColumns(
    HEADER_VALUE_VALIDITY, HEADER_VALUE_SIZES, HEADER_VALUE_BYTES, "header value"
)

# A column by its number: encoding, argument, and where its bytes start, counted from the block's first byte.
# Plain tuples, because every batch that a broker stores makes a handful of them.
ColumnEntry = tuple[int, int, int]
Directory = dict[int, ColumnEntry]


def corrupt(message: str) -> TailraceError:
    return TailraceError(ErrorCode.CORRUPT_BATCH, message)


def read_directory(data: Bytes, header: BatchHeader, position: int = 0) -> Directory:
    """Check the producer's fields and the directory against each other, and return the columns by number.

    Every rule that needs no column bytes is checked here, so that decoders only check the rest: sums of
    sizes, order of offsets, ranges of timestamps, and text.
    """
    # Unpacking all at once costs less than looking each field up.
    (
        _,
        size,
        _,
        _,
        _,
        _,
        _,
        _,
        attributes,
        columns,
        count,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        delete_horizon,
        uncompressed,
    ) = header
    if attributes & CODEC_MASK > HIGHEST_CODEC:
        raise TailraceError(
            ErrorCode.UNKNOWN_CODEC,
            f"the batch at byte {position} names codec {attributes & CODEC_MASK}; known are 0 none, 1 gzip, "
            "2 snappy, 3 lz4, 4 zstd",
        )
    if attributes > KNOWN_ATTRIBUTES or columns >= 1 << COLUMN_COUNT:
        raise TailraceError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the batch at byte {position} uses attributes {attributes:#04x} and columns {columns:#06x}, "
            "some of which this software does not know; a newer version wrote it",
        )
    largest = size * MAX_EXPANSION
    if count > largest or uncompressed > largest or count > MAX_RECORDS:
        raise corrupt(
            f"the batch at byte {position} would expand too far: {size} bytes for {count} records and "
            f"{uncompressed} bytes of columns; the limits are {MAX_EXPANSION} times the size, and "
            f"{MAX_RECORDS} records"
        )
    if (
        max_timestamp < base_timestamp
        or producer_id < -1
        or producer_epoch < -1
        or base_sequence < -1
        or delete_horizon < -1
    ):
        raise corrupt(
            f"the batch at byte {position} has impossible fields: timestamps {base_timestamp} to "
            f"{max_timestamp}, producer {producer_id}, epoch {producer_epoch}, sequence {base_sequence}, "
            f"delete horizon {delete_horizon}"
        )
    if last_offset_delta < count - 1 or (columns and not count):
        raise corrupt(
            f"the batch at byte {position} has {count} records, which do not go with its last offset delta "
            f"{last_offset_delta} and columns {columns:#06x}"
        )
    entries, kinds = _plan(columns)
    start = position + HEADER_SIZE
    block_size = size - HEADER_SIZE - entries.size
    if block_size < 0 or len(data) < start + entries.size:
        raise corrupt(f"the batch at byte {position} ends within its column directory")
    if attributes & CODEC_MASK == 0:
        if block_size != uncompressed:
            raise corrupt(
                f"the batch at byte {position} is not compressed, but has a block of {block_size} bytes "
                f"where its header says {uncompressed}"
            )
    elif uncompressed == 0:
        raise corrupt(f"the batch at byte {position} names a codec, but has nothing to compress")
    return _check_entries(entries.unpack_from(data, start), kinds, header, position)


def _check_entries(
    fields: tuple[int, ...], kinds: tuple[tuple[int, int], ...], header: BatchHeader, position: int
) -> Directory:
    count = header.record_count
    directory: Directory = {}
    at = 0
    block = 0
    header_total = -1
    for column, kind in kinds:
        encoding = fields[at]
        argument = fields[at + 1]
        at += 2
        directory[column] = (encoding, argument, block)
        if kind == _BYTES:
            good = encoding == 0
            block += argument
        elif kind == _RECORD_INTEGER:
            if encoding:
                good = argument == encoding * count and encoding in _WIDTHS
                block += argument
            else:
                good = True
                if column == HEADER_COUNTS:
                    header_total = argument * count
        elif kind == _VALIDITY_OF_RECORDS:
            good = encoding == 0 and argument == (count + 7) >> 3
            block += argument
        elif kind == _HEADER_INTEGER:
            good = encoding == 0
            if encoding in _WIDTHS:
                elements = argument // encoding
                good = elements * encoding == argument and header_total in (-1, elements)
                header_total = elements
                block += argument
        else:
            good = encoding == 0 and header_total in (-1, *range(argument * 8 - 7, argument * 8 + 1))
            block += argument
        if not good:
            raise corrupt(
                f"the batch at byte {position} has a wrong directory entry for {COLUMN_NAMES[column]}: "
                f"encoding {encoding}, argument {argument}, for {count} records"
            )
    if block != header.uncompressed_size:
        raise corrupt(
            f"the batch at byte {position} has columns of {block} bytes in all, where its header says "
            f"{header.uncompressed_size}"
        )
    if header_total > min(header.size * MAX_EXPANSION, MAX_RECORDS):
        raise corrupt(
            f"the batch at byte {position} would expand too far: {header.size} bytes for {header_total} "
            "headers"
        )
    for sizes, stored in _SIZES_AND_BYTES:
        entry = directory.get(sizes)
        if entry is not None and entry[0] == 0:
            length = directory[stored][1] if stored in directory else 0
            if length != entry[1] * count:
                raise corrupt(
                    f"the batch at byte {position} has {length} {COLUMN_NAMES[stored]}, but {count} records "
                    f"of {entry[1]} bytes each"
                )
    return directory


@lru_cache(maxsize=4096)
def _plan(columns: int) -> tuple[Struct, tuple[tuple[int, int], ...]]:
    """The directory's layout for one set of columns: how to unpack it, and each column's kind."""
    for column, required in _REQUIRES:
        if columns >> column & 1 and not columns >> required & 1:
            raise corrupt(
                f"the batch has a column of {COLUMN_NAMES[column]} without {COLUMN_NAMES[required]}"
            )
    kinds = tuple((column, _kind(column)) for column in range(COLUMN_COUNT) if columns >> column & 1)
    return Struct("<" + "BI" * len(kinds)), kinds


def _kind(column: int) -> int:
    if column in RECORD_INTEGERS:
        return _RECORD_INTEGER
    if column in HEADER_INTEGERS:
        return _HEADER_INTEGER
    if column in _RECORD_VALIDITY:
        return _VALIDITY_OF_RECORDS
    return _VALIDITY_OF_HEADERS if column == HEADER_VALUE_VALIDITY else _BYTES
