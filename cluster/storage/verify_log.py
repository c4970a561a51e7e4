"""Checking one partition: its small files, every batch, and whether all segments are there.

Reads only. `verify_segment` goes through the batches; here is what only the log as a whole can tell: segments
that are missing, gaps between them, and an end before the one on record. What is missing is reported once,
with its offsets. `verify` calls this for each partition of a directory, or for one segment.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Sequence

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.storage.checkpoint import SavedPoint
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.derived import snapshot_path
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.findings import REFILL, Report, silent
from tailrace.cluster.storage.inspect import PartitionFiles, SegmentFile, list_partition, lone_segment
from tailrace.cluster.storage.logfiles import PARTITION_FILE, RecoveryPoint
from tailrace.cluster.storage.logstate import STATE_FILE, SavedLogState, read_log_state
from tailrace.cluster.storage.recovery import read_identity
from tailrace.cluster.storage.segment import offset_name
from tailrace.cluster.storage.verify_derived import check_snapshots
from tailrace.cluster.storage.verify_segment import Circumstances, Known, SegmentWalk


class LogCheck:
    """One pass over one partition, or over one segment of it."""

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
        self._circumstances = circumstances
        self._report = report
        self._deep = deep
        self._on_bytes = on_bytes

    def run(self) -> None:
        report = self._report
        log_start = self._read_log_start(report)
        listing = list_partition(self._files, self._directory)
        state = self._read_state(listing, report)
        if listing.swaps:
            report.note(self._directory, "a cleaning was being put in place; the next start finishes it")
        if listing.leftovers:
            names = ", ".join(listing.leftovers)
            report.note(self._directory, f"files that the next start removes: {names}")
        walk = self._walk_of(listing, log_start, state)
        missing = self._find_missing(listing.segments, state)
        self._report_missing(listing.segments, missing, walk.known)
        self._go_through(listing, walk, missing)
        self._check_holes(walk)
        self._check_ends(listing.segments, missing, walk)
        check_snapshots(self._files, self._directory, listing.snapshots, report)

    def run_segment(self, path: str) -> None:
        """Only the segment file at `path`, by what its neighbours and the log's small files say of it."""
        listing = list_partition(self._files, self._directory)
        state = self._read_state(listing, silent())
        walk = self._walk_of(listing, self._read_log_start(silent()), state)
        numbers = [number for number, one in enumerate(listing.segments) if one.path == path]
        if not numbers or not self._is_in_a_log_directory():
            self._check_copy(lone_segment(self._files, path))
            return
        segment, later = listing.segments[numbers[0]], listing.segments[numbers[0] + 1 :]
        bounds = _bases(listing.segments, self._find_missing(listing.segments, state))
        walk.begin(segment.base_offset, self._snapshot(listing, segment.base_offset))
        walk.check(segment, later, _bound_behind(bounds, segment))

    def _is_in_a_log_directory(self) -> bool:
        """Without the directory's own files nobody knows what a start would do about a broken end."""
        return self._circumstances.marks is not None

    def _check_copy(self, segment: SegmentFile) -> None:
        walk = SegmentWalk(
            self._files,
            self._directory,
            Circumstances(),
            self._report,
            deep=self._deep,
            on_bytes=self._on_bytes,
            is_copy=True,
        )
        walk.begin(segment.base_offset, None)
        walk.check(segment, [], None)

    # State files.

    def _read_log_start(self, report: Report) -> int:
        path = f"{self._directory}/{PARTITION_FILE}"
        try:
            identity = read_identity(self._files, self._directory)
        except FileNotFoundError:
            report.error(
                path, f"is missing, and a node does not start without it. Move the directory away. {REFILL}"
            )
            return 0
        except TailraceError as error:
            report.error(path, str(error.args[0]))
            return 0
        if str(identity.topic_partition) != report.tally.name:
            report.warn(
                path, f"belongs to {identity.topic_partition}: the directory has been renamed or copied"
            )
        return identity.log_start_offset

    def _read_state(self, listing: PartitionFiles, report: Report) -> SavedLogState | None:
        path = f"{self._directory}/{STATE_FILE}"
        instead = "the next start scans the whole log instead"
        try:
            return read_log_state(self._files, self._directory, remedy=f"It can be rebuilt: {instead}.")
        except FileNotFoundError:
            if self._circumstances.clean and any(segment.size for segment in listing.segments):
                report.warn(path, f"is missing; {instead}")
        except TailraceError as error:
            report.warn(path, str(error.args[0]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            report.warn(path, f"lacks a usable {error}; {instead}")
        return None

    def _walk_of(self, listing: PartitionFiles, log_start: int, state: SavedLogState | None) -> SegmentWalk:
        walk = SegmentWalk(
            self._files,
            self._directory,
            self._circumstances,
            self._report,
            deep=self._deep,
            on_bytes=self._on_bytes,
        )
        walk.known = _known(listing.segments, log_start, self._circumstances.saved, state)
        return walk

    def _snapshot(self, listing: PartitionFiles, base: int) -> ProducerStates | None:
        if base in listing.snapshots:
            with contextlib.suppress(TailraceError, FileNotFoundError):
                return ProducerStates.decode(self._files.read(snapshot_path(self._directory, base)))[0]
        return None

    # Segments.

    def _find_missing(self, segments: Sequence[SegmentFile], state: SavedLogState | None) -> list[int]:
        """Segments that the state lists and that are not there.

        Of a log that was not closed, the first ones may have been removed since, by retention.
        """
        there = {segment.base_offset for segment in segments}
        first = 0 if self._circumstances.clean else min(there, default=0)
        listed = [one.base_offset for one in state.segments] if state is not None else []
        return [base for base in listed if base >= first and base not in there]

    def _report_missing(self, segments: Sequence[SegmentFile], missing: list[int], known: Known) -> None:
        bases = _bases(segments, missing)
        last = segments[-1].base_offset if segments else -1
        for base in missing:
            behind = bisect_right(bases, base)
            end = bases[behind] if behind < len(bases) else known.promised
            offsets = f", with offsets {base} to {end - 1}" if end > base else ""
            what = f"the segment {offset_name(base)}.log is missing{offsets}"
            if base > last and end <= base and known.flush == "os":
                self._report.note(
                    self._directory, f"{what}: with flush=os, a start that was cut short has removed it"
                )
            else:
                self._report.error(self._directory, f"{what}. {REFILL}")

    def _go_through(self, listing: PartitionFiles, walk: SegmentWalk, missing: list[int]) -> None:
        segments, bases = listing.segments, _bases(listing.segments, missing)
        if segments:
            walk.begin(segments[0].base_offset, self._snapshot(listing, segments[0].base_offset))
        for number, segment in enumerate(segments):
            self._meet(walk, segment, is_first=number == 0)
            walk.check(segment, segments[number + 1 :], _bound_behind(bases, segment))
            if walk.is_torn:
                break

    def _meet(self, walk: SegmentWalk, segment: SegmentFile, *, is_first: bool) -> None:
        """How a segment follows the one before."""
        base = segment.base_offset
        if not is_first and walk.is_end_known and walk.next_offset > base:
            self._report.error(
                segment.path,
                f"begins below offset {walk.next_offset}, where the one before it ends. {REFILL}",
            )
            walk.forget_producers()
        walk.next_offset = max(base, walk.next_offset) if walk.is_end_known else base
        walk.is_end_known = True

    # The log as a whole.

    def _check_holes(self, walk: SegmentWalk) -> None:
        saved = self._circumstances.saved
        cleaned_to = saved.cleaned_to if saved is not None else 0
        for segment, start, end in walk.holes:
            if end <= cleaned_to:
                continue
            if walk.is_compacted:
                self._report.warn(
                    segment.path,
                    f"offsets {start} to {end - 1} behind it have no records. The log is compacted, so they "
                    "may have been cleaned away; if not, a segment is missing",
                )
            else:
                self._report.error(
                    segment.path, f"offsets {start} to {end - 1} behind it are missing. {REFILL}"
                )

    def _check_ends(self, segments: Sequence[SegmentFile], missing: list[int], walk: SegmentWalk) -> None:
        saved, log_start = self._circumstances.saved, walk.known.log_start
        last = segments[-1] if segments else None
        end = walk.next_offset if last is not None else 0
        if saved is not None and saved.rewrites == walk.known.rewrites:
            point = saved.point
            base = last.base_offset if last is not None else -1
            if base < point.base and point.offset > log_start:
                if point.base not in missing:
                    self._report.error(
                        self._directory,
                        f"the segment {offset_name(point.base)}.log is missing, up to offset {point.offset} "
                        f"at least. {REFILL}",
                    )
                return
            if end < point.offset and walk.is_end_known and not walk.is_torn:
                self._report.error(
                    last.path if last is not None else self._directory,
                    f"ends at offset {end}, but the log was synced up to offset {point.offset}. {REFILL}",
                )
        if last is not None and log_start > end:
            self._report.error(
                self._directory,
                f"the log ends at offset {end}, before its log start offset {log_start}: segments are "
                f"missing. {REFILL}",
            )


def _bases(segments: Sequence[SegmentFile], missing: Sequence[int]) -> list[int]:
    return sorted({*missing, *(segment.base_offset for segment in segments)})


def _bound_behind(bases: Sequence[int], segment: SegmentFile) -> int | None:
    behind = bisect_right(bases, segment.base_offset)
    return bases[behind] if behind < len(bases) else None


def _known(
    segments: Sequence[SegmentFile], log_start: int, saved: SavedPoint | None, state: SavedLogState | None
) -> Known:
    if state is None:
        return Known(log_start=log_start)
    promised = state.synced_to
    if saved is not None and saved.rewrites == state.rewrites:
        promised = max(promised, saved.point.offset)
    return Known(
        log_start=log_start,
        point=_usable_point(segments, saved, state.rewrites, state.lowered_to),
        promised=promised,
        epochs=state.epochs,
        segments={one.base_offset: one for one in state.segments},
        flush=state.flush,
        rewrites=state.rewrites,
    )


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
