"""Checking the batches of a log's segments: which are whole, and what the places between them are.

Reads only. Whether a broken place is an error or a torn end follows the rule of recovery (ADR 1 and 2): where
the small files say that it had been synced, or a later batch or segment proves it, it is damage; otherwise it
is a write that nobody was promised, and the next start cuts the log there. What a redo of the journal will
write back is laid over the segments before they are judged. `verify_log` goes through the segments with this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader, parse_header
from tailrace.cluster.common.control import Marker, decode_markers
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.types import NO_LEADER_EPOCH, Bytes
from tailrace.cluster.storage.checkpoint import SavedPoint
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.files import File, Files
from tailrace.cluster.storage.findings import REFILL, Report
from tailrace.cluster.storage.inspect import (
    Damage,
    FoundBatch,
    SegmentFile,
    Source,
    is_zero_from,
    proof_behind,
    reason,
    walk,
)
from tailrace.cluster.storage.logfiles import RecoveryPoint
from tailrace.cluster.storage.logstate import STATE_FILE, SavedSegment
from tailrace.cluster.storage.verify_derived import IndexCheck, check_aborted

_END = 2**63 - 1


class Circumstances(NamedTuple):
    """What is known of a partition before its files are read."""

    clean: bool = False
    """The node stopped cleanly, so every derived file must be there."""
    saved: SavedPoint | None = None
    patches: Mapping[int, Sequence[tuple[int, Bytes]]] = {}
    """By segment: what a redo of the journal will write back."""
    marks: SyncMarks | None = None
    """None when the log directory's own files are not at hand."""


class Known(NamedTuple):
    """What the small files of a log say of its batches; the defaults are for a log without them."""

    log_start: int = 0
    point: RecoveryPoint | None = None
    promised: int = 0
    """Everything below this offset had been synced."""
    epochs: EpochHistory | None = None
    segments: Mapping[int, SavedSegment] = {}
    """Those that were there when the state was saved, by base offset."""
    flush: str | None = None
    rewrites: int | None = None


class _Broken(NamedTuple):
    """A place in a segment that holds no batch, from a position to an end, and the offsets that it held."""

    position: int
    end: int
    problem: str
    offset: int
    next_offset: int | None
    """Where records begin again; None when nothing tells."""

    def lost(self) -> str:
        if self.next_offset is None or self.next_offset <= self.offset:
            return f"{self.end - self.position} bytes from offset {self.offset} on cannot be read"
        last = self.next_offset - 1
        which = f"Offset {last}" if last == self.offset else f"Offsets {self.offset} to {last}"
        return f"{which} cannot be read"


