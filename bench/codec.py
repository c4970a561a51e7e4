"""Tailrace's batch codec beside aiokafka's compiled one and kafka-python's: same records, one run.

    python bench/codec.py [--json FILE] [--markdown FILE] [--rounds N] [--quick] [--varied]

Each side encodes and decodes the same records (100-byte values, 10-byte keys, timestamps that differ), checks
checksums when it decodes, and is timed in turn within each round, so that noise hits all sides. The table
shows medians over the rounds, of the thread's own CPU time, so that what other processes take does not count.
The collector of cyclic garbage stays on, as it is in a program, but what was imported here is frozen out of
its sight: otherwise whoever keeps a list of records pays for full collections over this script's own modules.

Arrow is compared with aiokafka's decoding as such ("iterate": every record is made, none is kept), which is
the cheapest way to read its batches, and not with the list of records, whose cost is partly the collector's.
"values" favours columns: aiokafka makes whole records to get at them. Equal sizes favour us too, because a
constant takes no column; --varied has keys of 5 to 15 and values of 50 to 150 bytes instead.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from rich.console import Console
from support import Section, put_markdown, write_json

from tailrace.cluster.common.arrow import encode_arrow, to_arrow
from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.codecs import Codec, compress, decompress
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.records import Batch, iterate_batches

VALUE_SIZE = 100
KEY_SIZE = 10
COUNTS = (1, 10, 150, 1_000, 10_000)
FETCH_BYTES = 1 << 20
ROUND_SECONDS = 0.015


class Records(NamedTuple):
    keys: list[bytes]
    values: list[bytes]
    timestamps: list[int]


def make_records(count: int, varied: bool = False) -> Records:
    rng = random.Random(count)
    now = 1_700_000_000_000

    def size(mean: int) -> int:
        return rng.randint(mean // 2, mean + mean // 2) if varied else mean

    return Records(
        [rng.randbytes(size(KEY_SIZE)) for _ in range(count)],
        [rng.randbytes(size(VALUE_SIZE)) for _ in range(count)],
        [now + index // 3 + rng.randrange(5) for index in range(count)],
    )


def encode_kafka(builder_class: Any, records: Records) -> bytes:
    builder = builder_class(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    append = builder.append
    for offset, (key, value, timestamp) in enumerate(
        zip(records.keys, records.values, records.timestamps, strict=True)
    ):
        append(offset, timestamp=timestamp, key=key, value=value, headers=[])
    return bytes(builder.build())


def decode_kafka(records_class: Any, data: bytes) -> list[Any]:
    """Records with all their fields: what both libraries hand to their users."""
    batch = records_class(data).next_batch()
    if not batch.validate_crc():
        raise AssertionError("checksum")
    return list(batch)


def decode_kafka_values(records_class: Any, data: bytes) -> list[bytes]:
    batch = records_class(data).next_batch()
    if not batch.validate_crc():
        raise AssertionError("checksum")
    return [record.value for record in batch]


def iterate_kafka(records_class: Any, data: bytes) -> int:
    """Every record of every batch is made and none is kept."""
    memory = records_class(data)
    total = 0
    while (batch := memory.next_batch()) is not None:
        if not batch.validate_crc():
            raise AssertionError("checksum")
        for _ in batch:
            total += 1
    return total


def encode_tailrace(records: Records) -> bytes:
    return encode_batch(keys=records.keys, values=records.values, timestamps=records.timestamps)


def decode_tailrace_values(data: bytes) -> list[bytes | None]:
    return Batch(data).values()


def decode_tailrace_records(data: bytes) -> list[Any]:
    return Batch(data).records("topic", 0)


def decode_tailrace_arrow(data: bytes) -> Any:
    return to_arrow(list(iterate_batches(data)), "topic", 0)


def interleaved(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds for one call of each side, the sides taking turns in every round."""
    loops = {}
    for name, call in sides.items():
        call()
        start = time.thread_time()
        call()
        loops[name] = max(1, int(ROUND_SECONDS / max(time.thread_time() - start, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, call in sides.items():
            repetitions = range(loops[name])
            start = time.thread_time()
            for _ in repetitions:
                call()
            samples[name].append((time.thread_time() - start) / loops[name])
        gc.collect()
    return {name: statistics.median(times) for name, times in samples.items()}


def compare(count: int, rounds: int, varied: bool) -> dict[str, float]:
    records = make_records(count, varied)
    ours = encode_tailrace(records)
    theirs = encode_kafka(AiokafkaBuilder, records)
    fetched = max(1, FETCH_BYTES // len(ours))
    arrow = to_arrow([Batch(ours)], "topic", 0)
    key_column, value_column, timestamp_column = arrow["key"], arrow["value"], arrow["timestamp"]
    if [record.value for record in decode_kafka(AiokafkaRecords, theirs)] != decode_tailrace_values(ours):
        raise AssertionError("the sides do not hold the same records")
    seconds = interleaved(
        {
            "encode tailrace": partial(encode_tailrace, records),
            "encode aiokafka": partial(encode_kafka, AiokafkaBuilder, records),
            "encode kafka-python": partial(encode_kafka, KafkaPythonBuilder, records),
            "encode tailrace arrow": partial(
                encode_arrow, keys=key_column, values=value_column, timestamps=timestamp_column
            ),
            "values tailrace": partial(decode_tailrace_values, ours),
            "values aiokafka": partial(decode_kafka_values, AiokafkaRecords, theirs),
            "records tailrace": partial(decode_tailrace_records, ours),
            "records aiokafka": partial(decode_kafka, AiokafkaRecords, theirs),
            "records kafka-python": partial(decode_kafka, KafkaPythonRecords, theirs),
            "arrow tailrace": partial(decode_tailrace_arrow, ours),
            "arrow tailrace, fetch": partial(decode_tailrace_arrow, ours * fetched),
            "iterate aiokafka": partial(iterate_kafka, AiokafkaRecords, theirs),
            "iterate aiokafka, fetch": partial(iterate_kafka, AiokafkaRecords, theirs * fetched),
        },
        rounds,
    )
    per_record = {
        name: value / count / (fetched if name.endswith("fetch") else 1) * 1e9
        for name, value in seconds.items()
    }
    per_record["arrow GB/s"] = len(ours) / seconds["arrow tailrace"] / 1e9
    per_record["arrow GB/s, fetch"] = len(ours) * fetched / seconds["arrow tailrace, fetch"] / 1e9
    return per_record


def codecs(rounds: int) -> dict[str, dict[str, float]]:
    """Sizes and times of the five codecs over 1,000 records of something like JSON."""
    rng = random.Random(1)
    values = [
        json.dumps(
            {
                "id": rng.randrange(10**9),
                "user": f"user-{rng.randrange(5000)}",
                "event": rng.choice(["view", "click", "buy", "return"]),
                "amount": round(rng.random() * 100, 2),
                "at": 1_700_000_000_000 + index * 13,
            }
        ).encode()
        for index in range(1_000)
    ]
    data = b"".join(values)
    blocks = {codec: compress(codec, data) for codec in Codec}
    sides: dict[str, Callable[[], Any]] = {}
    for codec in Codec:
        sides[f"compress {codec.name}"] = partial(compress, codec, data)
        sides[f"decompress {codec.name}"] = partial(decompress, codec, blocks[codec], len(data))
    seconds = interleaved(sides, rounds)
    return {
        codec.name.lower(): {
            "size": len(blocks[codec]) / len(data),
            "compress MB/s": len(data) / seconds[f"compress {codec.name}"] / 1e6,
            "decompress MB/s": len(data) / seconds[f"decompress {codec.name}"] / 1e6,
        }
        for codec in Codec
    }


def checks(rounds: int) -> dict[str, float]:
    small = encode_tailrace(make_records(8))
    large = encode_tailrace(make_records(9_440))
    seconds = interleaved(
        {
            f"check_batch {len(small):,} bytes": partial(check_batch, small),
            f"check_batch {len(large):,} bytes": partial(check_batch, large),
            f"check_batch {len(large):,} bytes, memoryview": partial(check_batch, memoryview(large)),
        },
        rounds,
    )
    return {name: value * 1e6 for name, value in seconds.items()}


RATIOS = (
    ("encode", "encode aiokafka", "encode tailrace"),
    ("values", "values aiokafka", "values tailrace"),
    ("records", "records aiokafka", "records tailrace"),
    ("Arrow against iterating", "iterate aiokafka", "arrow tailrace"),
    ("Arrow against iterating, a fetch of 1 MiB", "iterate aiokafka, fetch", "arrow tailrace, fetch"),
)


def record_sections(rounds: int, varied: bool) -> list[Section]:
    results = {count: compare(count, rounds, varied) for count in COUNTS}
    sizes = "sizes around 100 and 10 bytes" if varied else "100-byte values with 10-byte keys"
    columns = ("records a batch", *(f"{count:,}" for count in COUNTS))
    times = Section(
        title="nanoseconds a record",
        note=f"{sizes}, every record with a timestamp of its own; thread CPU time, checksums included.",
        columns=columns,
    )
    for name in results[COUNTS[0]]:
        times.rows.append((name, *(results[count][name] for count in COUNTS)))
    ratios = Section(
        title="times as fast as aiokafka's compiled codec",
        note="aiokafka's time divided by ours. Iterating makes aiokafka's records and keeps none of them.",
        columns=columns,
    )
    for title, theirs, ours in RATIOS:
        ratios.rows.append((title, *(results[count][theirs] / results[count][ours] for count in COUNTS)))
    for count in COUNTS[-2:]:
        result, name = results[count], f"{count:,} a batch"
        ratios.at_least(f"encode, {name}", result["encode aiokafka"] / result["encode tailrace"], 1.5, "x")
        ratios.at_least(f"values, {name}", result["values aiokafka"] / result["values tailrace"], 0.8, "x")
        ratios.at_most(f"record objects, {name}", result["records tailrace"], 500, " ns")
        ratios.at_least(f"Arrow, {name}", result["iterate aiokafka"] / result["arrow tailrace"], 10, "x")
        ratios.at_least(f"Arrow, {name}", result["arrow GB/s"], 2, " GB/s")
    return [times, ratios]


def codec_sections(rounds: int) -> list[Section]:
    sizes = Section(
        title="codecs",
        note="1,000 JSON values, default levels.",
        columns=("codec", "size, %", "compress MB/s", "decompress MB/s"),
    )
    for name, row in codecs(rounds).items():
        sizes.rows.append((name, row["size"] * 100, row["compress MB/s"], row["decompress MB/s"]))
    checked = Section(
        title="what a broker checks before it stores a batch",
        note="Header, checksums and directory, without decompressing.",
        columns=("batch", "us"),
    )
    checked.rows += list(checks(rounds).items())
    return [sizes, checked]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="renew the tables in this document")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="three rounds, for a look")
    parser.add_argument("--varied", action="store_true", help="keys and values of different sizes")
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    module = AiokafkaBuilder.__module__
    if "_crecords" not in module:
        sys.exit(f"aiokafka runs without its extension here ({module}); the comparison would be worthless")
    console = Console(width=150)
    conditions = (
        f"Python {platform.python_version()}, {platform.machine()}, {rounds} rounds, medians; aiokafka uses "
        f"{module} (compiled)."
    )
    console.print(conditions)
    gc.collect()
    gc.freeze()
    sections = record_sections(rounds, options.varied) + codec_sections(rounds)
    for section in sections:
        section.print_to(console)
    if options.json:
        write_json(options.json, {"conditions": conditions}, {"codec": sections})
    if options.markdown:
        name = "codec varied" if options.varied else "codec"
        text = "\n".join([conditions + "\n", *(section.markdown() for section in sections)])
        put_markdown(options.markdown, name, text)


if __name__ == "__main__":
    main()
