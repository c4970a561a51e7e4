"""The cleaner: rewrites the closed segments of one compacted log without what nobody needs any more.

`clean` is a background job. It works on a `CleanJob`, a snapshot that the log's owner made, and shares no
state with it: it reads closed segments, writes new files beside them under `.cleaned` names, and returns
what it made. The owner then puts them in place (`storage.swap`), or calls `discard` if the log changed
meanwhile (a truncation, a deleted segment). Only after the swap does it advance the log's cleaner
checkpoint to `CleanResult.first_dirty`: a crash before that costs another cleaning, and nothing else.

Pass 1 reads the dirty section and notes the last offset of each key, until it has read all of it or the key
map is full. Pass 2 reads from the log's start to where pass 1 ended, and writes what `core.cleaning` retains.

Both passes read and write sequentially, in chunks, within the budget of a `Throttle`, and verify the
checksum of every batch. A wrong one ends the job with STORAGE_CORRUPT: the cleaner neither drops nor
copies what it cannot vouch for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tailrace.cluster.common.batch import parse_header
from tailrace.cluster.storage.cleaner_files import (
    CHUNK_BYTES,
    Chunk,
    SegmentOutput,
    Throttle,
    read_batches,
    remove_cleaned,
)
from tailrace.cluster.storage.core.aborted import AbortedIndex, AbortedTransaction
from tailrace.cluster.storage.core.cleaning import (
    AbortedRanges,
    BatchFilter,
    Undecodable,
    Verdict,
    note_keys,
)
from tailrace.cluster.storage.core.cleaning_plan import group_segments
from tailrace.cluster.storage.core.index import SparseIndex
from tailrace.cluster.storage.core.keymap import KeyMap
from tailrace.cluster.storage.core.retention import UNLIMITED, SegmentFacts
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.swap import SwapGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """All that a cleaning needs to know, as it was at one moment on the log's owner thread."""

    directory: str
    # The closed segments from the log's first one up to `end`, a segment boundary at or below the last
    # stable offset (see `core.cleaning_plan.assess`). Their bytes up to `size` no longer change.
    segments: tuple[SegmentFacts, ...]
    first_dirty: int
    end: int
    # Every aborted transaction with an offset in the segments, even if its marker lies beyond them.
    aborted: tuple[AbortedTransaction, ...]
    # The values of `ProducerStates.last_batch_offsets`: the batches there keep at least their header.
    pinned: frozenset[int]
    segment_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    now_ms: int
    key_map_bytes: int
    # None: each batch keeps the codec that its producer chose.
    codec: int | None = None
    segment_index_bytes: int = UNLIMITED
    # How much is read, and written, at once.
    chunk_bytes: int = CHUNK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """A new segment under `.cleaned` names, and the base offsets of the segments that it stands for."""

    facts: SegmentFacts
    replaces: tuple[int, ...]
    index: SparseIndex
    aborted: AbortedIndex

    @property
    def group(self) -> SwapGroup:
        return SwapGroup(self.facts.base_offset, self.facts.next_offset)


@dataclass(slots=True)
class CleanStats:
    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0
    records_kept: int = 0
    records_dropped: int = 0
    # Of those dropped, the ones without a key.
    records_keyless: int = 0
    batches_kept: int = 0
    batches_rewritten: int = 0
    batches_dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """What to swap in, in ascending order; segments that are not named here stay as they are."""

    segments: tuple[CleanedSegment, ...]
    # The first offset that is dirty now. Below the job's `end` only when the key map was full.
    first_dirty: int
    map_was_full: bool
    # When there will be tombstones or markers to remove even if nothing new is written; None: none wait.
    next_horizon_ms: int | None
    undecodable: tuple[Undecodable, ...]
    stats: CleanStats

    @property
    def groups(self) -> tuple[SwapGroup, ...]:
        return tuple(segment.group for segment in self.segments)


class _CancelledError(Exception):
    """Carries a cancellation from between two chunks to `clean`."""


def clean(
    job: CleanJob, files: Files, throttle: Throttle, *, cancelled: Callable[[], bool] = lambda: False
) -> CleanResult | None:
    """Clean a log; None when `cancelled`, asked between chunks, said so.

    Raises TailraceError (STORAGE_CORRUPT) for a damaged batch, and OSError as the file system does. In all
    these cases the files that it had begun are removed, as far as that is possible.
    """
    run = _Run(job, files, throttle, cancelled)
    try:
        return run.run()
    except _CancelledError:
        run.remove_begun()
        return None
    except Exception:
        run.remove_begun()
        raise


def discard(files: Files, directory: str, result: CleanResult) -> None:
    """Remove the files of a result that will not be swapped in."""
    for segment in result.segments:
        remove_cleaned(files, directory, segment.facts.base_offset)


