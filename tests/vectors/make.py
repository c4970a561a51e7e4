"""Write the test vectors: `python -m tests.vectors.make`, from the top of the project.

Each file holds one batch as hex. A valid one comes with its header and records, binary fields as hex and
null as null; an invalid one with the name of its error and the step that finds it ("check": without
decompressing, as a broker does; "decode": in reading the columns). docs/batch-format.md says how to use them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tailrace.cluster.common.batch import check_batch, leader_part
from tailrace.cluster.common.codecs import Codec, compress
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import encode_marker
from tailrace.cluster.common.records import Batch
from tests.vectors.forge import forge

HERE = Path(__file__).parent
NOW = 1_700_000_000_000


def valid() -> Iterator[tuple[str, str, bytes]]:
    yield "one-record", "A value without a key.", encode_batch(values=[b"hello"], timestamps=NOW)
    yield (
        "plain",
        "Three records with keys; values of different sizes, timestamps out of order.",
        encode_batch(
            values=[b"one", b"two", b"three"],
            keys=[b"k1", b"k2", b"k3"],
            timestamps=[NOW + 5, NOW, NOW + 300],
            base_offset=1000,
            leader_epoch=7,
        ),
    )
    yield (
        "nulls-and-empties",
        "Null and empty keys and values are different things.",
        encode_batch(values=[b"", None, b"x", None], keys=[None, b"", b"k", b"t"], timestamps=NOW),
    )
    yield (
        "all-null",
        "Neither keys nor values: no columns at all.",
        encode_batch(values=[None] * 3, timestamps=1),
    )
    yield (
        "headers",
        "Headers with repeated names, names outside ASCII, null and empty values.",
        encode_batch(
            values=[b"a", b"b", b"c"],
            timestamps=[1, 2, 3],
            headers=[[("trace", b"\x00\xff"), ("trace", None)], [], [("größe", b""), ("", b"z")]],
        ),
    )
    yield (
        "wide",
        "Two-byte sizes, four-byte offset deltas, and timestamps that differ by 2^64 - 1.",
        encode_batch(
            values=[b"v" * 256, b""],
            timestamps=[-(2**63), 2**63 - 1],
            offset_deltas=[0, 70_000],
        ),
    )
    yield (
        "producer",
        "An idempotent, transactional producer; sequences wrap around after 2^31 - 1.",
        encode_batch(
            values=[b"1", b"2", b"3"],
            timestamps=NOW,
            producer_id=4_000_000_000,
            producer_epoch=70_000,
            base_sequence=2**31 - 2,
            transactional=True,
        ),
    )
    sent = encode_batch(values=[b"1", b"2"], timestamps=[5, 6])
    yield (
        "append-time",
        "The leader's append time stands for the records' own timestamps.",
        leader_part(size=len(sent), base_offset=2**40, leader_epoch=3, append_timestamp=NOW, sync_mark=17)
        + sent[32:],
    )
    values = [b"%d" % number for number in range(10)]
    full = Batch(encode_batch(values=values, keys=values, timestamps=list(range(10)), producer_id=1))
    kept = np.array([number in {1, 5, 6} for number in range(10)])
    yield "compacted", "What compaction leaves of ten records.", full.select(kept, delete_horizon=NOW)
    yield "compacted-empty", "Compaction has left no record.", full.select(np.zeros(10, np.bool_))
    yield (
        "commit-marker",
        "A control batch that commits the transactions of two producers.",
        encode_marker(commit=True, producers=[(11, 0), (12, 5)], coordinator_epoch=2, timestamp=NOW),
    )
    yield (
        "abort-marker",
        "A control batch that aborts a transaction.",
        encode_marker(commit=False, producers=[(11, 1)], coordinator_epoch=2, timestamp=NOW),
    )
    yield (
        "not-smallest",
        "Valid, although no encoder of ours writes it: widths larger than needed, spare bitmap bits set.",
        forge(
            {3: (0, 1, b"\xfe"), 4: (8, 16, bytes(8) + (2).to_bytes(8, "little")), 13: (0, 2, b"ab")},
            record_count=2,
            last_offset_delta=4,
        ),
    )
    for codec in Codec:
        if codec:
            yield (
                f"codec-{codec.name.lower()}",
                "A compressed block; other versions of the codec may write other bytes.",
                encode_batch(
                    values=[b"value-%04d" % number for number in range(50)],
                    keys=[b"key-%d" % (number % 7) for number in range(50)],
                    timestamps=[NOW + number for number in range(50)],
                    codec=codec,
                ),
            )


def invalid() -> Iterator[tuple[str, str, str, str, bytes]]:
    good = encode_batch(values=[b"one", b"three"], keys=[b"a", b"b"], timestamps=NOW)
    check, decode = "check", "decode"
    corrupt = "CORRUPT_BATCH"
    yield "truncated", "The last byte is missing.", corrupt, check, good[:-1]
    yield "flipped-value", "A bit of a value is wrong.", corrupt, check, good[:-1] + bytes([good[-1] ^ 1])
    yield "flipped-offset", "A bit of the base offset is wrong.", corrupt, check, b"\1" + good[1:]
    yield "version", "A version of the future.", "UNSUPPORTED_VERSION", check, forge(version=2)
    yield "attribute", "An attribute of the future.", "UNSUPPORTED_VERSION", check, forge(attributes=0x40)
    yield (
        "column",
        "A column of the future.",
        "UNSUPPORTED_VERSION",
        check,
        forge({14: (0, 1, b"x")}),
    )
    yield "codec", "A codec that does not exist.", "UNKNOWN_CODEC", check, forge(attributes=5)
    yield (
        "too-many-records",
        "More than 1,024 records for each byte.",
        corrupt,
        check,
        forge(record_count=92 * 1024 + 1),
    )
    yield (
        "sizes-without-end",
        "Sizes add up to more than there are bytes.",
        corrupt,
        decode,
        forge({4: (1, 2, b"\3\4"), 13: (0, 6, b"abcdef")}, record_count=2),
    )
    yield (
        "bitmap-length",
        "A validity bitmap of two bytes for two records.",
        corrupt,
        check,
        forge({3: (0, 2, b"\3\0"), 4: (0, 0, b"")}, record_count=2),
    )
    yield (
        "null-with-bytes",
        "A null value that has a byte.",
        corrupt,
        decode,
        forge({3: (0, 1, b"\1"), 4: (0, 1, b""), 13: (0, 2, b"ab")}, record_count=2),
    )
    yield (
        "offsets-backwards",
        "Offset deltas that do not grow.",
        corrupt,
        decode,
        forge({5: (1, 2, b"\2\1")}, record_count=2, last_offset_delta=5),
    )
    yield (
        "timestamp-range",
        "A timestamp above the header's maximum.",
        corrupt,
        decode,
        forge({0: (1, 2, b"\0\6")}, record_count=2, max_timestamp=5),
    )
    yield (
        "header-name",
        "A header name that is not UTF-8.",
        corrupt,
        decode,
        forge({6: (0, 1, b""), 7: (0, 1, b""), 10: (0, 1, b"\xff")}),
    )
    yield (
        "bomb",
        "A block that decompresses to more than the header says.",
        corrupt,
        decode,
        forge(
            {4: (0, 500, b""), 13: (0, 1000, bytes(1000))},
            record_count=2,
            attributes=1,
            block=compress(Codec.GZIP, bytes(100_000)),
        ),
    )


def describe(data: bytes) -> dict[str, Any]:
    batch = Batch(data)
    records = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _hex(record.key),
            "value": _hex(record.value),
            "headers": [[name, _hex(value)] for name, value in record.headers],
        }
        for record in batch.records("", 0)
    ]
    return {"header": check_batch(data)._asdict(), "records": records}


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and contents of every file."""
    for name, text, data in valid():
        yield f"{name}.json", {"description": text, "hex": data.hex(), **describe(data)}
    for name, text, error, step, data in invalid():
        document = {"description": text, "hex": data.hex(), "error": error, "found_by": step}
        yield f"invalid-{name}.json", document


def main(write: Callable[[Path, str], Any] = Path.write_text) -> None:
    for name, document in documents():
        write(HERE / name, json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
