"""A fuzz target for everything that reads batches.

    python -m tests.fuzz.decoder [libFuzzer options]      with atheris installed

`read_everything` is the target: whatever the bytes, it returns or raises TailraceError. `mend` makes both
checksums right, so that mutations reach the code behind them. test_decoder.py runs the same target over
seeded mutations in a few seconds, without atheris.
"""

from __future__ import annotations

import struct
import sys
from importlib import import_module

import google_crc32c
import numpy as np

from tailrace.cluster.common.arrow import to_arrow
from tailrace.cluster.common.control import decode_markers
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch, iterate_batches

HEADER_SIZE = 92


def mend(data: bytes) -> bytes:
    """The same bytes with version 1, their own length as size, and checksums that fit."""
    if len(data) < HEADER_SIZE:
        return data
    mended = bytearray(data)
    mended[36] = 1
    struct.pack_into("<I", mended, 8, len(mended))
    mended[7] &= 0x3F  # an offset that is neither negative nor beyond the largest
    struct.pack_into("<I", mended, 28, google_crc32c.value(bytes(mended[:28])))
    struct.pack_into("<I", mended, 32, google_crc32c.value(bytes(mended[36:])))
    return bytes(mended)


def read_everything(data: bytes) -> int:
    """Read every batch in every way there is; returns how many records were read without an error."""
    read = 0
    try:
        for batch in iterate_batches(data):
            read += _read_batch(batch)
    except TailraceError:
        return read
    return read


def _read_batch(batch: Batch) -> int:
    try:
        records = batch.records("topic", 0)
    except TailraceError:
        # What one reader refuses, no other reader may accept, except that Arrow tests more.
        try:
            to_arrow([batch], "topic", 0, include_headers=True)
        except TailraceError:
            return 0
        raise AssertionError("Arrow accepts a batch that has no records") from None
    count = batch.header.record_count
    if len(records) != count:
        raise AssertionError(f"{len(records)} records where the header says {count}")
    try:
        table = to_arrow([batch], "topic", 0, include_headers=True)
        table.validate(full=True)
        if table["value"].to_pylist() != [record.value for record in records]:
            raise AssertionError("Arrow reads other values")
    except TailraceError as error:
        if error.code is not ErrorCode.INVALID_TIMESTAMP:
            raise AssertionError(f"Arrow refuses a batch that has records: {error}") from None
    keep = np.arange(count) % 2 == 0
    kept = Batch(batch.select(keep)).records("topic", 0)
    if kept != records[::2]:
        raise AssertionError("select changes records")
    if batch.header.is_control:
        try:
            decode_markers(batch)
        except TailraceError:
            return count
    return count


def main() -> None:
    atheris = import_module("atheris")  # installed by hand, for this script only

    def target(data: bytes) -> None:
        read_everything(data)
        read_everything(mend(data))

    atheris.instrument_all()
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
