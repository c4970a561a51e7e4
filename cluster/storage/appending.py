"""Appending to a log: a leader numbers a producer's batch, a follower takes over what a leader numbered.

Called through `Log`, on the owner thread. A batch or chunk is checked wholly before anything is changed;
then offsets, epochs, producers and indexes move on at once, and the bytes are queued with the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailrace.cluster.common.batch import (
    LEADER_PART_SIZE,
    BatchHeader,
    check_batch,
    leader_part,
    parse_header,
    restamp,
)
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.control import Marker, decode_markers
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.types import NO_TIMESTAMP, Bytes
from tailrace.cluster.storage import cutting
from tailrace.cluster.storage.core.admission import admit
from tailrace.cluster.storage.core.retention import roll_ms, should_roll
from tailrace.cluster.storage.segment import InFlight
from tailrace.cluster.storage.writer import Write

if TYPE_CHECKING:
    from tailrace.cluster.storage.log import Log


class Appended(NamedTuple):
    """Where a batch is. `timestamp` is the append time, or -1 when the records' own timestamps count."""

    base_offset: int
    last_offset: int
    timestamp: int
    duplicate: bool


def append_as_leader(
    log: Log, batch: Bytes, *, leader_epoch: int, now_ms: int, internal: bool = False
) -> Appended:
    """Give a producer's batch its offsets, and queue it to be written."""
    _check_writable(log)
    header = check_batch(batch)
    if header.size != len(batch):
        raise TailraceError(
            ErrorCode.CORRUPT_BATCH, f"{len(batch) - header.size} bytes follow the batch's end"
        )
    admit(header, log.config, now_ms=now_ms, internal=internal)
    check_epoch(log, leader_epoch)
    markers: tuple[Marker, ...] = ()
    if header.is_control:
        markers = decode_markers(Batch(batch, header))
        for marker in markers:
            log.producers.check_marker(marker)
    else:
        duplicate = log.producers.check(header, now_ms=now_ms)
        if duplicate is not None:
            return Appended(duplicate.base_offset, duplicate.last_offset, duplicate.timestamp, True)
        batch, header = _recompressed(log, batch, header)
    base = log.end_offset
    append_time = now_ms if log.config.message_timestamp_type == "LogAppendTime" else NO_TIMESTAMP
    header = BatchHeader._make((base, header.size, leader_epoch, append_time, *header[4:]))
    _roll_if_due(log, header, now_ms)
    head = leader_part(
        size=header.size,
        base_offset=base,
        leader_epoch=leader_epoch,
        append_timestamp=append_time,
        sync_mark=log.marks.mark(base, log.synced_end),
    )
    _queue(log, [header], [markers], [head, memoryview(batch)[LEADER_PART_SIZE:]], now_ms)
    return Appended(base, header.last_offset, append_time, False)


def append_as_follower(log: Log, chunk: Bytes, *, now_ms: int) -> int:
    """Take over batches as the leader numbered them, all or none; returns the new end offset."""
    _check_writable(log)
    expected = _follow_from(log, chunk)
    headers, markers = _check_chunk(log, chunk, expected)
    if not headers:
        return log.end_offset
    if expected < log.end_offset:
        log.truncations += 1
        cutting.reset(log, expected, log_start=log.log_start_offset, now_ms=now_ms, done=None)
    data = bytearray(chunk)
    for header, position in _positions(headers):
        restamp(data, position, log.marks.mark(header.base_offset, log.synced_end))
    # A chunk may span what becomes a segment boundary: it is queued in the parts between.
    start, first = 0, 0
    position = 0
    view = memoryview(data)
    for number, header in enumerate(headers):
        if number > first and _must_roll(log, header, now_ms, headers[first], position - start):
            _queue(log, headers[first:number], markers[first:number], [view[start:position]], now_ms)
            start, first = position, number
        if number == first:
            _roll_if_due(log, header, now_ms)
        position += header.size
    _queue(log, headers[first:], markers[first:], [view[start:position]], now_ms)
    return log.end_offset


def _follow_from(log: Log, chunk: Bytes) -> int:
    """The offset at which a fetched chunk must begin.

    That is the end of the log, except for an empty log whose start lies inside a batch of the leader's
    (records were deleted up to there): it takes the whole batch, as the leader has it.
    """
    if len(log.segments) == 1 and log.active.size == 0 and len(chunk):
        first = parse_header(chunk)
        if first.base_offset < log.end_offset <= first.last_offset:
            return first.base_offset
    return log.end_offset