class _Run:
    """One run of the cleaner."""

    def __init__(
        self, job: CleanJob, files: Files, throttle: Throttle, cancelled: Callable[[], bool]
    ) -> None:
        self._job = job
        self._files = files
        self._throttle = throttle
        self._cancelled = cancelled
        self._stats = CleanStats()
        self._ranges = AbortedRanges(job.aborted)
        self._begun: list[int] = []

    def run(self) -> CleanResult:
        job = self._job
        keymap, map_end = self._build_map()
        self._stats.keys = len(keymap)
        batches = BatchFilter(
            keymap=keymap,
            map_end=map_end,
            aborted=self._ranges,
            pinned=job.pinned,
            delete_retention_ms=job.delete_retention_ms,
            now_ms=job.now_ms,
            codec=job.codec,
        )
        within = [segment for segment in job.segments if segment.base_offset < map_end]
        cleaned = []
        for group in group_segments(
            within, segment_bytes=job.segment_bytes, index_bytes=job.segment_index_bytes
        ):
            segment = self._clean_group(group, batches)
            if segment is not None:
                cleaned.append(segment)
        if cleaned:
            self._files.sync_dir(job.directory)
        return CleanResult(
            segments=tuple(cleaned),
            # A pass over the clean section alone (for tombstones that have expired) must not turn it back.
            first_dirty=max(map_end, job.first_dirty),
            map_was_full=map_end < job.end,
            next_horizon_ms=batches.next_horizon_ms,
            undecodable=tuple(batches.undecodable),
            stats=self._stats,
        )

    def remove_begun(self) -> None:
        try:
            for base_offset in self._begun:
                remove_cleaned(self._files, self._job.directory, base_offset)
        except OSError:
            # Whatever ended the run says more than this, and opening the log removes what is left.
            return

    def _build_map(self) -> tuple[KeyMap, int]:
        """The key map, and the offset up to which it is complete."""
        job = self._job
        keymap = KeyMap(job.key_map_bytes)
        for segment in job.segments:
            if segment.next_offset <= job.first_dirty:
                continue
            for chunk in self._read(segment):
                for header, at in chunk.batches:
                    if header.next_offset <= job.first_dirty:
                        continue
                    # An empty map takes a batch in any case: the next cleaning must begin further on.
                    if keymap.full and len(keymap):
                        return keymap, header.base_offset
                    note_keys(keymap, header, chunk.data, at, self._ranges)
        return keymap, job.end

    def _clean_group(self, group: tuple[SegmentFacts, ...], batches: BatchFilter) -> CleanedSegment | None:
        """The group's new segment, or None when it is one segment that stays as it is."""
        self._begun.append(group[0].base_offset)
        output = SegmentOutput(
            files=self._files,
            directory=self._job.directory,
            group=group,
            index_interval_bytes=self._job.index_interval_bytes,
            before_io=self._throttle.take,
        )
        try:
            for segment in group:
                for chunk in self._read(segment):
                    self._filter(chunk, batches, output)
                    output.flush()
            if not output.changed:
                return None
            aborted = self._aborted_of(group, batches)
            facts, index = output.finish(aborted)
            self._stats.bytes_written += output.bytes_written
        finally:
            output.close()
        replaces = tuple(segment.base_offset for segment in group)
        return CleanedSegment(facts=facts, replaces=replaces, index=index, aborted=aborted)

    def _filter(self, chunk: Chunk, batches: BatchFilter, output: SegmentOutput) -> None:
        stats = self._stats
        view = memoryview(chunk.data)
        for header, at in chunk.batches:
            decision = batches.retain(header, chunk.data, at)
            stats.records_kept += decision.kept
            stats.records_dropped += decision.dropped
            stats.records_keyless += decision.keyless
            if decision.verdict is Verdict.KEEP:
                stats.batches_kept += 1
                output.keep(header, view[at : at + header.size])
            elif decision.data is not None:
                stats.batches_rewritten += 1
                output.replace(parse_header(decision.data), decision.data)
            else:
                stats.batches_dropped += 1
                output.drop()

    def _aborted_of(self, group: tuple[SegmentFacts, ...], batches: BatchFilter) -> AbortedIndex:
        """The aborted transactions whose markers the group holds and whose batches may still be there."""
        first, end = group[0].base_offset, group[-1].next_offset
        index = AbortedIndex()
        # The sort is stable: entries of one control batch stay in the order in which they were indexed.
        for entry in sorted(self._job.aborted, key=lambda entry: entry.last_offset):
            known = (entry.producer_id, entry.last_offset) in batches.forgotten
            if first <= entry.last_offset < end and not known:
                index.append(entry)
        return index

    def _read(self, segment: SegmentFacts) -> Iterator[Chunk]:
        return read_batches(
            self._files,
            self._job.directory,
            segment,
            chunk_bytes=self._job.chunk_bytes,
            before_read=self._before_read,
        )

    def _before_read(self, size: int) -> None:
        if self._cancelled():
            raise _CancelledError
        self._throttle.take(size)
        self._stats.bytes_read += size


__all__ = [
    "CleanJob",
    "CleanResult",
    "CleanStats",
    "CleanedSegment",
    "Throttle",
    "clean",
    "discard",
]
