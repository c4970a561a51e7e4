"""Reading a log: by offset, by time, and the transactions that a reader must leave out.

Called on the owner thread. A read returns whole batches as they are stored, without decoding them; it is
bounded in bytes, but never so small that a reader could not go on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.types import NO_TIMESTAMP, Bytes
from tailrace.cluster.storage.core.aborted import AbortedIndex, AbortedTransaction
from tailrace.cluster.storage.derived import rebuild_aborted
from tailrace.cluster.storage.segment import Place, Segment

if TYPE_CHECKING:
    from tailrace.cluster.storage.log import Log


class ReadResult(NamedTuple):
    """Batches from the one that holds the asked offset; go on at `next_offset`."""

    data: Bytes
    next_offset: int


class TimestampOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def segment_holding(log: Log, offset: int) -> Segment:
    return log.segments[max(bisect_right(log.bases, offset) - 1, 0)]


def check_range(log: Log, offset: int) -> None:
    if not log.log_start_offset <= offset <= log.end_offset:
        raise TailraceError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.topic_partition}: offset {offset} is not in the log, which goes from "
            f"{log.log_start_offset} to {log.end_offset}",
        )


def read(log: Log, offset: int, *, max_bytes: int, end_offset: int) -> ReadResult:
    """At least one batch if there is one below `end_offset`, otherwise at most `max_bytes` of them."""
    check_range(log, offset)
    end_offset = min(end_offset, log.end_offset)
    while offset < end_offset:
        number = max(bisect_right(log.bases, offset) - 1, 0)
        segment = log.segments[number]
        start = segment.place_of(offset)
        limit = segment.place_of(end_offset)
        if start.position < limit.position:
            end = segment.end_of_read(start, limit, max_bytes)
            data = segment.read(start.position, end.position)
            if int.from_bytes(data[:8], "little") != start.offset:
                raise segment.damaged(start.position, f"no batch with offset {start.offset} is there")
            # Where `end_offset` lies in a gap, the next batch begins beyond it.
            return ReadResult(data, min(end.offset, end_offset))
        if limit.position < segment.size or segment is log.active:
            break  # The batch that holds `offset` reaches beyond `end_offset`.
        offset = log.bases[number + 1]  # Cleaning left nothing at the end of this segment.
    return ReadResult(b"", offset)


def offset_for_timestamp(log: Log, timestamp: int, *, end_offset: int) -> TimestampOffset | None:
    """The first record at or after the log start whose timestamp is `timestamp` or later."""
    for segment in log.segments:
        if segment.next_offset <= log.log_start_offset or segment.largest_timestamp < timestamp:
            continue
        floor = segment.index.first_reaching(timestamp)
        for header, position in segment.headers(Place(*floor) if floor else Place(0, 0)):
            if header.base_offset >= end_offset:
                return None
            if header.largest_timestamp >= timestamp and header.last_offset >= log.log_start_offset:
                found = _first_in_batch(log, segment, position, header.size, timestamp, end_offset)
                if found is not None:
                    return found
    return None


def _first_in_batch(
    log: Log, segment: Segment, position: int, size: int, timestamp: int, end_offset: int
) -> TimestampOffset | None:
    batch = segment.batch_at(position, size)
    for offset, time in zip(batch.offsets(), batch.timestamps(), strict=True):
        if time >= timestamp and log.log_start_offset <= offset < end_offset:
            return TimestampOffset(offset, time, batch.header.leader_epoch)
    return None


def largest_timestamp(log: Log, *, end_offset: int) -> TimestampOffset | None:
    """The first record with the largest timestamp of those from the log start up to `end_offset`."""
    start = log.log_start_offset
    largest = NO_TIMESTAMP
    for segment in log.segments:
        if segment.next_offset <= start or segment.base_offset >= end_offset:
            continue
        if start <= segment.base_offset and segment.next_offset <= end_offset:
            largest = max(largest, segment.largest_timestamp)
            continue
        for header, position in segment.headers(segment.place_of(start)):
            if header.base_offset >= end_offset:
                break
            if start <= header.base_offset and header.next_offset <= end_offset:
                largest = max(largest, header.largest_timestamp)
            elif header.largest_timestamp > largest:
                batch = segment.batch_at(position, header.size)
                within = zip(batch.offsets(), batch.timestamps(), strict=True)
                largest = max([largest, *(time for at, time in within if start <= at < end_offset)])
    return None if largest == NO_TIMESTAMP else offset_for_timestamp(log, largest, end_offset=end_offset)


def aborted_transactions(log: Log, start: int, end: int) -> list[AbortedTransaction]:
    """Transactions with records in [start, end) that were aborted, in order of their markers."""
    found: list[AbortedTransaction] = []
    first = max(bisect_right(log.bases, start) - 1, 0)
    for segment in log.segments[first:]:
        index = aborted_of(log, segment)
        found.extend(index.overlapping(start, end))
        if index.settles(end):
            break
    return found


def aborted_of(log: Log, segment: Segment) -> AbortedIndex:
    if not segment.aborted_complete:
        rebuilt = rebuild_aborted(
            log.files.read_snapshot, log.segments, segment, log.files.snapshots, log.log_start_offset
        )
        segment.replace_aborted(rebuilt)
    return segment.aborted


def batches(log: Log, offset: int, *, end_offset: int, chunk_bytes: int = 1 << 20) -> Iterator[Batch]:
    """Every batch from the one that holds `offset` up to `end_offset`, for tools and tests."""
    while offset < end_offset:
        start = offset
        data, offset = read(log, offset, max_bytes=chunk_bytes, end_offset=end_offset)
        if not data:
            return
        position = 0
        while position < len(data):
            try:
                batch = Batch(data, position=position)
            except TailraceError as error:
                segment = segment_holding(log, start)
                raise segment.damaged(segment.place_of(start).position + position, error.args[0]) from None
            yield batch
            position += batch.header.size
