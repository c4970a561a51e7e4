"""Opening a log: what its directory holds, checked as far as the last shutdown allows.

Runs on any thread, before the log has an owner. After a clean shutdown only names, sizes and small state
files are looked at. Otherwise everything past the recovery point is read and checked (ADR 2); what comes
out is either a log that holds all that was ever acknowledged here, or STORAGE_CORRUPT, which leaves every
file as it was.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader
from tailrace.cluster.common.control import decode_markers
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.core.recovery import find_proof, scan_window
from tailrace.cluster.storage.derived import load_producers, rebuild_aborted, snapshots_in
from tailrace.cluster.storage.files import TEMPORARY_SUFFIX, Entry, Files, write_atomic
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.log import LogState
from tailrace.cluster.storage.logfiles import (
    PARTITION_FILE,
    STATE_FILE,
    STATE_VERSION,
    RecoveryPoint,
)
from tailrace.cluster.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCERS_SUFFIX,
    TXN_INDEX_SUFFIX,
    Place,
    Segment,
    offset_name,
)
from tailrace.cluster.storage.statefile import read_state, write_state
from tailrace.cluster.storage.swap import recover_swaps

SCAN_BYTES = 4 << 20
_NUMBERED = re.compile(r"(\d{20})(\.[a-z]+)")


class Identity(NamedTuple):
    topic_partition: TopicPartition
    topic_id: bytes
    log_start_offset: int


class SavedPoint(NamedTuple):
    """What the directory's checkpoint says of a log. Only for the topic of that id: names come back."""

    topic_id: bytes
    point: RecoveryPoint
    high_watermark: int
    cleaned_to: int
    rewrites: int

    def to_json(self) -> tuple[int | str, ...]:
        return (self.topic_id.hex(), *self.point, self.high_watermark, self.cleaned_to, self.rewrites)

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> SavedPoint:
        topic_id, offset, base, position, high_watermark, cleaned_to, rewrites = values
        point = RecoveryPoint(int(offset), int(base), int(position))
        return cls(bytes.fromhex(topic_id), point, int(high_watermark), int(cleaned_to), int(rewrites))


class _SavedState(NamedTuple):
    """What the log's own state file says; without one (`epochs` is None) the batches are asked."""

    epochs: EpochHistory | None
    aborted_counts: dict[str, int]
    rewrites: int
    lowered_to: int | None


class Opened(NamedTuple):
    state: LogState
    to_remove: list[str]
    scanned_bytes: int
    cut_bytes: int


@dataclass(slots=True)
class Opening:
    """The circumstances under which the logs of a directory are opened."""

    files: Files
    handles: HandleCache
    clean: bool
    now_ms: int


@dataclass(slots=True)
class _Found:
    segments: list[Segment]
    snapshots: list[int]
    to_remove: list[str]
    scanned: int = 0
    cut: int = 0
    epochs: EpochHistory = field(default_factory=EpochHistory)


def read_identity(files: Files, directory: str) -> Identity:
    path = f"{directory}/{PARTITION_FILE}"
    _, body = read_state(files, path, "partition", 1)
    try:
        partition = TopicPartition(str(body["topic"]), int(body["partition"]))
        return Identity(partition, bytes.fromhex(body["topic_id"]), int(body["log_start_offset"]))
    except (KeyError, ValueError, TypeError) as error:
        raise TailraceError(ErrorCode.STORAGE_CORRUPT, f"{path} lacks a usable {error}") from None


