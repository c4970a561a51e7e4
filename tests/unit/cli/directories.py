"""Log directories on real files for the tests of commands, and ways to damage them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tailrace.clients.cli.main import app
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