class SegmentWalk:
    """Goes through the segments of one log in order; what it learns of one counts for the next."""

    def __init__(
        self,
        files: Files,
        directory: str,
        circumstances: Circumstances,
        report: Report,
        *,
        deep: bool,
        on_bytes: Callable[[int], None],
        is_copy: bool = False,
    ) -> None:
        """`is_copy`: no start will ever come that cuts a torn end, so whatever is broken is an error."""
        self._files = files
        self._directory = directory
        self._clean, self._saved, self._patches, self._marks = circumstances
        self._report = report
        self._tally = report.tally
        self._deep = deep
        self._on_bytes = on_bytes
        self._is_copy = is_copy
        self.known = Known()
        self.next_offset = 0
        self.is_end_known = True
        """Nothing is broken between the last whole batch and here."""
        self.is_torn = False
        """The log is cut here at the next start, so what follows does not count."""
        self.is_compacted = False
        self.holes: list[tuple[SegmentFile, int, int]] = []
        """Offsets between two segments of which nobody knows whether they ever had records."""
        # None once they cannot be right.
        self._states: ProducerStates | None = ProducerStates()
        self._knows_start = True
        self._epoch: int = NO_LEADER_EPOCH

    def begin(self, base: int, snapshot: ProducerStates | None) -> None:
        """`snapshot`: the producers where the log begins, so that transactions from before are understood."""
        self.next_offset = self._tally.start_offset = base
        if snapshot is not None:
            self._states = snapshot
        self._knows_start = snapshot is not None or base == 0

    def check(self, segment: SegmentFile, later: Sequence[SegmentFile], bound: int | None) -> None:
        """`later`: the segments behind it. `bound`: where the next one begins, there or missing, if any."""
        self._tally.segments += 1
        is_closed = bound is not None
        index = IndexCheck(
            self._files,
            segment,
            self._report,
            redo_end=self._redo_end(segment),
            is_due=(is_closed or self._clean) and not self._is_copy,
        )
        aborted: list[AbortedTransaction] = []
        try:
            file = self._files.open(segment.path)
        except FileNotFoundError:
            self._report.note(segment.path, "went before it could be read: it has expired or been cleaned")
            self.is_end_known = False
            return
        try:
            source = self._source(file, segment)
            self._tally.size += source.size
            self._walk(segment, source, later, bound, index, aborted)
            if bound is not None and not self.is_torn:
                self._check_end(segment, source, later, bound)
        finally:
            file.close()
        self._tally.end_offset = self.next_offset
        index.finish(self._report, self._promised_to(segment))
        must_be_saved = self._clean or (is_closed and self._promised_to(segment) == _END)
        saved = self.known.segments.get(segment.base_offset)
        check_aborted(
            self._files,
            segment,
            self._report,
            expected=saved.aborted if saved is not None else 0,
            derived=aborted if must_be_saved and self._states is not None else None,
            is_complete=self._knows_start and not self.is_compacted,
        )

    def forget_producers(self) -> None:
        """What the batches say of transactions cannot be followed from here on."""
        self._states = None

    # Broken places.

    def _walk(
        self,
        segment: SegmentFile,
        source: Source,
        later: Sequence[SegmentFile],
        bound: int | None,
        index: IndexCheck,
        aborted: list[AbortedTransaction],
    ) -> None:
        for found in walk(source, expected_offset=segment.base_offset):
            if isinstance(found, FoundBatch) and found.problem is None:
                self._take(segment, found, aborted)
                index.pass_batch(found)
                self._on_bytes(found.header.size)
                self.is_end_known = True
                continue
            end = found.end if isinstance(found, Damage) else found.position + found.header.size
            following = self._offset_at(source, end, bound)
            broken = _Broken(found.position, end, str(found.problem), self.next_offset, following)
            self._judge(segment, source, broken, later)
            self.forget_producers()
            index.skip(end)
            self._on_bytes((source.size if self.is_torn else end) - found.position)
            if self.is_torn:
                return
            self.is_end_known = False
            if following is not None and (end < source.size or bound is not None):
                self.next_offset = max(self.next_offset, following)

    def _offset_at(self, source: Source, position: int, bound: int | None) -> int | None:
        """The offset from which on there are records again behind a broken place that ends at `position`."""
        if position < source.size:
            with contextlib.suppress(TailraceError):
                return parse_header(source.read(position, HEADER_SIZE)).base_offset
            return None
        return bound if bound is not None else self.known.promised

    def _check_end(
        self, segment: SegmentFile, source: Source, later: Sequence[SegmentFile], bound: int
    ) -> None:
        """A segment that ends before the next one begins: cleaning leaves such gaps, and so does a cut."""
        if not self.is_end_known or self.next_offset >= bound:
            return
        saved = self.known.segments.get(segment.base_offset)
        content_end = saved.content_end if saved is not None else -1
        is_short = saved is not None and source.size < saved.size
        if not is_short and content_end < 0:
            self.holes.append((segment, self.next_offset, bound))
            return
        if not is_short and self.next_offset >= content_end:
            return
        problem = f"ends at offset {self.next_offset}"
        if is_short and saved is not None:
            problem = f"has {source.size} bytes, where it had {saved.size}"
        size = source.size
        self._judge(segment, source, _Broken(size, size, problem, self.next_offset, bound), later)
        self.forget_producers()
        self.is_end_known = False

    def _judge(
        self, segment: SegmentFile, source: Source, broken: _Broken, later: Sequence[SegmentFile]
    ) -> None:
        position, path = broken.position, segment.path
        what = f"{broken.problem}. {broken.lost()}"
        why = self._why_promised(segment, source, broken, later)
        is_zero = position < source.size and is_zero_from(source, position)
        if why is not None:
            self._report.error(path, f"{what}; {why}. {REFILL}", position)
        elif self._is_copy and not is_zero:
            self._report.error(path, what, position)
        else:
            self.is_torn = True
            rest = source.size - position
            if is_zero and not any(one.size for one in later):
                what = f"{rest} zero bytes at the end are space reserved for writes, or a torn end"
            else:
                what = f"torn end, normal after a crash: {broken.problem}"
                rest += sum(one.size for one in later)
            if not self._is_copy:
                what += f". The next start cuts {rest} bytes from offset {broken.offset} on"
                what += f", and removes {len(later)} later segments" if later else ""
            self._report.note(path, what, position)

    def _why_promised(
        self, segment: SegmentFile, source: Source, broken: _Broken, later: Sequence[SegmentFile]
    ) -> str | None:
        """What shows that the place had been synced, if anything does."""
        if broken.position < self._promised_to(segment) or broken.offset < self.known.promised:
            return "they were synced before the last checkpoint"
        proof = self._proof_behind(source, broken.position, broken.offset)
        proof = proof or self._proof_in(later, broken.offset)
        if proof is not None:
            return f"the batch at offset {proof.base_offset} was written after they had been synced"
        saved = self.known.segments.get(segment.base_offset)
        if saved is not None and source.size < saved.size and (self._clean or self.known.flush == "commit"):
            return f"the file had {saved.size} bytes when it was closed, all of them synced"
        if not any(one.size for one in later) or self.known.flush == "os":
            return None
        shown = "the next segment shows that this one was synced whole"
        return shown if self.known.flush else f"{shown} (or, with flush=os, the next start cuts the log here)"

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
        point = self.known.point
        if point is None or segment.base_offset > point.base:
            return 0
        return _END if segment.base_offset < point.base else point.position

    def _source(self, file: File, segment: SegmentFile) -> Source:
        return Source(file, self._patches.get(segment.base_offset, ()))

    def _redo_end(self, segment: SegmentFile) -> int:
        return max((at + len(data) for at, data in self._patches.get(segment.base_offset, ())), default=0)

    # Whole batches.

    def _take(self, segment: SegmentFile, found: FoundBatch, aborted: list[AbortedTransaction]) -> None:
        position, header, data, *_ = found
        self._tally.batches += 1
        if not header.is_control:
            self._tally.records += header.record_count
        follows = header.base_offset == self.next_offset or not self.is_end_known
        if not follows or header.record_count <= header.last_offset_delta:
            self.is_compacted = True
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
                self.forget_producers()
        self.next_offset = header.next_offset
        if self._states is not None:
            try:
                aborted += self._states.apply(header, now_ms=0, markers=markers)
            except ValueError:
                self.forget_producers()  # The offsets contradict the snapshot that the log begins with.

    def _check_epoch(self, segment: SegmentFile, header: BatchHeader, position: int) -> None:
        if header.leader_epoch < self._epoch:
            self._report.error(
                segment.path,
                f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch} behind "
                f"epoch {self._epoch}: the logs of two leaders are mixed. {REFILL}",
                position,
            )
        self._epoch = max(self._epoch, header.leader_epoch)
        offset, known = header.base_offset, self.known
        if known.epochs is None or known.point is None:
            return
        if known.log_start <= offset < known.point.offset and (
            known.epochs.epoch_at(offset) != header.leader_epoch
        ):
            self._report.error(
                f"{self._directory}/{STATE_FILE}",
                f"says that epoch {known.epochs.epoch_at(offset)} wrote offset {offset}, the batch there has "
                f"epoch {header.leader_epoch}. Remove the file while the node is stopped: it is rebuilt",
            )
            self.known = known._replace(epochs=None)  # One such finding tells it all.


def decode(batch: Batch) -> None:
    """Read every column, so that what cannot be decoded raises."""
    if len(batch):
        batch.offset_array()
        batch.timestamp_array()
    batch.keys()
    batch.values()
    batch.headers()
