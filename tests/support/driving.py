"""Ways to drive a storage engine into a corner: restarts, lost writes, forged batches, waiters with books.

Beside `engine`, which runs one life of a process, this module ends lives and begins the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.storage.log import Log
from tests.support.engine import START_MS, Engine
from tests.support.fault_files import FaultFiles

# Every append is synced in its own segment: nothing can be repaired from the journal.
DIRECT = StorageConfig(log_dir="/data", journal_max_append_bytes=0)
# A journal that holds four frames, so that it turns soon.
TINY_JOURNAL = StorageConfig(log_dir="/data", journal_bytes=16 * 1024, journal_max_append_bytes=4096)


class LosesUnsynced(Random):
    """A draw for `FaultFiles.crash` in which nothing survives that was not synced."""

    def randint(self, a: int, b: int) -> int:
        return a

    def choices(self, population: Any, *_: Any, **__: Any) -> list[Any]:
        return ["none"]


class KeepsUnsynced(Random):
    """A draw in which everything survives, as if the disk had been given the time for it."""

    def randint(self, a: int, b: int) -> int:
        return b

    def choices(self, population: Any, *_: Any, **__: Any) -> list[Any]:
        return ["all"]


def fault_files(engine: Engine) -> FaultFiles:
    assert isinstance(engine.files, FaultFiles)
    return engine.files


def next_life(engine: Engine, files: FaultFiles | None = None, *, topic: TopicConfig | None = None) -> Engine:
    """The process starts again, on the same files or those that a crash left."""
    return Engine(
        files if files is not None else engine.files,
        config=engine.config,
        topic=topic if topic is not None else engine.topic,
        now_ms=engine.now_ms,
    )


def restart(engine: Engine) -> Engine:
    engine.drain()
    engine.close()
    return next_life(engine)


def killed(engine: Engine) -> Engine:
    """kill -9: all that was handed to the operating system is there."""
    return next_life(engine, fault_files(engine).kill())


def power_lost(engine: Engine, draw: Random | None = None) -> Engine:
    return next_life(engine, fault_files(engine).crash(draw if draw is not None else LosesUnsynced()))


def with_topic(engine: Engine, **changes: Any) -> TopicConfig:
    return replace(engine.topic, **changes)


def numbered(
    base_offset: int,
    *values: bytes | None,
    epoch: int = 0,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = START_MS,
    **fields: Any,
) -> bytes:
    """A batch as a leader has numbered it, for `append_as_follower`."""
    return encode_batch(
        values=values,
        keys=keys,
        timestamps=timestamp,
        base_offset=base_offset,
        leader_epoch=epoch,
        **fields,
    )


@dataclass
class Waiters:
    """What `when_durable` said: (name, None or the code of the error), in the order in which it was said."""

    told: list[tuple[object, ErrorCode | None]]

    def wait(self, log: Log, offset: int, name: object = None) -> None:
        def callback(error: TailraceError | None) -> None:
            self.told.append((offset if name is None else name, error.code if error is not None else None))

        log.when_durable(offset, callback)


def waiters() -> Waiters:
    return Waiters([])


def offsets_of(log: Log, start: int | None = None) -> list[int]:
    return [offset for batch in log.batches(start) for offset in batch.offsets()]


def state_of(log: Log) -> tuple[object, ...]:
    """Everything that a refused operation must leave alone."""
    return (
        log.log_start_offset,
        log.high_watermark,
        log.durable_end,
        log.end_offset,
        log.size,
        log.epochs.entries(),
        sorted(log.producers.describe()),
        [(segment.base_offset, segment.next_offset, segment.size) for segment in log.segments],
        log.home.writer.pending_bytes,
    )


def check_invariants(log: Log) -> None:
    assert log.log_start_offset <= log.high_watermark <= log.end_offset
    assert log.synced_end <= log.durable_end <= log.end_offset
    assert log.bases == [segment.base_offset for segment in log.segments]
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        assert segment.next_offset == following.base_offset
    assert log.active.next_offset == log.end_offset


def rewrite(files: FaultFiles, path: str, data: bytes) -> None:
    """Put other content into a file behind the engine's back, durably."""
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwritev([data], 0)
    file.datasync()
    file.close()
