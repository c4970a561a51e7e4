"""The settings of a topic: Kafka's names, defaults and meanings, and `flush`, which is ours.

A topic carries only what was set for it; the rest comes from the node's own settings
(storage_config.py), whose name stands with each field as `broker_name`. All of them may change while
the topic is in use. Read by the storage engine (every append and roll looks here), the cleaner and, for
replication, the brokers. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tailrace.cluster.common.kinds import MAX_INT, MAX_LONG, Choice, Decimal, Flag, Integer, Optional, Words
from tailrace.cluster.common.settings import BROKER, CONTROLLER, Relation, Settings, setting

CODECS = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
CLEANUP_POLICIES = ("delete", "compact")
FLUSH_POLICIES = ("commit", "os")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

WEEK_MS = 7 * 24 * 3600 * 1000
DAY_MS = 24 * 3600 * 1000

_REPLICAS = Words(
    pattern=r"\*|\d+:\d+",
    described="of partition:broker pairs, or * for all",
    may_be_empty=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig(Settings):
    cleanup_policy: tuple[str, ...] = setting(
        Words(allowed=CLEANUP_POLICIES),
        ("delete",),
        "What becomes of old records: `delete` removes whole segments by age or size, `compact` keeps the"
        " last record of each key, `compact,delete` does both.",
        runtime=True,
        broker_name="log.cleanup.policy",
    )
    compression_type: str = setting(
        Choice(CODECS),
        "producer",
        "The codec of stored batches. `producer` keeps what the producer chose; any other recompresses.",
        runtime=True,
        broker_name="compression.type",
    )
    delete_retention_ms: int = setting(
        Integer(),
        DAY_MS,
        "How long a compacted topic keeps tombstones and transaction markers, for readers that started"
        " before them.",
        runtime=True,
        broker_name="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        Integer(),
        60_000,
        "How long a removed file stays on the disk under a `.deleted` name, so that readers finish.",
        runtime=True,
        broker_name="log.segment.delete.delay.ms",
    )
    flush: str = setting(
        Choice(FLUSH_POLICIES),
        "commit",
        "When a record counts as stored: `commit` after it is synced to the disk (groups share a sync), `os`"
        " when the operating system has it, which loses the newest records with the machine's power.",
        runtime=True,
        broker_name="flush",
    )
    flush_messages: int = setting(
        Integer(1),
        MAX_LONG,
        "Under `flush=os`: sync after so many records. Under `commit` everything is synced anyway.",
        runtime=True,
        broker_name="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        Integer(),
        MAX_LONG,
        "Under `flush=os`: the longest time that a record stays unsynced.",
        runtime=True,
        broker_name="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        _REPLICAS,
        (),
        "Replicas whose replication is throttled on the follower's side.",
        runtime=True,
        waits_for=BROKER,
    )
    index_interval_bytes: int = setting(
        Integer(0, MAX_INT),
        4096,
        "About how many bytes of log lie between two entries of the index. Less finds offsets with less"
        " reading, and makes the index larger.",
        runtime=True,
        broker_name="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        _REPLICAS,
        (),
        "Replicas whose replication is throttled on the leader's side.",
        runtime=True,
        waits_for=BROKER,
    )
    max_compaction_lag_ms: int = setting(
        Integer(1),
        MAX_LONG,
        "The longest time that a record of a compacted topic may wait for the cleaner.",
        runtime=True,
        broker_name="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        Integer(0, MAX_INT),
        1_048_588,
        "The largest batch that is taken, in bytes as sent (compressed).",
        runtime=True,
        broker_name="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        Integer(),
        3_600_000,
        "How far a record's timestamp may lie in the future. Not looked at with LogAppendTime.",
        runtime=True,
        broker_name="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        Integer(),
        MAX_LONG,
        "How far a record's timestamp may lie in the past. Not looked at with LogAppendTime.",
        runtime=True,
        broker_name="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        Choice(TIMESTAMP_TYPES),
        "CreateTime",
        "Whose time counts: the producer's (CreateTime), or the leader's when it appends (LogAppendTime).",
        runtime=True,
        broker_name="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        Decimal(0.0, 1.0),
        0.5,
        "The share of a compacted log that must be uncleaned before the cleaner takes it.",
        runtime=True,
        broker_name="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        Integer(),
        0,
        "How long a record stays as it is before the cleaner may remove it.",
        runtime=True,
        broker_name="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int | None = setting(
        Optional(Integer(1, MAX_INT), "2 for topics of three replicas and more, otherwise 1"),
        None,
        "How many replicas must be in sync for a write with acks=all to be taken and committed.",
        runtime=True,
        broker_name="min.insync.replicas",
        waits_for=BROKER,
    )
    preallocate: bool = setting(
        Flag(),
        False,
        "Reserve the whole of a new segment on the disk at once.",
        runtime=True,
        broker_name="log.preallocate",
    )
    retention_bytes: int = setting(
        Integer(-1),
        -1,
        "How large a partition may grow before its oldest segments are removed; -1 is no limit. Only with"
        " cleanup.policy delete.",
        runtime=True,
        broker_name="log.retention.bytes",
    )
    retention_ms: int = setting(
        Integer(-1),
        WEEK_MS,
        "How long records are kept, by their own timestamps; -1 is for ever. Only with"
        " cleanup.policy delete.",
        runtime=True,
        broker_name="log.retention.ms",
    )
    segment_bytes: int = setting(
        Integer(128, MAX_INT),
        1_073_741_824,
        "The size at which a segment is closed and a new one begun.",
        runtime=True,
        broker_name="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        Integer(64, MAX_INT),
        10_485_760,
        "The size that a segment's index may reach before the segment is closed.",
        runtime=True,
        broker_name="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        Integer(),
        0,
        "At most this much is taken off segment.ms, by chance, so that not all segments are closed at once.",
        runtime=True,
        broker_name="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        Integer(1),
        WEEK_MS,
        "The age, by record timestamps, at which a segment is closed even though it is not full.",
        runtime=True,
        broker_name="log.roll.ms",
    )
    unclean_leader_election_enable: bool = setting(
        Flag(),
        False,
        "Let a replica that was not in sync lead when no other is left. Loses acknowledged records.",
        runtime=True,
        broker_name="unclean.leader.election.enable",
        waits_for=CONTROLLER,
    )

    relations: ClassVar[tuple[Relation, ...]] = (
        Relation(
            ("min_compaction_lag_ms", "max_compaction_lag_ms"),
            lambda c: c.min_compaction_lag_ms <= c.max_compaction_lag_ms,
            "{min_compaction_lag_ms} must not exceed {max_compaction_lag_ms}, or a record would be due for"
            " cleaning before it may be cleaned",
        ),
        Relation(
            ("segment_jitter_ms", "segment_ms"),
            lambda c: c.segment_jitter_ms <= c.segment_ms,
            "{segment_jitter_ms} must not exceed {segment_ms}, from which it is taken off",
        ),
    )

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    def min_insync(self, replication_factor: int) -> int:
        """How many replicas must be in sync, for a topic with so many."""
        if self.min_insync_replicas is not None:
            return self.min_insync_replicas
        return 2 if replication_factor >= 3 else 1
