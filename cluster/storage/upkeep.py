"""Upkeep of one log: retention, and putting cleaned segments in place.

On the owner thread. Decisions come from `core.retention` and `core.cleaning_plan`; the cleaning itself is a
background job (`cleaner`). A cleaned segment takes its place in memory when its swap is queued, and is read
under its `.cleaned` name until the writer has renamed it, so that every later operation finds files and
memory in the same order.
"""

from __future__ import annotations

from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.storage.cleaner import CleanedSegment, CleanJob, CleanResult
from tailrace.cluster.storage.core.cleaning_plan import Assessment, active_is_overdue, assess
from tailrace.cluster.storage.core.retention import (
    UNLIMITED,
    SegmentFacts,
    expired_active,
    segments_to_delete,
)
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, Segment
from tailrace.cluster.storage.swap import CLEANED_SUFFIX, swap

_UNKNOWN_YET = 2**63 - 1
_FIRST_LOOK = 16


def enforce_retention(log: Log, *, now_ms: int) -> int:
    """Remove what has expired; returns the number of segments that went."""
    config = log.config
    retention_ms = config.retention_ms if config.deleted else UNLIMITED
    retention_bytes = config.retention_bytes if config.deleted else UNLIMITED
    look = _FIRST_LOOK
    while True:
        facts = _facts(log, look)
        if look >= len(facts) and expired_active(
            facts,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
            log_start=log.log_start_offset,
        ):
            log.roll(now_ms=now_ms)
            facts = _facts(log, look + 1)
        count = segments_to_delete(
            facts,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            high_watermark=log.high_watermark,
            now_ms=now_ms,
            log_start=log.log_start_offset,
        )
        if count < look or look >= len(facts):
            break
        look *= 4
    if count:
        log.files.delete_segments(count)
        log.log_start_offset = max(log.log_start_offset, log.bases[0])
        log.epochs.truncate_start(log.log_start_offset)
        log.producers.drop_below(log.log_start_offset)
    return count


def _facts(log: Log, look: int) -> list[SegmentFacts]:
    """Exact facts of the first `look` segments; the others count by size and, for now, as not expired.

    The timestamps of old segments are in their index files, which need not all be read to see that the
    first ones may stay.
    """
    facts = [segment.facts(known_only=True) for segment in log.segments[:look]]
    facts += [
        SegmentFacts(segment.base_offset, segment.next_offset, segment.size, _UNKNOWN_YET)
        for segment in log.segments[look:]
    ]
    return facts


def assess_log(log: Log, *, now_ms: int) -> Assessment:
    """How much a cleaning would gain, after closing an active segment that waits too long for one."""
    config = log.config
    facts = [segment.facts() for segment in log.segments]
    if active_is_overdue(facts[-1], max_compaction_lag_ms=config.max_compaction_lag_ms, now_ms=now_ms):
        log.roll(now_ms=now_ms)
        facts = [segment.facts() for segment in log.segments]
    return assess(
        facts,
        checkpoint=log.cleaned_to,
        log_start=log.log_start_offset,
        last_stable_offset=min(log.last_stable_offset, log.durable_end),
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        next_horizon_ms=log.next_horizon_ms,
        now_ms=now_ms,
    )


def clean_job(
    log: Log, assessment: Assessment, *, now_ms: int, key_map_bytes: int, chunk_bytes: int
) -> CleanJob:
    config = log.config
    codec = None
    if config.compression_type == "uncompressed":
        codec = Codec.NONE
    elif config.compression_type != "producer":
        codec = Codec.from_name(config.compression_type)
    return CleanJob(
        directory=log.directory,
        segments=tuple(
            segment.facts() for segment in log.segments[:-1] if segment.next_offset <= assessment.end
        ),
        first_dirty=assessment.first_dirty,
        end=assessment.end,
        aborted=tuple(log.aborted_transactions(log.segments[0].base_offset, assessment.end)),
        pinned=frozenset(log.producers.last_batch_offsets().values()),
        segment_bytes=config.segment_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        now_ms=now_ms,
        key_map_bytes=key_map_bytes,
        codec=codec,
        segment_index_bytes=config.segment_index_bytes,
        chunk_bytes=chunk_bytes,
    )


def still_applies(log: Log, result: CleanResult, *, truncations: int) -> bool:
    """Whether every segment that was cleaned is still in the log as it was when the job began."""
    bases = set(log.bases[:-1])
    return (
        log.truncations == truncations
        and log.failure is None
        and all(base in bases for cleaned in result.segments for base in cleaned.replaces)
    )


def install(log: Log, result: CleanResult) -> None:
    """Put the cleaned segments in place, in memory now and on disk in order."""
    for cleaned in result.segments:
        _install_one(log, cleaned)
    log.cleaned_to = result.first_dirty
    log.next_horizon_ms = result.next_horizon_ms
    log.files.checkpoint()


def _install_one(log: Log, cleaned: CleanedSegment) -> None:
    home = log.home
    first = log.bases.index(cleaned.replaces[0])
    last = log.bases.index(cleaned.replaces[-1])
    old = log.segments[first : last + 1]
    facts = cleaned.facts
    new = Segment(
        files=home.files,
        handles=home.handles,
        directory=log.directory,
        base_offset=facts.base_offset,
        next_offset=facts.next_offset,
        size=facts.size,
        index_interval=log.config.index_interval_bytes,
        index=cleaned.index,
        aborted=cleaned.aborted,
        largest_timestamp=facts.largest_timestamp,
        first_timestamp=facts.first_timestamp,
        created_ms=facts.created_ms,
    )
    new.persisted_entries = len(cleaned.index)
    new.persisted_aborted = len(cleaned.aborted)
    cleaned_path = new.path + CLEANED_SUFFIX
    new.pin(cleaned_path)
    # From the old recovery point on: the new one will lie beyond segments that are not synced yet.
    dirty = log.files.paths_since_recovery_point(log.segments)
    log.segments[first : last + 1] = [new]
    log.bases[first : last + 1] = [facts.base_offset]
    log.files.leave_rewritten(facts.next_offset)
    stale = [
        segment.sibling(suffix) for segment in old for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TXN_INDEX_SUFFIX)
    ]
    removed: list[str] = []
    delay_ms = log.config.file_delete_delay_ms
    save_state = log.files.saving_rewrite()
    stale_snapshots = log.files.forget_snapshots_below(facts.next_offset)
    log.swaps_waiting += 1

    def work() -> None:
        # Cleaned batches claim that all before them was synced, which flush=os alone would not make true.
        present = [path for path in dirty if home.files.exists(path)]
        for path in present:
            home.writer.seal_file(path)
        home.writer.void(log.key, present)
        save_state()
        for path in stale_snapshots:
            home.files.remove(path)
        home.files.sync_dir(log.directory)
        removed.extend(swap(home.files, log.directory, [cleaned.group]))
        for path in (cleaned_path, *stale):
            home.handles.forget(path)

    def done() -> None:
        log.swaps_waiting -= 1
        new.unpin()
        home.remove_later(removed, delay_ms)

    home.writer.queue_call(work, done)