def open_log(
    opening: Opening, directory: str, identity: Identity, config: TopicConfig, saved: SavedPoint | None
) -> Opened:
    files = opening.files
    recover_swaps(files, directory)
    entries = files.list(directory)
    own = _read_log_state(files, directory)
    epochs = own.epochs
    found = _list_segments(opening, directory, entries, config, own.aborted_counts)
    if not found.segments:
        found.segments.append(_first_segment(opening, directory, identity.log_start_offset, config))
    point = _usable_point(found, saved, own)
    if opening.clean and point is not None and epochs is not None and _is_whole(found, point):
        found.epochs = epochs
        found.segments[-1].next_offset = point.offset
        producers = _lazy_producers(opening, directory, found, identity.log_start_offset)
    else:
        producers = _recover(opening, directory, identity, config, found, point, own)
    log_start = max(identity.log_start_offset, found.segments[0].base_offset)
    end = found.segments[-1].next_offset
    if end < log_start and (config.flush != "commit" or all(s.size == 0 for s in found.segments)):
        # Nothing is left before the start: the power took unsynced records that had been deleted anyway,
        # or the first batch of an emptied log never came.
        _remove_segments(opening, found.segments)
        found.segments = [_first_segment(opening, directory, log_start, config)]
        found.epochs.truncate_end(0)
        end = log_start
    promised = log_start
    if saved is not None and own.epochs is not None and saved.rewrites == own.rewrites:
        promised = max(promised, saved.point.offset)
    if end < promised:
        raise TailraceError(
            ErrorCode.STORAGE_CORRUPT,
            f"{directory} ends at offset {end}, but everything up to {promised} had been synced: segments "
            "are missing or were cut. The replica must be fetched again from another one.",
        )
    found.epochs.truncate_start(log_start)
    watermark = saved.high_watermark if saved is not None else log_start
    state = LogState(
        segments=found.segments,
        log_start_offset=log_start,
        high_watermark=min(max(watermark, log_start), end),
        epochs=found.epochs,
        producers=producers,
        snapshots=found.snapshots,
        cleaned_to=saved.cleaned_to if saved is not None else 0,
        rewrites=own.rewrites,
    )
    return Opened(state, found.to_remove, found.scanned, found.cut)


# Finding.


def _list_segments(
    opening: Opening, directory: str, entries: list[Entry], config: TopicConfig, counts: dict[str, int]
) -> _Found:
    sizes: dict[int, int] = {}
    snapshots: list[int] = []
    to_remove: list[str] = []
    for name, size, _ in entries:
        match = _NUMBERED.fullmatch(name)
        if match is not None and match[2] == LOG_SUFFIX:
            sizes[int(match[1])] = size
        elif match is not None and match[2] == PRODUCERS_SUFFIX:
            snapshots.append(int(match[1]))
        elif name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
            to_remove.append(f"{directory}/{name}")
    bases = sorted(sizes)
    segments = [
        Segment(
            files=opening.files,
            handles=opening.handles,
            directory=directory,
            base_offset=base,
            next_offset=following,
            size=sizes[base],
            index_interval=config.index_interval_bytes,
            expected_aborted=counts.get(str(base), 0),
        )
        for base, following in zip(bases, [*bases[1:], *bases[-1:]], strict=True)
    ]
    return _Found(segments, sorted(snapshots), to_remove)


def _first_segment(opening: Opening, directory: str, base: int, config: TopicConfig) -> Segment:
    segment = Segment(
        files=opening.files,
        handles=opening.handles,
        directory=directory,
        base_offset=base,
        next_offset=base,
        index_interval=config.index_interval_bytes,
        fresh=True,
        created_ms=opening.now_ms,
    )
    with opening.handles.borrow(segment.path, create=True):
        pass
    opening.files.sync_dir(directory)
    return segment


def _remove_segments(opening: Opening, segments: Sequence[Segment]) -> None:
    """The last first: a crash on the way leaves a shorter log, not one with a hole."""
    for segment in reversed(segments):
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            opening.files.remove(segment.sibling(suffix))
        opening.handles.forget(segment.path)


def _read_log_state(files: Files, directory: str) -> _SavedState:
    with contextlib.suppress(FileNotFoundError, KeyError, TypeError, ValueError, TailraceError):
        _, body = read_state(files, f"{directory}/{STATE_FILE}", "log-state", STATE_VERSION)
        return _SavedState(
            EpochHistory.from_json(body["epochs"]),
            {str(base): int(count) for base, count in body["aborted"].items()},
            int(body["rewrites"]),
            body["lowered_to"],
        )
    return _SavedState(None, {}, 0, None)


def _usable_point(found: _Found, saved: SavedPoint | None, own: _SavedState) -> RecoveryPoint | None:
    """The saved recovery point, if it still means what it says; else a safe one, or None to scan all."""
    if saved is None or own.epochs is None:
        return None
    point = saved.point
    if saved.rewrites == own.rewrites:
        for segment in found.segments:
            if segment.base_offset == point.base and segment.size >= point.position:
                return point
        return None
    offset = point.offset if own.lowered_to is None else min(point.offset, own.lowered_to)
    bases = [segment.base_offset for segment in found.segments if segment.base_offset <= offset]
    return RecoveryPoint(bases[-1], bases[-1], 0) if bases else None


def _is_whole(found: _Found, point: RecoveryPoint) -> bool:
    active = found.segments[-1]
    return active.base_offset == point.base and active.size == point.position


