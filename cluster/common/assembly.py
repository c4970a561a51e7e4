"""The last step of every encoder: columns and header fields in, the bytes of a batch out.

`columns` and `arrow_encoder` make the columns; what they share is here: the directory, compression within the
bounds that readers enforce, both checksums, and the one copy that joins everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from io import SEEK_END, BytesIO
from struct import Struct, error
from typing import Final, NamedTuple

import numpy as np
from google_crc32c import value as _crc32c

from tailrace.cluster.common import directory as layout
from tailrace.cluster.common.batch import (
    DIRECTORY_ENTRY_SIZE,
    HEADER_SIZE,
    MAX_BASE_OFFSET,
    MAX_BATCH_SIZE,
    MAX_EXPANSION,
    VERSION,
    leader_part,
)
from tailrace.cluster.common.codecs import Codec, compress
from tailrace.cluster.common.errors import ErrorCode, TailraceError

BLOCK_LIMIT: Final = MAX_BATCH_SIZE - HEADER_SIZE - layout.COLUMN_COUNT * DIRECTORY_ENTRY_SIZE
# Below this size a batch is joined twice rather than looked at through a view.
_COPY_LIMIT: Final = 16384
_PRODUCER_FIELDS: Final = "<BBHIIqqqiiqI"
_U32: Final = Struct("<I")

# Number, encoding, argument, and the pieces whose concatenation is the column. Pieces stay apart until the
# whole batch is joined, so that each value is copied once.
Piece = bytes | memoryview
Column = tuple[int, int, int, Sequence[Piece]]


class Fields(NamedTuple):
    """What a batch's header says beside what follows from its columns."""

    codec: int
    level: int | None
    base_offset: int
    leader_epoch: int
    append_timestamp: int
    flags: int
    last_offset_delta: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    delete_horizon: int


def invalid(message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_RECORD, message)


def too_large(message: str) -> TailraceError:
    return TailraceError(ErrorCode.RECORD_TOO_LARGE, message)


def width_of(largest: int) -> int:
    if largest < 1 << 8:
        return 1
    if largest < 1 << 16:
        return 2
    return 4 if largest < 1 << 32 else 8


def check_count(count: int) -> None:
    """What a producer sends has records; only the cleaner leaves batches without any."""
    if count == 0:
        raise invalid("a batch needs at least one record, and there are no values")
    if count > layout.MAX_RECORDS:
        raise too_large(
            f"a batch holds at most {layout.MAX_RECORDS} records, not {count}; send them in several batches"
        )


def check_length(what: str, length: int, count: int) -> None:
    if length != count:
        raise invalid(f"there are {length} {what} for {count} values; each record needs one of each")


class LengthMismatchError(Exception):
    """The pieces of a column do not have the length that their sizes say."""


@cache
def _layout(columns: int) -> Struct:
    """The producer's part of the header and a directory of so many columns."""
    return Struct(_PRODUCER_FIELDS + "BI" * columns)


def assemble(
    columns: list[Column], fields: Fields, count: int, header_total: int, timestamps: tuple[int, int]
) -> bytes:
    """Columns in ascending order, compressed as one, behind a header that describes them.

    `count` and `header_total` are the numbers of records and of headers, `timestamps` the smallest and the
    largest of the records.
    """
    (codec, level, base_offset, leader_epoch, append_timestamp, flags, last_offset_delta, *producer) = fields
    bitmask = 0
    uncompressed = 0
    directory: list[int] = []
    pieces: list[Piece] = [b""]  # the first place is for the header
    for number, encoding, argument, data in columns:
        bitmask |= 1 << number
        directory += (encoding, argument)
        if data:
            uncompressed += argument
            pieces += data
    if uncompressed > BLOCK_LIMIT:
        raise too_large(f"the batch's columns have {uncompressed} bytes; a batch has less than 2 GiB")
    size = before_block = HEADER_SIZE + DIRECTORY_ENTRY_SIZE * len(columns)
    if codec and uncompressed:
        codec, block = _compress(codec, level, b"".join(pieces), before_block, uncompressed)
        pieces = [b"", block]
        size += len(block)
    else:
        codec = Codec.NONE
        size += uncompressed
    if (count > size * MAX_EXPANSION or header_total > size * MAX_EXPANSION) and count:
        # Written out and uncompressed, each record or header takes a byte, which is within every bound.
        columns = _write_out(columns, count, header_total)
        fields = fields._replace(codec=Codec.NONE)
        return assemble(columns, fields, count, header_total, timestamps)
    try:
        _check_fields(fields, count)
        described = _layout(len(columns)).pack(
            VERSION,
            codec | flags,
            bitmask,
            count,
            last_offset_delta,
            *timestamps,
            *producer,
            uncompressed,
            *directory,
        )
    except (error, TypeError) as reason:
        raise _misfit(fields, timestamps, reason) from None
    try:
        leader = leader_part(
            size=size, base_offset=base_offset, leader_epoch=leader_epoch, append_timestamp=append_timestamp
        )
    except TailraceError as reason:
        raise _misfit(fields, timestamps, reason) from None
    return _join(leader, described, pieces, size)


