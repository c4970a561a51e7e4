"""Log directories on real files for the tests of commands, and ways to damage them."""

from __future__ import annotations

import json
from pathlib import Path
from struct import pack_into
from typing import Any

import google_crc32c
from typer.testing import CliRunner, Result

from tailrace.clients.cli.main import app
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.files import OsFiles
from tests.support.engine import ORDERS, Engine, append, end_transaction

SMALL_SEGMENTS = TopicConfig.from_mapping({"segment.bytes": "2000", "index.interval.bytes": "300"})
BASES = (0, 20, 40)
LAST = 51
BATCH_BYTES = 194
"""The size of each batch in the first segment, which holds offsets 0 to 19, two a batch."""


def open_engine(directory: Path, topic: TopicConfig = SMALL_SEGMENTS) -> Engine:
    return Engine(files=OsFiles(), config=StorageConfig(log_dir=str(directory)), topic=topic)


def fill(engine: Engine, topic_partition: TopicPartition = ORDERS) -> None:
    """Three segments: a producer's records, one aborted and one committed transaction, a newer epoch."""
    log = engine.log(topic_partition)
    for number in range(12):
        keys = [b"key-%d" % number, None]
        append(log, b'{"n":%d}' % number, b"v" * 60, keys=keys, producer=(7, 0, 2 * number))
        engine.drain()
    append(log, b"t1", producer=(8, 0, 0), transactional=True)
    append(log, b"t2", producer=(9, 0, 0), transactional=True)
    end_transaction(log, 8, commit=False)
    end_transaction(log, 9, commit=True)
    engine.drain()
    for number in range(12):
        append(log, b"x%d" % number, b"v" * 60, epoch=3)
        engine.drain()


def closed_directory(path: Path) -> Path:
    engine = open_engine(path)
    fill(engine)
    engine.close()
    return path / str(ORDERS)


def crashed_directory(path: Path, *, keep_journal: bool = True) -> Path:
    """A directory as it is while its node runs, and so after the node was killed."""
    engine = open_engine(path)
    fill(engine)
    if not keep_journal:
        for name in ("journal-0", "journal-1"):
            (path / name).unlink()
    return path / str(ORDERS)


def compacted_directory(path: Path) -> Path:
    topic = TopicConfig.from_mapping(
        {"cleanup.policy": "compact", "segment.bytes": "600", "min.cleanable.dirty.ratio": "0"}
    )
    engine = open_engine(path, topic)
    log = engine.log()
    for number in range(40):
        append(log, b"v%d" % number, keys=[b"k%d" % (number % 3)], timestamp=engine.now_ms)
        engine.drain()
    log.advance_high_watermark(log.end_offset)
    for _ in range(40):
        engine.tick(60_000)
    assert log.cleaned_to > 0
    engine.close()
    return path / str(ORDERS)


def undecodable_directory(path: Path) -> None:
    """One batch whose checksum is right and whose block is none of its codec: its producer sent it so."""
    sent = bytearray(encode_batch(values=[b"a" * 500], timestamps=0, codec=Codec.ZSTD))
    sent[sent.index(b"\x28\xb5\x2f\xfd")] ^= 1  # The magic number of a zstd frame.
    pack_into("<I", sent, 32, google_crc32c.value(bytes(sent[36:])))
    engine = open_engine(path)
    engine.log().append_as_leader(bytes(sent), leader_epoch=0, now_ms=engine.now_ms)
    engine.close()


def name_of(base: int, suffix: str = ".log") -> str:
    return f"{base:020d}{suffix}"


def flip(path: Path, position: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["log", *map(str, arguments)])


def run_json(*arguments: str | Path) -> tuple[int, list[dict[str, Any]]]:
    result = run(*arguments, "--json")
    assert result.stderr == ""
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def of_type(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind]


def verify(path: Path, *options: str) -> tuple[int, list[tuple[str, str]]]:
    """The exit code, and (severity, file name) of each finding."""
    code, lines = run_json("verify", path, *options)
    return code, [(one["severity"], Path(one["path"]).name) for one in of_type(lines, "finding")]


def messages(path: Path) -> str:
    return "\n".join(one["message"] for one in of_type(run_json("verify", path)[1], "finding"))