def _lazy_producers(
    opening: Opening, directory: str, found: _Found, log_start: int
) -> Callable[[], ProducerStates]:
    return lambda: load_producers(
        snapshots_in(opening.files, directory), found.segments, found.snapshots, log_start, opening.now_ms
    )


# Recovering.


def _recover(
    opening: Opening,
    directory: str,
    identity: Identity,
    config: TopicConfig,
    found: _Found,
    point: RecoveryPoint | None,
    own: _SavedState,
) -> Callable[[], ProducerStates]:
    """Scan from the recovery point on, cut a torn end, and rebuild what is derived from the batches."""
    if point is None or own.epochs is None:
        first = found.segments[0]
        point = RecoveryPoint(first.base_offset, first.base_offset, 0)
        found.epochs = EpochHistory()
    else:
        found.epochs = own.epochs
        found.epochs.truncate_end(point.offset)
    number = next(i for i, segment in enumerate(found.segments) if segment.base_offset == point.base)
    states = _producers_before(opening, directory, found, number, point, identity.log_start_offset)
    scanner = _Scanner(opening, found, states, config, identity.log_start_offset)
    scanner.run(number, point)
    end = found.segments[-1].next_offset
    for at in [at for at in found.snapshots if at > end]:
        opening.files.remove(f"{directory}/{offset_name(at)}{PRODUCERS_SUFFIX}")
    found.snapshots = [at for at in found.snapshots if at <= end]
    counts = {str(s.base_offset): s.aborted_count for s in found.segments if s.aborted_count}
    body: dict[str, Any] = {
        "epochs": found.epochs.to_json(),
        "aborted": counts,
        "rewrites": own.rewrites,
        "lowered_to": own.lowered_to,
    }
    write_state(opening.files, f"{directory}/{STATE_FILE}", "log-state", STATE_VERSION, body)
    return lambda: states


def _producers_before(
    opening: Opening, directory: str, found: _Found, number: int, point: RecoveryPoint, log_start: int
) -> ProducerStates:
    """The states at the recovery point."""
    segment = found.segments[number]
    real_next, real_size = segment.next_offset, segment.size
    segment.next_offset, segment.size = point.offset, point.position
    segment.written = point.position
    try:
        before = found.segments[: number + 1]
        saved = snapshots_in(opening.files, directory)
        return load_producers(saved, before, found.snapshots, log_start, opening.now_ms)
    finally:
        segment.next_offset, segment.size = real_next, real_size
        segment.written = real_size


class _Scanner:
    """Walks the batches from the recovery point to the end, over one segment after the other."""

    def __init__(
        self,
        opening: Opening,
        found: _Found,
        states: ProducerStates,
        config: TopicConfig,
        log_start: int,
    ) -> None:
        self._opening = opening
        self._found = found
        self._states = states
        self._config = config
        self._log_start = log_start
        self._gaps = False

    def run(self, number: int, point: RecoveryPoint) -> None:
        expected, position = point.offset, point.position
        segments = self._found.segments
        scanned: list[Segment] = []
        broken: Place | None = None
        while number < len(segments):
            segment = segments[number]
            if segment.base_offset < expected and position == 0:
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
        """Only cleaning, here or at the leader, leaves offsets without records; else a gap is a lost end."""
        if segment.next_offset < following.base_offset:
            if not self._config.compacted and not self._gaps:
                return f"it ends at {segment.next_offset}, the next segment begins at {following.base_offset}"
            segment.next_offset = following.base_offset
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
                step = scan_window(window, segment.next_offset, is_end=is_end)
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
        if header.base_offset > segment.next_offset:
            self._gaps = True
        self._found.epochs.assign(header.leader_epoch, header.base_offset)
        segment.add(header, base_offset=header.base_offset, timestamp=header.largest_timestamp)
        segment.written = segment.size
        for aborted in self._states.apply(header, now_ms=self._opening.now_ms, markers=markers):
            segment.aborted.append(aborted)

    def _require_torn(self, number: int, file_size: int, broken: Place, problem: str) -> None:
        """Raise STORAGE_CORRUPT unless the broken place can only be a write that nobody was promised."""
        segments = self._found.segments
        segment = segments[number]
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

    def _find_proof(self, path: str, position: int, size: int, beyond: int) -> BatchHeader | None:
        with self._opening.handles.borrow(path) as file:
            while position < size:
                window = file.pread(min(SCAN_BYTES, size - position), position)
                proof = find_proof(window, beyond)
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
        _remove_segments(self._opening, later)
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
