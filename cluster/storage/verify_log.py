"""Checking one partition: every batch, and every file that is derived from the batches.

Reads only. Whether a broken place is an error or a torn end follows the rule of recovery (ADR 1): below the
recovery point, or with a later batch that proves it had been synced, it is damage; otherwise it is a write
that nobody was promised, and the next start cuts it. What a redo of the journal will write back is laid over
the segments before they are judged. `verify` calls this for each partition of a directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.cluster.common.batch import BatchHeader
from tailrace.cluster.common.control import Marker, decode_markers
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.types import NO_LEADER_EPOCH, Bytes
from tailrace.cluster.storage.checkpoint import SavedPoint
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.derived import snapshot_path
from tailrace.cluster.storage.files import File, Files
from tailrace.cluster.storage.findings import REFILL, Report
from tailrace.cluster.storage.inspect import (
    Damage,
    FoundBatch,
    PartitionFiles,
    SegmentFile,
    Source,
    is_zero_from,
    list_partition,
    proof_behind,
    reason,
    walk,
)
from tailrace.cluster.storage.logfiles import PARTITION_FILE, RecoveryPoint
from tailrace.cluster.storage.logstate import STATE_FILE, SavedLogState, read_log_state
from tailrace.cluster.storage.recovery import read_identity
from tailrace.cluster.storage.segment import offset_name
from tailrace.cluster.storage.verify_derived import IndexCheck, check_aborted, check_snapshots

_END = 2**63 - 1


class Circumstances(NamedTuple):
    """What is known of a partition before its files are read."""

    clean: bool
    """The node stopped cleanly, so every derived file must be there."""
    saved: SavedPoint | None
    patches: Mapping[int, Sequence[tuple[int, Bytes]]]
    """By segment: what a redo of the journal will write back."""
    marks: SyncMarks | None
    """None when the log directory's own files are not at hand."""


