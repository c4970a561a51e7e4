"""Compacted logs under test: a map of what each key must hold, beside an engine that cleans.

`KeyedLog` appends keyed records, keeps the last acknowledged value of each key, and checks that a log (this
one or what a crash left of it) still says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.storage.log import Log
from tests.support.engine import Engine, batch_of

CLEANING = StorageConfig(
    log_dir="/data",
    journal_bytes=16 * 1024,
    journal_max_append_bytes=700,
    log_cleaner_backoff_ms=1,
    num_recovery_threads_per_data_dir=1,
    log_checkpoint_interval_ms=3000,
    log_retention_check_interval_ms=1000,
)
COMPACTED = TopicConfig(
    cleanup_policy=("compact",),
    segment_bytes=500,
    index_interval_bytes=150,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=10_000,
    file_delete_delay_ms=1000,
)


@dataclass
class KeyedLog:
    engine: Engine
    # Every value that was ever appended under a key, with its offset, in order; None is a tombstone.
    appended: dict[bytes, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    serial: int = 0

    @property
    def log(self) -> Log:
        return self.engine.log()

    def put(self, key: bytes, *, tombstone: bool = False, epoch: int = 0) -> int:
        self.serial += 1
        value = None if tombstone else b"%s=%d" % (key, self.serial) + b"." * 40
        batch = batch_of(value, keys=[key], timestamp=self.engine.now_ms)
        log = self.log
        offset = log.append_as_leader(batch, leader_epoch=epoch, now_ms=self.engine.now_ms).base_offset
        self.appended.setdefault(key, []).append((offset, value))

        def told(error: TailraceError | None) -> None:
            if error is None:
                self.acknowledged[key] = max(self.acknowledged.get(key, -1), offset)

        log.when_durable(offset + 1, told)
        return offset

    def fill(self, rounds: int, keys: int = 3, *, drain: bool = True) -> None:
        for number in range(rounds * keys):
            self.put(b"k%d" % (number % keys))
            if drain:
                self.engine.drain()

    def commit(self) -> None:
        self.engine.drain()
        self.log.advance_high_watermark(self.log.end_offset)

    def forget_from(self, offset: int) -> None:
        """The log was truncated: what was appended from there on is gone."""
        for key, history in list(self.appended.items()):
            self.appended[key] = [one for one in history if one[0] < offset]
            self.acknowledged[key] = max((at for at, _ in self.appended[key]), default=-1)

    def check(self, log: Log, where: str) -> None:
        """Each key's last record is one that was appended, at or after the last acknowledged one."""
        found: dict[bytes, tuple[int, bytes | None]] = {}
        last = -1
        for batch in log.batches():
            assert log.epochs.epoch_at(batch.header.base_offset) == batch.header.leader_epoch, where
            for offset, key, value in zip(batch.offsets(), batch.keys(), batch.values(), strict=True):
                assert offset > last, f"{where}: offset {offset} after {last}"
                last = offset
                if batch.header.is_control:
                    continue
                assert key is not None, where
                assert (offset, value) in self.appended.get(key, []), (
                    f"{where}: {key!r} at {offset} is not ours"
                )
                found[key] = (offset, value)
        for key, offset in self.acknowledged.items():
            if offset < log.log_start_offset:
                continue
            history = dict(self.appended[key])
            if key not in found:
                # Only a tombstone, acknowledged or not, may leave nothing behind.
                assert None in [value for at, value in history.items() if at >= offset], (
                    f"{where}: {key!r} is gone"
                )
            else:
                assert found[key][0] >= offset, (
                    f"{where}: {key!r} is back at {found[key]}, {offset} was promised"
                )