def _misfit(fields: Fields, timestamps: tuple[int, int], reason: Exception) -> TailraceError:
    """Asked only when packing has failed, so that no batch pays for looking at each field."""
    for name, field in fields._asdict().items():
        if not hasattr(field, "__index__") and name != "level":
            return invalid(f"{name} is {field!r}; it must be an integer")
    return invalid(
        f"a field of the batch does not fit its place ({reason}): timestamps {timestamps[0]} to "
        f"{timestamps[1]}, {fields}"
    )


def _compress(
    codec: int, level: int | None, data: bytes, before: int, uncompressed: int
) -> tuple[int, bytes]:
    if len(data) != uncompressed:
        raise LengthMismatchError
    block = compress(codec, data, level)
    if uncompressed > (before + len(block)) * MAX_EXPANSION:
        # It compresses better than readers allow for; lz4 cannot, and so stays within the bound.
        return Codec.LZ4, compress(Codec.LZ4, data)
    return codec, block


def _join(leader: bytes, described: bytes, pieces: list[Piece], size: int) -> bytes:
    """The batch's bytes, each copied once: the checksum is put in when everything is in its place."""
    if size < _COPY_LIMIT:
        pieces[0] = described
        checked = b"".join(pieces)
        if len(checked) != size - 36:
            raise LengthMismatchError
        return leader + _U32.pack(_crc32c(checked)) + checked
    pieces[0] = b"".join((leader, bytes(4), described))
    # BytesIO takes over bytes that nobody else holds, writes into them in place, and hands them out again.
    whole = BytesIO(b"".join(pieces))
    if whole.seek(0, SEEK_END) != size:
        raise LengthMismatchError
    with whole.getbuffer() as view:
        crc = _crc32c(np.frombuffer(view, np.uint8, size - 36, 36))
    whole.seek(32)
    whole.write(_U32.pack(crc))
    return whole.getvalue()


def _check_fields(fields: Fields, count: int) -> None:
    """Refuse here what every reader would refuse."""
    if fields.last_offset_delta < count - 1:
        raise invalid(f"{count} records do not fit a last offset delta of {fields.last_offset_delta}")
    if (
        fields.producer_id < -1
        or fields.producer_epoch < -1
        or fields.base_sequence < -1
        or fields.delete_horizon < -1
        or fields.leader_epoch < -1
        or fields.append_timestamp < -1
        or not 0 <= fields.base_offset <= MAX_BASE_OFFSET
    ):
        raise invalid(f"a field of the batch is negative and not -1, or beyond the largest offset: {fields}")


def _write_out(columns: Iterable[Column], count: int, header_total: int) -> list[Column]:
    """The same columns with constants repeated, and one of zeros if there is nothing to repeat."""
    result: list[Column] = []
    for number, encoding, argument, data in columns:
        if encoding == 0 and number in layout.INTEGERS:
            width = width_of(argument)
            elements = header_total if number in layout.HEADER_INTEGERS else count
            written = argument.to_bytes(width, "little") * elements
            result.append((number, width, len(written), (written,)))
        else:
            result.append((number, encoding, argument, data))
    if not result:
        result.append((layout.TIMESTAMP_DELTAS, 1, count, (bytes(count),)))
    return result