class LogCheck:
    """One pass over one partition; `run` may be called once."""

    def __init__(
        self,
        files: Files,
        directory: str,
        circumstances: Circumstances,
        report: Report,
        *,
        deep: bool,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._files = files
        self._directory = directory
        self._clean, self._saved, self._patches, self._marks = circumstances
        self._report = report
        self._tally = report.tally
        self._deep = deep
        self._on_bytes = on_bytes
        # What the small files say; the point is None when nothing is known to have been synced.
        self._listing = PartitionFiles(directory, [], [], [], [])
        self._log_start = 0
        self._point: RecoveryPoint | None = None
        self._epochs: EpochHistory | None = None
        self._aborted_counts: dict[str, int] = {}
        # The walk through the log, across its segments. The states are None once they cannot be right.
        self._next_offset = 0
        self._epoch: int = NO_LEADER_EPOCH
        self._states: ProducerStates | None = ProducerStates()
        self._knows_start = True
        self._is_compacted = False
        self._is_end_known = True
        self._is_torn = False
        self._holes: list[tuple[SegmentFile, int, int]] = []

    def run(self) -> None:
        self._check_identity()
        self._listing = list_partition(self._files, self._directory)
        segments = self._listing.segments
        rewrites = self._check_state()
        if self._listing.swaps:
            self._report.note(
                self._directory, "a cleaning was being put in place; the next start finishes it"
            )
        if self._listing.leftovers:
            names = ", ".join(self._listing.leftovers)
            self._report.note(self._directory, f"files that the next start removes: {names}")
        if segments:
            self._begin(segments[0].base_offset)
        for number, segment in enumerate(segments):
            self._meet(segments[number - 1] if number else None, segment)
            self._check_segment(number, segment)
            if self._is_torn:
                break
        self._check_holes()
        self._check_ends(segments, rewrites)
        check_snapshots(self._files, self._directory, self._listing.snapshots, self._report)

    # State files.

    def _check_identity(self) -> None:
        path = f"{self._directory}/{PARTITION_FILE}"
        try:
            identity = read_identity(self._files, self._directory)
        except FileNotFoundError:
            self._report.error(
                path, f"is missing, and a node does not start without it. Move the directory away. {REFILL}"
            )
            return
        except TailraceError as error:
            self._report.error(path, str(error.args[0]))
            return
        self._log_start = identity.log_start_offset
        if str(identity.topic_partition) != self._tally.name:
            self._report.warn(
                path, f"belongs to {identity.topic_partition}: the directory has been renamed or copied"
            )

    def _check_state(self) -> int | None:
        """Reads the log's own state; returns how often the log was rewritten, None if that is not known."""
        path = f"{self._directory}/{STATE_FILE}"
        instead = "the next start scans the whole log instead"
        try:
            state = read_log_state(self._files, self._directory, remedy=f"It can be rebuilt: {instead}.")
        except FileNotFoundError:
            if self._clean and any(segment.size for segment in self._listing.segments):
                self._report.warn(path, f"is missing; {instead}")
            return None
        except TailraceError as error:
            self._report.warn(path, str(error.args[0]))
            return None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self._report.warn(path, f"lacks a usable {error}; {instead}")
            return None
        self._epochs = state.epochs
        self._aborted_counts = {str(one.base_offset): one.aborted for one in state.segments if one.aborted}
        self._check_listed(state)
        self._point = _usable_point(self._listing.segments, self._saved, state.rewrites, state.lowered_to)
        return state.rewrites

    def _check_listed(self, state: SavedLogState) -> None:
        """Segments that the state lists are there, but for those that retention took since."""
        there = {segment.base_offset for segment in self._listing.segments}
        first = min(there, default=0)
        for one in state.segments:
            if one.base_offset >= first and one.base_offset not in there:
                self._report.error(
                    self._directory, f"the segment {offset_name(one.base_offset)}.log is missing. {REFILL}"
                )

    def _begin(self, base: int) -> None:
        """Producers as they were where the log begins, so that transactions from before are understood."""
        self._next_offset = self._tally.start_offset = base
        if base in self._listing.snapshots:
            with contextlib.suppress(TailraceError, FileNotFoundError):
                self._states, _ = ProducerStates.decode(
                    self._files.read(snapshot_path(self._directory, base))
                )
                return
        self._knows_start = base == 0

    # Segments.

    def _meet(self, previous: SegmentFile | None, segment: SegmentFile) -> None:
        """How a segment follows the one before."""
        base = segment.base_offset
        if previous is not None and self._is_end_known:
            if self._next_offset > base:
                self._report.error(
                    segment.path,
                    f"begins below offset {self._next_offset}, where the one before it ends. {REFILL}",
                )
                self._states = None
            elif self._next_offset < base:
                self._holes.append((previous, self._next_offset, base))
        self._next_offset = max(base, self._next_offset) if self._is_end_known else base
        self._is_end_known = True

    def _check_segment(self, number: int, segment: SegmentFile) -> None:
        self._tally.segments += 1
        is_closed = number + 1 < len(self._listing.segments)
        redo_end = max((at + len(data) for at, data in self._patches.get(segment.base_offset, ())), default=0)
        index = IndexCheck(
            self._files, segment, self._report, redo_end=redo_end, is_due=is_closed or self._clean
        )
        aborted: list[AbortedTransaction] = []
        try:
            file = self._files.open(segment.path)
        except FileNotFoundError:
            self._report.note(segment.path, "went before it could be read: it has expired or been cleaned")
            self._is_end_known = False
            return
        try:
            self._walk(number, self._source(file, segment), index, aborted)
        finally:
            file.close()
        self._tally.end_offset = self._next_offset
        index.finish(self._report, self._promised_to(segment))
        must_be_saved = self._clean or (is_closed and self._promised_to(segment) == _END)
        check_aborted(
            self._files,
            segment,
            self._report,
            expected=self._aborted_counts.get(str(segment.base_offset), 0),
            derived=aborted if must_be_saved and self._states is not None else None,
            is_complete=self._knows_start and not self._is_compacted,
        )

    def _walk(
        self, number: int, source: Source, index: IndexCheck, aborted: list[AbortedTransaction]
    ) -> None:
        segment = self._listing.segments[number]
        self._tally.size += source.size
        for found in walk(source, expected_offset=segment.base_offset):
            if isinstance(found, FoundBatch) and found.problem is None:
                self._take(segment, found, aborted)
                index.pass_batch(found)
                self._on_bytes(found.header.size)
                self._is_end_known = True
                continue
            if isinstance(found, Damage):
                end, problem = found.end, found.problem
            else:
                end, problem = found.position + found.header.size, str(found.problem)
            self._judge_broken(number, source, found.position, end, problem)
            self._states = None
            index.skip(end)
            self._on_bytes((source.size if self._is_torn else end) - found.position)
            if self._is_torn:
                return
            self._is_end_known = False

    def _source(self, file: File, segment: SegmentFile) -> Source:
        return Source(file, self._patches.get(segment.base_offset, ()))

    def _judge_broken(self, number: int, source: Source, position: int, end: int, problem: str) -> None:
        segment = self._listing.segments[number]
        later = self._listing.segments[number + 1 :]
        offset = self._next_offset
        lost = f"{problem}. {end - position} bytes from offset {offset} on cannot be read"
        if position < self._promised_to(segment):
            self._report.error(
                segment.path, f"{lost}; they were synced before the last checkpoint. {REFILL}", position
            )
            return
        proof = self._proof_behind(source, position, offset) or self._proof_in(later, offset)
        if proof is not None:
            self._report.error(
                segment.path,
                f"{lost}; the batch at offset {proof.base_offset} was written after they had been synced. "
                f"{REFILL}",
                position,
            )
        elif any(one.size for one in later):
            self._report.error(
                segment.path,
                f"{lost}; the next segment shows that this one was synced whole (unless the topic has "
                f"flush=os: then recovery cuts the log here). {REFILL}",
                position,
            )
        else:
            self._is_torn = True
            rest = source.size - position
            what = (
                f"{rest} zero bytes at the end are space reserved for writes, or a torn end"
                if is_zero_from(source, position)
                else f"torn end, normal after a crash: {problem}"
            )
            self._report.note(
                segment.path, f"{what}. The next start cuts {rest} bytes from offset {offset} on", position
            )

    def _proof_behind(self, source: Source, position: int, beyond: int) -> BatchHeader | None:
        """Without the directory's secret nobody can read the marks: then nothing is proven."""
        return proof_behind(source, position, beyond, self._marks) if self._marks is not None else None

    def _proof_in(self, segments: Sequence[SegmentFile], beyond: int) -> BatchHeader | None:
        for segment in segments:
            file = self._files.open(segment.path)
            try:
                proof = self._proof_behind(self._source(file, segment), 0, beyond)
            finally:
                file.close()
            if proof is not None:
                return proof
        return None

    def _promised_to(self, segment: SegmentFile) -> int:
        """The position in a segment below which everything is known to have been synced."""
        point = self._point
        if point is None or segment.base_offset > point.base:
            return 0
        return _END if segment.base_offset < point.base else point.position

    # Batches.

    def _take(self, segment: SegmentFile, found: FoundBatch, aborted: list[AbortedTransaction]) -> None:
        position, header, data, *_ = found
        self._tally.batches += 1
        if not header.is_control:
            self._tally.records += header.record_count
        follows = header.base_offset == self._next_offset or not self._is_end_known
        if not follows or header.record_count <= header.last_offset_delta:
            self._is_compacted = True
        self._check_epoch(segment, header, position)
        markers: tuple[Marker, ...] = ()
        try:
            batch = Batch(data, header)
            if header.is_control:
                markers = decode_markers(batch)
            elif self._deep:
                decode(batch)
        except TailraceError as error:
            self._report.error(
                segment.path,
                f"the batch at offset {header.base_offset} cannot be decoded: {reason(error)}. Its checksum "
                "is right, so it is stored as it was sent; its records cannot be read",
                position,
            )
            if header.is_control:
                self._states = None
        self._next_offset = header.next_offset
        if self._states is not None:
            try:
                aborted += self._states.apply(header, now_ms=0, markers=markers)
            except ValueError:
                self._states = None  # The offsets contradict the snapshot that the log begins with.

    def _check_epoch(self, segment: SegmentFile, header: BatchHeader, position: int) -> None:
        if header.leader_epoch < self._epoch:
            self._report.error(
                segment.path,
                f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch} behind "
                f"epoch {self._epoch}: the logs of two leaders are mixed. {REFILL}",
                position,
            )
        self._epoch = max(self._epoch, header.leader_epoch)
        offset, known = header.base_offset, self._epochs
        if known is None or self._point is None or not self._log_start <= offset < self._point.offset:
            return
        if known.epoch_at(offset) != header.leader_epoch:
            self._report.error(
                f"{self._directory}/{STATE_FILE}",
                f"says that epoch {known.epoch_at(offset)} wrote offset {offset}, the batch there has epoch "
                f"{header.leader_epoch}. Remove the file while the node is stopped: it is rebuilt",
            )
            self._epochs = None  # One such finding tells it all.

    # The log as a whole.

    def _check_holes(self) -> None:
        cleaned_to = self._saved.cleaned_to if self._saved is not None else 0
        for segment, start, end in self._holes:
            if end <= cleaned_to:
                continue
            if self._is_compacted:
                self._report.warn(
                    segment.path,
                    f"offsets {start} to {end - 1} behind it have no records. The log is compacted, so they "
                    "may have been cleaned away; if not, a segment is missing",
                )
            else:
                self._report.error(
                    segment.path, f"offsets {start} to {end - 1} behind it are missing. {REFILL}"
                )

    def _check_ends(self, segments: Sequence[SegmentFile], rewrites: int | None) -> None:
        saved = self._saved
        last = segments[-1] if segments else None
        end = self._next_offset if last is not None else 0
        if saved is not None and saved.rewrites == rewrites:
            point = saved.point
            base = last.base_offset if last is not None else -1
            if base < point.base and point.offset > self._log_start:
                self._report.error(
                    self._directory,
                    f"the segment {offset_name(point.base)}.log is missing, up to offset {point.offset} at "
                    f"least. {REFILL}",
                )
                return
            if end < point.offset and self._is_end_known and not self._is_torn:
                self._report.error(
                    last.path if last is not None else self._directory,
                    f"ends at offset {end}, but the log was synced up to offset {point.offset}. {REFILL}",
                )
        if last is not None and self._log_start > end:
            self._report.error(
                self._directory,
                f"the log ends at offset {end}, before its log start offset {self._log_start}: segments are "
                f"missing. {REFILL}",
            )


def decode(batch: Batch) -> None:
    """Read every column, so that what cannot be decoded raises."""
    if len(batch):
        batch.offset_array()
        batch.timestamp_array()
    batch.keys()
    batch.values()
    batch.headers()


def _usable_point(
    segments: Sequence[SegmentFile], saved: SavedPoint | None, rewrites: int, lowered_to: int | None
) -> RecoveryPoint | None:
    """Up to where everything was synced, as far as the checkpoint can still be believed."""
    if saved is None:
        return None
    if saved.rewrites == rewrites:
        return saved.point
    offset = saved.point.offset if lowered_to is None else min(saved.point.offset, lowered_to)
    bases = [segment.base_offset for segment in segments if segment.base_offset <= offset]
    return RecoveryPoint(bases[-1], bases[-1], 0) if bases else None
