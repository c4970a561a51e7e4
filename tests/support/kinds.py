"""Settings under which random histories run: everything small, so that all of it happens soon."""

from __future__ import annotations

from dataclasses import replace

from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig

DIRECTORY = "/data"
SMALL = StorageConfig(
    log_dir=DIRECTORY,
    journal_bytes=16 * 1024,
    journal_max_append_bytes=1000,
    log_checkpoint_interval_ms=3000,
    log_retention_check_interval_ms=5000,
    log_cleaner_backoff_ms=1,
    log_max_open_files=16,
    num_recovery_threads_per_data_dir=1,
)
PLAIN = TopicConfig(segment_bytes=2000, index_interval_bytes=200, file_delete_delay_ms=1000)
COMPACTED = replace(
    PLAIN,
    cleanup_policy=("compact",),
    segment_bytes=900,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=15_000,
)
KINDS = {
    "plain": PLAIN,
    "short": replace(PLAIN, segment_bytes=700, retention_bytes=3000),
    "aging": replace(PLAIN, segment_bytes=1200, retention_ms=15_000),
    "lazy": replace(PLAIN, flush="os", flush_messages=20, flush_ms=4000),
    "lazy-short": replace(PLAIN, flush="os", segment_bytes=700, retention_bytes=3000),
    "reserved": replace(PLAIN, preallocate=True),
    "compact": COMPACTED,
    "compact-lazy": replace(COMPACTED, flush="os", flush_ms=4000),
    "compact-aging": replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=20_000),
}
