"""The settings of a node's storage, and the defaults that they give to topics.

Names and defaults are Kafka's, beside a few of our own (journal.*, flush, log.max.open.files,
log.pending.max.bytes, log.checkpoint.interval.ms). Where Kafka has one setting in several units, the
finest that is set counts: log.retention.ms before .minutes before .hours. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tailrace.cluster.common.kinds import (
    MAX_INT,
    MAX_LONG,
    Choice,
    Decimal,
    Flag,
    Integer,
    Optional,
    Text,
    Words,
)
from tailrace.cluster.common.settings import BROKER, CONTROLLER, Relation, Settings, setting
from tailrace.cluster.common.topic_config import (
    CLEANUP_POLICIES,
    CODECS,
    DAY_MS,
    FLUSH_POLICIES,
    TIMESTAMP_TYPES,
    TopicConfig,
)

CLUSTER_WIDE = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
"""Settings on which controller and brokers must agree, or committed records are lost: a leader that makes do
with fewer replicas in sync than the controller believes commits records that an eligible leader replica
lacks. So they come from the metadata alone: set for a topic or for all brokers, never for one broker or in a
file."""

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_MIB = 1 << 20

_TOPIC_DEFAULT = "The default of the topic setting {}."


class _Times(Protocol):
    """The settings that come in several units."""

    @property
    def log_retention_ms(self) -> int | None: ...
    @property
    def log_retention_minutes(self) -> int | None: ...
    @property
    def log_retention_hours(self) -> int: ...
    @property
    def log_roll_ms(self) -> int | None: ...
    @property
    def log_roll_hours(self) -> int: ...
    @property
    def log_roll_jitter_ms(self) -> int | None: ...
    @property
    def log_roll_jitter_hours(self) -> int: ...


def _retention_ms(c: _Times) -> int:
    if c.log_retention_ms is not None:
        return c.log_retention_ms
    if c.log_retention_minutes is not None:
        return -1 if c.log_retention_minutes == -1 else c.log_retention_minutes * _MINUTE_MS
    return -1 if c.log_retention_hours == -1 else c.log_retention_hours * _HOUR_MS


def _roll_ms(c: _Times) -> int:
    return c.log_roll_ms if c.log_roll_ms is not None else c.log_roll_hours * _HOUR_MS


def _roll_jitter_ms(c: _Times) -> int:
    return c.log_roll_jitter_ms if c.log_roll_jitter_ms is not None else c.log_roll_jitter_hours * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig(Settings):
    background_threads: int = setting(
        Integer(1, 1024),
        10,
        "How many threads do work off the event loop: cleaning, syncs, removal of files, cold reads.",
        runtime=True,
        waits_for=BROKER,
    )
    compression_type: str = setting(
        Choice(CODECS), "producer", _TOPIC_DEFAULT.format("compression.type"), runtime=True
    )
    flush: str = setting(Choice(FLUSH_POLICIES), "commit", _TOPIC_DEFAULT.format("flush"), runtime=True)
    journal_bytes: int = setting(
        Integer(16 * 1024, MAX_INT),
        64 * _MIB,
        "The size of each of a log directory's two journal files. Larger ones need their segments synced less"
        " often; after a crash all of it may have to be written back.",
    )
    journal_max_append_bytes: int = setting(
        Integer(0, MAX_INT),
        256 * 1024,
        "What one log writes in one group goes through the journal below this size, and straight into its"
        " segment, with a sync of its own, from this size on. 0 never uses the journal.",
    )
    log_checkpoint_interval_ms: int = setting(
        Integer(100),
        30_000,
        "How often recovery points, start offsets and producer states are written down. Less makes recovery"
        " after a crash shorter.",
        runtime=True,
    )
    log_cleaner_backoff_ms: int = setting(
        Integer(1), 15_000, "How long the cleaner rests when no log is worth cleaning.", runtime=True
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        Integer(_MIB),
        128 * _MIB,
        "The memory, in bytes, that the cleaner's table of keys may take, over all its threads.",
        runtime=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        Integer(), DAY_MS, _TOPIC_DEFAULT.format("delete.retention.ms"), runtime=True
    )
    log_cleaner_enable: bool = setting(
        Flag(), True, "Run the cleaner. Without it compacted topics grow without limit."
    )
    log_cleaner_io_buffer_size: int = setting(
        Integer(4096, MAX_INT),
        512 * 1024,
        "How many bytes the cleaner reads and writes at once.",
        runtime=True,
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        Decimal(1.0),
        float("inf"),
        "How many bytes the cleaner may read and write in a second, all its threads together. Programs that"
        " use the storage engine alone give it a `Throttle` of their own.",
        runtime=True,
        waits_for=BROKER,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        Integer(1), MAX_LONG, _TOPIC_DEFAULT.format("max.compaction.lag.ms"), runtime=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        Decimal(0.0, 1.0), 0.5, _TOPIC_DEFAULT.format("min.cleanable.dirty.ratio"), runtime=True
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        Integer(), 0, _TOPIC_DEFAULT.format("min.compaction.lag.ms"), runtime=True
    )
    log_cleaner_threads: int = setting(Integer(1, 64), 1, "How many logs are cleaned at once.", runtime=True)
    log_cleanup_policy: tuple[str, ...] = setting(
        Words(allowed=CLEANUP_POLICIES), ("delete",), _TOPIC_DEFAULT.format("cleanup.policy"), runtime=True
    )
    log_dir: str = setting(Text(), "tailrace-data", "The directory of the logs when log.dirs is not set.")
    log_dirs: tuple[str, ...] | None = setting(
        Optional(Words(), "log.dir alone"),
        None,
        "The directories of the logs, best one for each disk. When one fails, the others go on.",
    )
    log_flush_interval_messages: int = setting(
        Integer(1), MAX_LONG, _TOPIC_DEFAULT.format("flush.messages"), runtime=True
    )
    log_flush_interval_ms: int | None = setting(
        Optional(Integer(), "log.flush.scheduler.interval.ms"),
        None,
        _TOPIC_DEFAULT.format("flush.ms"),
        runtime=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        Integer(1),
        MAX_LONG,
        "The default of the topic setting flush.ms when log.flush.interval.ms is not set, as in Kafka. How"
        " often logs are looked at does not depend on it: about once a second.",
    )
    log_index_interval_bytes: int = setting(
        Integer(0, MAX_INT), 4096, _TOPIC_DEFAULT.format("index.interval.bytes"), runtime=True
    )
    log_index_size_max_bytes: int = setting(
        Integer(64, MAX_INT), 10 * _MIB, _TOPIC_DEFAULT.format("segment.index.bytes"), runtime=True
    )
    log_max_open_files: int | None = setting(
        Optional(Integer(16, MAX_INT), "half of the process's limit, at most 4096"),
        None,
        "How many segment files are kept open at once; those used longest ago are closed first.",
    )
    log_message_timestamp_after_max_ms: int = setting(
        Integer(),
        _HOUR_MS,
        _TOPIC_DEFAULT.format("message.timestamp.after.max.ms"),
        runtime=True,
        aliases=("message.timestamp.after.max.ms",),
    )
    log_message_timestamp_before_max_ms: int = setting(
        Integer(),
        MAX_LONG,
        _TOPIC_DEFAULT.format("message.timestamp.before.max.ms"),
        runtime=True,
        aliases=("message.timestamp.before.max.ms",),
    )
    log_message_timestamp_type: str = setting(
        Choice(TIMESTAMP_TYPES),
        "CreateTime",
        _TOPIC_DEFAULT.format("message.timestamp.type"),
        runtime=True,
        aliases=("message.timestamp.type",),
    )
    log_pending_max_bytes: int = setting(
        Integer(_MIB),
        128 * _MIB,
        "How many bytes may wait for the disk in one log directory; beyond it appends are refused with"
        " STORAGE_OVERLOADED, which clients retry.",
        runtime=True,
    )
    log_preallocate: bool = setting(Flag(), False, _TOPIC_DEFAULT.format("preallocate"), runtime=True)
    log_retention_bytes: int = setting(
        Integer(-1), -1, _TOPIC_DEFAULT.format("retention.bytes"), runtime=True
    )
    log_retention_check_interval_ms: int = setting(
        Integer(1), 300_000, "How often logs are looked at for segments that retention removes."
    )
    log_retention_hours: int = setting(
        Integer(-1, MAX_INT),
        168,
        "The default of the topic setting retention.ms, in hours; -1 is for ever.",
    )
    log_retention_minutes: int | None = setting(
        Optional(Integer(-1, MAX_INT), "log.retention.hours"),
        None,
        "The default of the topic setting retention.ms, in minutes; -1 is for ever.",
    )
    log_retention_ms: int | None = setting(
        Optional(Integer(-1), "log.retention.minutes"),
        None,
        "The default of the topic setting retention.ms; -1 is for ever.",
        runtime=True,
    )
    log_roll_hours: int = setting(
        Integer(1, MAX_INT), 168, "The default of the topic setting segment.ms, in hours."
    )
    log_roll_jitter_hours: int = setting(
        Integer(0, MAX_INT), 0, "The default of the topic setting segment.jitter.ms, in hours."
    )
    log_roll_jitter_ms: int | None = setting(
        Optional(Integer(), "log.roll.jitter.hours"),
        None,
        _TOPIC_DEFAULT.format("segment.jitter.ms"),
        runtime=True,
    )
    log_roll_ms: int | None = setting(
        Optional(Integer(1), "log.roll.hours"), None, _TOPIC_DEFAULT.format("segment.ms"), runtime=True
    )
    log_segment_bytes: int = setting(
        Integer(128, MAX_INT), 1 << 30, _TOPIC_DEFAULT.format("segment.bytes"), runtime=True
    )
    log_segment_delete_delay_ms: int = setting(
        Integer(), 60_000, _TOPIC_DEFAULT.format("file.delete.delay.ms"), runtime=True
    )
    message_max_bytes: int = setting(
        Integer(0, MAX_INT), 1_048_588, _TOPIC_DEFAULT.format("max.message.bytes"), runtime=True
    )
    min_insync_replicas: int | None = setting(
        Optional(Integer(1, MAX_INT), "2 for topics of three replicas and more, otherwise 1"),
        None,
        _TOPIC_DEFAULT.format("min.insync.replicas"),
        runtime=True,
        waits_for=BROKER,
    )
    num_recovery_threads_per_data_dir: int = setting(
        Integer(1, 1024), 2, "How many threads open and recover the logs of one directory at a start."
    )
    producer_id_expiration_ms: int = setting(
        Integer(1),
        DAY_MS,
        "How long a log remembers an idempotent producer that no longer writes.",
        runtime=True,
    )
    unclean_leader_election_enable: bool = setting(
        Flag(),
        False,
        _TOPIC_DEFAULT.format("unclean.leader.election.enable"),
        runtime=True,
        waits_for=CONTROLLER,
    )

    relations: ClassVar[tuple[Relation, ...]] = (
        Relation(
            ("journal_max_append_bytes", "journal_bytes"),
            lambda c: c.journal_max_append_bytes * 4 <= c.journal_bytes,
            "{journal_max_append_bytes} must be at most a quarter of {journal_bytes}, or a few appends would"
            " fill a journal file",
        ),
        Relation(
            ("message_max_bytes", "log_pending_max_bytes"),
            lambda c: c.message_max_bytes <= c.log_pending_max_bytes,
            "{message_max_bytes} must not exceed {log_pending_max_bytes}, or the largest batch could never be"
            " taken",
        ),
        Relation(
            ("log_cleaner_io_buffer_size", "log_cleaner_dedupe_buffer_size"),
            lambda c: c.log_cleaner_io_buffer_size <= c.log_cleaner_dedupe_buffer_size,
            "{log_cleaner_io_buffer_size} must not exceed {log_cleaner_dedupe_buffer_size}, which is meant to"
            " hold the keys of many reads",
        ),
        Relation(
            ("log_cleaner_min_compaction_lag_ms", "log_cleaner_max_compaction_lag_ms"),
            lambda c: c.log_cleaner_min_compaction_lag_ms <= c.log_cleaner_max_compaction_lag_ms,
            "{log_cleaner_min_compaction_lag_ms} must not exceed {log_cleaner_max_compaction_lag_ms}, or a"
            " record would be due for cleaning before it may be cleaned",
        ),
        Relation(
            ("log_roll_jitter_ms", "log_roll_jitter_hours", "log_roll_ms", "log_roll_hours"),
            lambda c: _roll_jitter_ms(c) <= _roll_ms(c),
            "the jitter ({log_roll_jitter_ms} or {log_roll_jitter_hours}) must not exceed what it is taken"
            " off ({log_roll_ms} or {log_roll_hours})",
        ),
    )
    same_thing: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.dirs", "log.dir"),
    )

    @property
    def directories(self) -> tuple[str, ...]:
        """Where the logs are: log.dirs, or log.dir when that is not set."""
        return self.log_dirs if self.log_dirs is not None else (self.log_dir,)

    def topic_defaults(self) -> TopicConfig:
        """What a topic gets where it sets nothing itself."""
        interval = self.log_flush_interval_ms
        return TopicConfig(
            cleanup_policy=self.log_cleanup_policy,
            compression_type=self.compression_type,
            delete_retention_ms=self.log_cleaner_delete_retention_ms,
            file_delete_delay_ms=self.log_segment_delete_delay_ms,
            flush=self.flush,
            flush_messages=self.log_flush_interval_messages,
            flush_ms=interval if interval is not None else self.log_flush_scheduler_interval_ms,
            index_interval_bytes=self.log_index_interval_bytes,
            max_compaction_lag_ms=self.log_cleaner_max_compaction_lag_ms,
            max_message_bytes=self.message_max_bytes,
            message_timestamp_after_max_ms=self.log_message_timestamp_after_max_ms,
            message_timestamp_before_max_ms=self.log_message_timestamp_before_max_ms,
            message_timestamp_type=self.log_message_timestamp_type,
            min_cleanable_dirty_ratio=self.log_cleaner_min_cleanable_ratio,
            min_compaction_lag_ms=self.log_cleaner_min_compaction_lag_ms,
            min_insync_replicas=self.min_insync_replicas,
            preallocate=self.log_preallocate,
            retention_bytes=self.log_retention_bytes,
            retention_ms=_retention_ms(self),
            segment_bytes=self.log_segment_bytes,
            segment_index_bytes=self.log_index_size_max_bytes,
            segment_jitter_ms=_roll_jitter_ms(self),
            segment_ms=_roll_ms(self),
            unclean_leader_election_enable=self.unclean_leader_election_enable,
        )


_ALSO_FROM = {group[0]: group for group in StorageConfig.same_thing} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
"""Settings of the node that give a topic one value between them, the one that counts first."""


def topic_sources(overrides: Mapping[str, object], node_sources: Mapping[str, str]) -> dict[str, str]:
    """Where each setting of a topic comes from: the topic itself, the node's settings, or the default."""
    sources = {}
    for one in TopicConfig.settings():
        names = _ALSO_FROM.get(one.broker_name, (one.broker_name,))
        given = next((name for name in names if name in node_sources), None)
        if one.name in overrides:
            sources[one.name] = "topic"
        else:
            sources[one.name] = f"{given}, {node_sources[given]}" if given is not None else "default"
    return sources
