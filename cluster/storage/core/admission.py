"""What a leader accepts into a partition: the topic's rules, applied to a batch's header.

Called by the log before offsets are assigned; raises the named error of the first rule that is broken, so
that nothing is written. The batch has passed `check_batch` before.
"""

from __future__ import annotations

from tailrace.cluster.common.batch import BatchHeader
from tailrace.cluster.common.directory import OFFSET_DELTAS
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.topic_config import TopicConfig


def admit(header: BatchHeader, config: TopicConfig, *, now_ms: int, internal: bool) -> None:
    """`internal` batches are the cluster's own (markers, coordinator state) and may be control batches."""
    if header.size > config.max_message_bytes:
        raise TailraceError(
            ErrorCode.RECORD_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes of the topic is "
            f"{config.max_message_bytes}. Send smaller batches or records, or raise max.message.bytes",
        )
    if header.is_control and not internal:
        raise TailraceError(ErrorCode.INVALID_RECORD, "clients cannot write control batches")
    if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
        raise TailraceError(
            ErrorCode.INVALID_RECORD,
            f"a produced batch holds one record per offset, this one has {header.record_count} records "
            f"for {header.last_offset_delta + 1} offsets",
        )
    if header.columns & (1 << OFFSET_DELTAS) or header.delete_horizon != -1:
        raise TailraceError(
            ErrorCode.INVALID_RECORD, "offset deltas and a delete horizon are set by the cleaner only"
        )
    if header.is_transactional and not header.is_control and not header.has_producer:
        raise TailraceError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if config.compacted and not header.is_control and not header.all_keys_present:
        raise TailraceError(
            ErrorCode.RECORD_WITHOUT_KEY,
            "the topic is compacted (cleanup.policy), so every record needs a key; this batch has "
            "records without one",
        )
    if config.message_timestamp_type == "CreateTime" and not header.is_control:
        _check_timestamps(header, config, now_ms)


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if header.base_timestamp >= 0 and now_ms - header.base_timestamp > before:
        raise TailraceError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record's timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms behind the "
            f"broker's clock; message.timestamp.before.max.ms allows {before}",
        )
    if header.max_timestamp - now_ms > after:
        raise TailraceError(
            ErrorCode.INVALID_TIMESTAMP,
            f"a record's timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms ahead of the "
            f"broker's clock; message.timestamp.after.max.ms allows {after}",
        )
