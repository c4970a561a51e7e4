"""Scanning a log after an unclean stop: from the recovery point to the end, batch by batch.

Called by `recovery`, on any thread. Rebuilds indexes, epochs and producer states from what it reads; cuts a
torn end; raises STORAGE_CORRUPT where data is broken that had been on stable storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader, parse_header
from tailrace.cluster.common.control import decode_markers
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.core.recovery import find_proof, scan_window
from tailrace.cluster.storage.derived import rebuild_aborted, snapshots_in
from tailrace.cluster.storage.files import Files, write_atomic
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.logfiles import RecoveryPoint
from tailrace.cluster.storage.logstate import SavedLogState
from tailrace.cluster.storage.segment import (
    CONTENT_OF_ACTIVE,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    Place,
    Segment,
)

SCAN_BYTES = 4 << 20


class Identity(NamedTuple):
    topic_partition: TopicPartition
    topic_id: bytes
    incarnation: bytes
    log_start_offset: int


@dataclass(slots=True)
class Opening:
    """The circumstances under which the logs of a directory are opened."""

    files: Files
    handles: HandleCache
    clean: bool
    now_ms: int
    secret: bytes
    # A frame of the journal is missing: writes that only it held may be missing below a recovery point.
    journal_damaged: bool


@dataclass(slots=True)
class Found:
    segments: list[Segment]
    snapshots: list[int]
    to_remove: list[str]
    scanned: int = 0
    cut: int = 0
    epochs: EpochHistory = field(default_factory=EpochHistory)


def remove_segments(opening: Opening, segments: Sequence[Segment]) -> None:
    """The last first: a crash on the way leaves a shorter log, not one with a hole."""
    for segment in reversed(segments):
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            opening.files.remove(segment.sibling(suffix))
        opening.handles.forget(segment.path)


class Scanner:
    """Walks the batches from the recovery point to the end, over one segment after the other."""

    def __init__(
        self,
        opening: Opening,
        found: Found,
        states: ProducerStates,
        config: TopicConfig,
        identity: Identity,
        own: SavedLogState | None,
        promised: int,
    ) -> None:
        self._opening = opening
        self._found = found
        self._states = states
        self._config = config
        self._log_start = identity.log_start_offset
        self._promised = promised
        self._last_end = 0
        known = own.epochs.entries() if own is not None else []
        self._epoch_starts = {entry.epoch: entry.start_offset for entry in known}
        partition = identity.topic_partition.partition
        self._marks = SyncMarks(opening.secret, identity.topic_id, partition)

    def run(self, number: int, point: RecoveryPoint) -> None:
        expected, position = point.offset, point.position
        segments = self._found.segments
        scanned: list[Segment] = []
        broken: Place | None = None
        while number < len(segments):
            segment = segments[number]
            if scanned and segment.base_offset < expected:
                raise segment.damaged(
                    0, f"it begins below offset {expected}, where the segment before it ends"
                )
            expected = max(expected, segment.base_offset)
            fresh = self._reopened(segment, Place(expected, position))
            segments[number] = fresh
            scanned.append(fresh)
            problem = self._scan(fresh, segment.size)
            if problem is None and number + 1 < len(segments):
                problem = self._check_adjacent(fresh, segments[number + 1])
            expected = fresh.next_offset
            if problem is not None:
                broken = Place(expected, fresh.size)
                self._require_torn(number, segment.size, broken, problem)
                break
            position = 0
            number += 1
        if broken is not None:
            self._cut(number, broken)
        for segment in scanned:
            if segment in segments:
                self._save(segment)

    def _check_adjacent(self, segment: Segment, following: Segment) -> str | None:
        """Cleaning, here or at the leader, leaves offsets without records; otherwise a gap is a lost end.

        The state file knows where the records ended. Without it, only a system that loses unsynced writes
        can have lost them: under flush=commit a segment is synced before the next one is begun.
        """
        end, base = segment.next_offset, following.base_offset
        if end == base:
            return None
        synced = self._config.flush == "commit"
        if segment.content_end >= 0:
            may_be = end >= segment.content_end
        elif segment.content_end == CONTENT_OF_ACTIVE:
            may_be = synced
        else:
            may_be = synced or self._config.compacted
        if not may_be:
            return f"it ends at {end}, the next segment begins at {base}"
        segment.content_end, segment.next_offset = end, base
        return None

    def _reopened(self, segment: Segment, place: Place) -> Segment:
        """The segment as it was at `place`: indexes up to there from their files, the rest by scanning."""
        fresh = Segment(
            files=self._opening.files,
            handles=self._opening.handles,
            directory=segment.directory,
            base_offset=segment.base_offset,
            next_offset=place.offset,
            size=place.position,
            index_interval=segment.index_interval,
            expected_aborted=0,
            fresh=place.position == 0,
        )
        fresh.cut(place)
        fresh.content_end = segment.content_end
        if len(fresh.aborted) < segment.aborted_count:
            # The state file may be newer than the recovery point, so fewer can be right; the batches know.
            before = self._found.segments[: self._found.segments.index(segment)]
            rebuilt = rebuild_aborted(
                snapshots_in(self._opening.files, segment.directory),
                [*before, fresh],
                fresh,
                self._found.snapshots,
                self._log_start,
            )
            fresh.replace_aborted(rebuilt)
        return fresh

    def _scan(self, segment: Segment, file_size: int) -> str | None:
        position, wanted = segment.size, SCAN_BYTES
        with self._opening.handles.borrow(segment.path) as file:
            while position < file_size:
                window = file.pread(min(wanted, file_size - position), position)
                is_end = position + len(window) >= file_size
                step = scan_window(window, segment.next_offset, self._found.epochs.latest, is_end=is_end)
                for header, at in step.batches:
                    self._take(segment, header, window, at)
                self._found.scanned += step.consumed
                position += step.consumed
                if step.broken is not None:
                    return step.broken
                wanted = max(SCAN_BYTES, step.needed)
        return None

    def _take(self, segment: Segment, header: BatchHeader, window: bytes, at: int) -> None:
        markers = decode_markers(Batch(window, header, at)) if header.is_control else ()
        if header.leader_epoch > self._found.epochs.latest:
            for epoch, start in self._epoch_starts.items():
                if (
                    self._found.epochs.latest < epoch < header.leader_epoch
                    and self._last_end <= start <= header.base_offset
                ):
                    self._found.epochs.assign(epoch, start)
            self._found.epochs.assign(header.leader_epoch, self._epoch_start(header))
        segment.add(header, base_offset=header.base_offset, timestamp=header.largest_timestamp)
        segment.written = segment.size
        self._last_end = header.next_offset
        for aborted in self._states.apply(header, now_ms=self._opening.now_ms, markers=markers):
            segment.aborted.append(aborted)

    def _epoch_start(self, header: BatchHeader) -> int:
        """Where an epoch began: cleaning may have removed its first batches, but the state remembers."""
        known = self._epoch_starts.get(header.leader_epoch, -1)
        return known if self._last_end <= known <= header.base_offset else header.base_offset

    def _require_torn(self, number: int, file_size: int, broken: Place, problem: str) -> None:
        """Raise STORAGE_CORRUPT unless the broken place can only be a write that nobody was promised."""
        segments = self._found.segments
        segment = segments[number]
        broken = Place(max(broken.offset, self._broken_base(segment, broken, file_size)), broken.position)
        if broken.offset < self._promised:
            raise segment.damaged(
                broken.position, f"{problem}, and everything up to offset {self._promised} had been synced"
            )
        if number + 1 < len(segments) and self._config.flush == "commit":
            raise segment.damaged(
                broken.position, f"{problem}, and the next segment shows that this one was synced whole"
            )
        for later, start, size in [
            (segment, broken.position, file_size),
            *((other, 0, other.size) for other in segments[number + 1 :]),
        ]:
            proof = self._find_proof(later.path, start, size, broken.offset)
            if proof is not None:
                raise segment.damaged(
                    broken.position,
                    f"{problem}, and the batch at offset {proof.base_offset} was written after offset "
                    f"{broken.offset} had been synced",
                )

    def _broken_base(self, segment: Segment, broken: Place, file_size: int) -> int:
        """Where the broken batch begins, if its header tells: behind a gap, perhaps."""
        if file_size - broken.position < HEADER_SIZE:
            return broken.offset
        with self._opening.handles.borrow(segment.path) as file:
            window = file.pread(HEADER_SIZE, broken.position)
        try:
            return parse_header(window).base_offset
        except TailraceError:
            return broken.offset

    def _find_proof(self, path: str, position: int, size: int, beyond: int) -> BatchHeader | None:
        with self._opening.handles.borrow(path) as file:
            while position < size:
                window = file.pread(min(SCAN_BYTES, size - position), position)
                proof = find_proof(window, beyond, self._marks)
                if proof is not None:
                    return proof
                if len(window) < SCAN_BYTES:
                    break
                position += SCAN_BYTES - HEADER_SIZE
        return None

    def _cut(self, number: int, broken: Place) -> None:
        """Remove everything behind the broken place, the last segment first."""
        segments = self._found.segments
        files, handles = self._opening.files, self._opening.handles
        later = segments[number + 1 :]
        self._found.cut += sum(segment.size for segment in later)
        remove_segments(self._opening, later)
        del segments[number + 1 :]
        segment = segments[number]
        with handles.borrow(segment.path, write=True) as file:
            self._found.cut += file.size() - broken.position
            file.truncate(broken.position)
            file.datasync()
        files.sync_dir(segment.directory)

    def _save(self, segment: Segment) -> None:
        """What was scanned may still be in the page cache only, and the index files may hold old entries."""
        files = self._opening.files
        self._opening.handles.sync(segment.path)
        write_atomic(files, segment.sibling(INDEX_SUFFIX), segment.index.encode_frame(0), sync=False)
        segment.persisted_entries = len(segment.index)
        if len(segment.aborted) or files.exists(segment.sibling(TXN_INDEX_SUFFIX)):
            write_atomic(files, segment.sibling(TXN_INDEX_SUFFIX), segment.aborted.encode_frame(0))
        segment.persisted_aborted = len(segment.aborted)
