"""Batches built by hand from docs/batch-format.md, valid or not, without a line of the encoder under test.

Tests and the script that writes the vectors use this to say exactly what stands where.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import google_crc32c

LEADER = struct.Struct("<qIiqI")
PRODUCER = struct.Struct("<BBHIIqqqiiqI")

# Column number: encoding, argument, bytes.
Columns = Mapping[int, tuple[int, int, bytes]]


def forge(given: Columns | None = None, /, *, block: bytes | None = None, **fields: Any) -> bytes:
    """A batch with these columns and header fields, both checksums right.

    Fields not given follow from the columns, for one record without key and value at offset and timestamp 0.
    `block` replaces the concatenated columns, for compressed batches.
    """
    columns = given or {}
    plain = b"".join(columns[number][2] for number in sorted(columns))
    directory = b"".join(struct.pack("<BI", *columns[number][:2]) for number in sorted(columns))
    count = fields.get("record_count", 1)
    producer_part = PRODUCER.pack(
        fields.get("version", 1),
        fields.get("attributes", 0),
        fields.get("columns", sum(1 << number for number in columns)),
        count,
        fields.get("last_offset_delta", max(count - 1, 0)),
        fields.get("base_timestamp", 0),
        fields.get("max_timestamp", fields.get("base_timestamp", 0)),
        fields.get("producer_id", -1),
        fields.get("producer_epoch", -1),
        fields.get("base_sequence", -1),
        fields.get("delete_horizon", -1),
        fields.get("uncompressed_size", len(plain)),
    )
    checked = producer_part + directory + (plain if block is None else block)
    leader_part = LEADER.pack(
        fields.get("base_offset", 0),
        fields.get("size", 36 + len(checked)),
        fields.get("leader_epoch", -1),
        fields.get("append_timestamp", -1),
        fields.get("sync_mark", 0),
    )
    header_crc = fields.get("header_crc", google_crc32c.value(leader_part))
    crc = fields.get("crc", google_crc32c.value(checked))
    return leader_part + struct.pack("<II", header_crc, crc) + checked
