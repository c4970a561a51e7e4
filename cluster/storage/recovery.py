"""Opening a log: what its directory holds, checked as far as the last shutdown allows.

Runs on any thread, before the log has an owner. After a clean shutdown only names, sizes and small state
files are looked at. Otherwise everything past the recovery point is read and checked (ADR 2); what comes
out is either a log that holds all that was ever acknowledged here, or STORAGE_CORRUPT, which leaves every
file as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.checkpoint import SavedPoint
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.derived import load_producers, rebuild_aborted, snapshots_in
from tailrace.cluster.storage.files import TEMPORARY_SUFFIX, Entry, Files
from tailrace.cluster.storage.log import LogState
from tailrace.cluster.storage.logfiles import (
    PARTITION_FILE,
    RecoveryPoint,
)
from tailrace.cluster.storage.logstate import (
    SavedLogState,
    SavedSegment,
    find_log_state,
    saved_segments,
    write_log_state,
)
from tailrace.cluster.storage.scanning import Found, Identity, Opening, Scanner, remove_segments
from tailrace.cluster.storage.segment import (
    CONTENT_UNKNOWN,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    PRODUCERS_SUFFIX,
    Segment,
    offset_name,
)
from tailrace.cluster.storage.statefile import read_state, write_state
from tailrace.cluster.storage.swap import recover_swaps

_NUMBERED = re.compile(r"(\d{20})(\.[a-z]+)")


class Opened(NamedTuple):
    state: LogState
    to_remove: list[str]
    scanned_bytes: int
    cut_bytes: int


def read_identity(files: Files, directory: str) -> Identity:
    path = f"{directory}/{PARTITION_FILE}"
    _, body = read_state(files, path, "partition", 1)
    try:
        partition = TopicPartition(str(body["topic"]), int(body["partition"]))
        ids = bytes.fromhex(body["topic_id"]), bytes.fromhex(body["incarnation"])
        return Identity(partition, *ids, int(body["log_start_offset"]))
    except (KeyError, ValueError, TypeError) as error:
        raise TailraceError(ErrorCode.STORAGE_CORRUPT, f"{path} lacks a usable {error}") from None


def open_log(
    opening: Opening, directory: str, identity: Identity, config: TopicConfig, saved: SavedPoint | None
) -> Opened:
    """Raises STORAGE_CORRUPT, before any file is changed, for a log that lacks what it had promised."""
    files = opening.files
    recover_swaps(files, directory)
    own = find_log_state(files, directory)
    found = _list_segments(opening, directory, files.list(directory), config, own)
    if own is not None:
        # What was synced when follows from the policy that the log was written under, not from today's.
        config = replace(config, flush=own.flush)
    producers: Callable[[], ProducerStates] = ProducerStates
    if own is not None and not own.segments:
        # A reset was cut short.
        bases = [segment.base_offset for segment in found.segments[:1]]
        identity = identity._replace(log_start_offset=max([identity.log_start_offset, *bases]))
        _save_identity(files, directory, identity)
        _start_empty(opening, directory, found, identity.log_start_offset, config, own)
    else:
        producers = _open_whole(opening, directory, identity, config, found, saved, own)
    log_start = max(identity.log_start_offset, found.segments[0].base_offset)
    if found.segments[-1].next_offset < log_start:
        # Nothing is left before the start: the power took unsynced records that had been deleted anyway,
        # or the first batch of an emptied log never came.
        _start_empty(opening, directory, found, log_start, config, own)
        producers = ProducerStates
    end = found.segments[-1].next_offset
    active = found.segments[-1]
    if active.aborted_count and not active.aborted_complete:
        snapshots = snapshots_in(files, directory)
        active.replace_aborted(rebuild_aborted(snapshots, found.segments, active, found.snapshots, log_start))
    found.epochs.truncate_start(log_start)
    watermark = saved.high_watermark if saved is not None else log_start
    state = LogState(
        segments=found.segments,
        log_start_offset=log_start,
        high_watermark=min(max(watermark, log_start), end),
        epochs=found.epochs,
        producers=producers,
        snapshots=found.snapshots,
        incarnation=identity.incarnation,
        cleaned_to=_cleaned_to(saved, own, end),
        next_horizon_ms=saved.next_horizon_ms if saved is not None else None,
        rewrites=own.rewrites if own is not None else 0,
    )
    return Opened(state, found.to_remove, found.scanned, found.cut)


def _save_identity(files: Files, directory: str, identity: Identity) -> None:
    body = {
        "topic": identity.topic_partition.topic,
        "partition": identity.topic_partition.partition,
        "topic_id": identity.topic_id.hex(),
        "incarnation": identity.incarnation.hex(),
        "log_start_offset": identity.log_start_offset,
    }
    write_state(files, f"{directory}/{PARTITION_FILE}", "partition", 1, body)


def _open_whole(
    opening: Opening,
    directory: str,
    identity: Identity,
    config: TopicConfig,
    found: Found,
    saved: SavedPoint | None,
    own: SavedLogState | None,
) -> Callable[[], ProducerStates]:
    """The log with all that its small files say of it, scanned where they do not vouch for it."""
    if own is not None:
        _drop_unlisted(opening, found, own)
        _require_segments(directory, found, own, config, clean=opening.clean)
        if opening.clean or config.flush == "commit":
            _require_sizes(found, own)
    promised = _promised(saved, own)
    if not found.segments:
        _require_end(directory, identity.log_start_offset, promised)
        found.segments.append(_first_segment(opening, directory, identity.log_start_offset, config))
    point = _usable_point(found, saved, own, journal_damaged=opening.journal_damaged)
    if opening.clean and point is not None and own is not None and _is_whole(found, point):
        found.epochs = own.epochs
        found.segments[-1].next_offset = point.offset
        return _lazy_producers(opening, directory, found, identity.log_start_offset)
    # A place that is broken is judged by the log's own state as well. Its end is not: it may lie in a gap,
    # after a truncation into one, where no batch tells of it.
    synced = promised if own is None else max(promised, own.synced_to)
    producers = _recover(opening, directory, identity, config, found, point, own, synced)
    end, log_start = found.segments[-1].next_offset, identity.log_start_offset
    if config.flush == "commit" and any(segment.size for segment in found.segments):
        promised = max(promised, log_start)
    _require_end(directory, end, promised)
    return producers


def _promised(saved: SavedPoint | None, own: SavedLogState | None) -> int:
    """The offset up to which the log is known to have been on stable storage."""
    if saved is not None and own is not None and saved.rewrites == own.rewrites:
        return saved.point.offset
    return 0


def _require_end(directory: str, end: int, promised: int) -> None:
    if end < promised:
        raise TailraceError(
            ErrorCode.STORAGE_CORRUPT,
            f"{directory} ends at offset {end}, but everything up to {promised} had been synced: segments "
            "are missing or were cut. The replica must be fetched again from another one.",
        )


def _start_empty(
    opening: Opening,
    directory: str,
    found: Found,
    log_start: int,
    config: TopicConfig,
    own: SavedLogState | None,
) -> None:
    """Replace whatever is there by an empty log; a crash on the way is made good by doing it again."""
    found.epochs = EpochHistory()
    rewrites = own.rewrites if own is not None else 0
    begun = SavedLogState(found.epochs, (), rewrites, 0, config.flush, log_start)
    write_log_state(opening.files, directory, begun.to_json())
    remove_segments(opening, found.segments)
    for at in found.snapshots:
        opening.files.remove(f"{directory}/{offset_name(at)}{PRODUCERS_SUFFIX}")
    segment = _first_segment(opening, directory, log_start, config)
    found.segments, found.snapshots = [segment], []
    done = begun._replace(segments=saved_segments(found.segments))
    write_log_state(opening.files, directory, done.to_json())


# Finding.


def _list_segments(
    opening: Opening,
    directory: str,
    entries: list[Entry],
    config: TopicConfig,
    own: SavedLogState | None,
) -> Found:
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
    known = {segment.base_offset: segment for segment in own.segments} if own is not None else {}
    nothing = SavedSegment(-1, CONTENT_UNKNOWN, -1, 0, None, None)
    segments = [
        Segment(
            files=opening.files,
            handles=opening.handles,
            directory=directory,
            base_offset=base,
            next_offset=following,
            size=sizes[base],
            index_interval=config.index_interval_bytes,
            expected_aborted=known.get(base, nothing).aborted,
            largest_timestamp=known.get(base, nothing).largest_timestamp if base != bases[-1] else None,
            first_timestamp=known.get(base, nothing).first_timestamp if base != bases[-1] else None,
            content_end=known.get(base, nothing).content_end,
        )
        for base, following in zip(bases, [*bases[1:], *bases[-1:]], strict=True)
    ]
    return Found(segments, sorted(snapshots), to_remove)


def _require_segments(
    directory: str, found: Found, own: SavedLogState, config: TopicConfig, *, clean: bool
) -> None:
    """Raise STORAGE_CORRUPT when a segment is missing that was there when the state was saved.

    Those at the front may have been removed since, by retention, unless the node was stopped cleanly, which
    saves the state. Under flush=os the last ones may be gone too: a recovery that was cut short has removed
    them.
    """
    bases = [segment.base_offset for segment in found.segments]
    known = [segment.base_offset for segment in own.segments]
    first = bases[0] if bases and not clean else 0
    last = bases[-1] if bases and config.flush != "commit" else known[-1] if known else 0
    missing = [base for base in known if first <= base <= last and base not in set(bases)]
    if missing:
        raise TailraceError(
            ErrorCode.STORAGE_CORRUPT,
            f"{directory} lacks the segment {offset_name(missing[0])}{LOG_SUFFIX}. The replica must be "
            "fetched again from another one.",
        )


def _drop_unlisted(opening: Opening, found: Found, own: SavedLogState) -> None:
    """A segment is listed before its first write: one behind all that are listed is left from a cut."""
    listed = [one for one in found.segments if one.base_offset <= own.segments[-1].base_offset]
    unlisted = found.segments[len(listed) :]
    if unlisted and listed:
        remove_segments(opening, unlisted)
        listed[-1].next_offset = listed[-1].base_offset
        found.segments = listed


def _require_sizes(found: Found, own: SavedLogState) -> None:
    """Raise STORAGE_CORRUPT for a closed segment that has become shorter: it was synced at its full size."""
    known = {segment.base_offset: segment.size for segment in own.segments}
    for segment in found.segments[:-1]:
        size = known.get(segment.base_offset, -1)
        if segment.size < size:
            raise segment.damaged(segment.size, f"the file ends here, and should have {size} bytes")


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


def _cleaned_to(saved: SavedPoint | None, own: SavedLogState | None, end: int) -> int:
    """Never beyond a cut: what was written again there has not been part of a cleaning."""
    if saved is None:
        return 0
    cut = None if own is None or own.rewrites == saved.rewrites else own.lowered_to
    return min(saved.cleaned_to, end, end if cut is None else cut)


def _usable_point(
    found: Found, saved: SavedPoint | None, own: SavedLogState | None, *, journal_damaged: bool
) -> RecoveryPoint | None:
    """The saved recovery point, if it still means what it says; else a safe one, or None to scan all."""
    if saved is None or own is None:
        return None
    point = saved.point
    if saved.rewrites == own.rewrites and not journal_damaged:
        for segment in found.segments:
            if segment.base_offset == point.base and segment.size >= point.position:
                return point
        return None
    offset = point.offset if own.lowered_to is None else min(point.offset, own.lowered_to)
    bases = [segment.base_offset for segment in found.segments if segment.base_offset <= offset]
    return RecoveryPoint(bases[-1], bases[-1], 0) if bases else None


def _is_whole(found: Found, point: RecoveryPoint) -> bool:
    active = found.segments[-1]
    return active.base_offset == point.base and active.size == point.position


def _lazy_producers(
    opening: Opening, directory: str, found: Found, log_start: int
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
    found: Found,
    point: RecoveryPoint | None,
    own: SavedLogState | None,
    promised: int,
) -> Callable[[], ProducerStates]:
    """Scan from the recovery point on, cut a torn end, and rebuild what is derived from the batches."""
    if point is None or own is None:
        first = found.segments[0]
        point = RecoveryPoint(first.base_offset, first.base_offset, 0)
        found.epochs = EpochHistory()
    else:
        found.epochs = own.epochs.copy()
        found.epochs.truncate_end(point.offset)
    number = next(i for i, segment in enumerate(found.segments) if segment.base_offset == point.base)
    states = _producers_before(opening, directory, found, number, point, identity.log_start_offset)
    scanner = Scanner(opening, found, states, config, identity, own, promised)
    scanner.run(number, point)
    end = found.segments[-1].next_offset
    for at in [at for at in found.snapshots if at > end]:
        opening.files.remove(f"{directory}/{offset_name(at)}{PRODUCERS_SUFFIX}")
    found.snapshots = [at for at in found.snapshots if at <= end]
    rewrites, lowered_to = (own.rewrites, own.lowered_to) if own is not None else (0, None)
    segments = saved_segments(found.segments)
    state = SavedLogState(found.epochs, segments, rewrites, lowered_to, config.flush, end)
    write_log_state(opening.files, directory, state.to_json())
    return lambda: states


def _producers_before(
    opening: Opening, directory: str, found: Found, number: int, point: RecoveryPoint, log_start: int
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