def _check_chunk(log: Log, chunk: Bytes, expected: int) -> tuple[list[BatchHeader], list[tuple[Marker, ...]]]:
    headers: list[BatchHeader] = []
    markers: list[tuple[Marker, ...]] = []
    position, epoch = 0, log.epochs.latest
    while position < len(chunk):
        header = check_batch(chunk, position)
        if header.leader_epoch < 0:
            raise TailraceError(
                ErrorCode.INVALID_RECORD,
                f"{log.topic_partition}: a fetched batch has no leader epoch: no leader has numbered it",
            )
        if header.base_offset < expected or header.leader_epoch < epoch:
            raise TailraceError(
                ErrorCode.DIVERGED_LOG,
                f"{log.topic_partition}: a fetched batch has offset {header.base_offset} and epoch "
                f"{header.leader_epoch}, the log is at offset {expected} and epoch {epoch}",
            )
        headers.append(header)
        batch = memoryview(chunk)[position : position + header.size]
        markers.append(decode_markers(Batch(batch, header)) if header.is_control else ())
        expected, epoch = header.next_offset, header.leader_epoch
        position += header.size
    return headers, markers


def _queue(
    log: Log,
    headers: Sequence[BatchHeader],
    markers: Sequence[tuple[Marker, ...]],
    buffers: Sequence[Bytes],
    now_ms: int,
) -> None:
    segment = log.segments[-1]
    producers = log.producers  # Loaded from the log as it is before this append, if not yet.
    start = segment.size
    for header, ended in zip(headers, markers, strict=True):
        log.epochs.assign(header.leader_epoch, header.base_offset)
        segment.add(header, base_offset=header.base_offset, timestamp=header.largest_timestamp)
        for aborted in producers.apply(header, now_ms=now_ms, markers=ended):
            segment.aborted.append(aborted)
    size = segment.size - start
    segment.in_flight.append(InFlight(start, segment.size, buffers))
    log.end_offset = segment.next_offset
    log.appended_bytes += size
    log.home.touched.add(log)
    log.home.writer.queue_write(
        Write(
            log,
            segment.path,
            segment.base_offset,
            start,
            buffers,
            size,
            log.end_offset,
            log.truncations,
            log.config.flush == "commit",
        )
    )


def _check_writable(log: Log) -> None:
    log.check_online()
    if log.home.writer.pending_bytes > log.home.pending_max_bytes:
        raise TailraceError(
            ErrorCode.STORAGE_OVERLOADED,
            f"{log.home.writer.pending_bytes} bytes wait for the disk of {log.directory}, more than "
            "log.pending.max.bytes allows; try again when it has caught up",
        )


def check_epoch(log: Log, leader_epoch: int) -> None:
    if leader_epoch < log.epochs.latest:
        raise TailraceError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"{log.topic_partition}: append in leader epoch {leader_epoch}, the log has epoch "
            f"{log.epochs.latest}",
        )


def _recompressed(log: Log, batch: Bytes, header: BatchHeader) -> tuple[Bytes, BatchHeader]:
    wanted = log.config.compression_type
    if wanted == "producer":
        return batch, header
    codec = Codec.NONE if wanted == "uncompressed" else Codec.from_name(wanted)
    if codec == header.codec:
        return batch, header
    encoded = Batch(batch, header).select(np.ones(header.record_count, bool), codec=codec)
    return encoded, check_batch(encoded)


def _must_roll(
    log: Log, header: BatchHeader, now_ms: int, first: BatchHeader | None = None, before: int = 0
) -> bool:
    """`before` bytes, the first of them in batch `first`, are to go to the active segment already."""
    active = log.segments[-1]
    config = log.config
    if active.has_room(header, before, config):
        return False
    facts = active.facts()
    if first is not None:
        started = first.largest_timestamp if facts.is_empty else facts.first_timestamp
        facts = facts._replace(size=facts.size + before, first_timestamp=started)
    reason = should_roll(
        facts,
        batch_size=header.size,
        batch_last_offset=header.last_offset,
        batch_timestamp=header.largest_timestamp,
        segment_bytes=config.segment_bytes,
        segment_ms=roll_ms(
            config.segment_ms,
            compacted=config.compacted,
            max_compaction_lag_ms=config.max_compaction_lag_ms,
        ),
        jitter_ms=log.files.jitter_ms(active.base_offset, config.segment_jitter_ms),
        index_full=len(active.index) * 16 >= config.segment_index_bytes,
        now_ms=now_ms,
    )
    return reason is not None


def _roll_if_due(log: Log, header: BatchHeader, now_ms: int) -> None:
    if _must_roll(log, header, now_ms):
        log.roll(at=header.base_offset, now_ms=now_ms)


def _positions(headers: Sequence[BatchHeader]) -> list[tuple[BatchHeader, int]]:
    found, position = [], 0
    for header in headers:
        found.append((header, position))
        position += header.size
    return found
