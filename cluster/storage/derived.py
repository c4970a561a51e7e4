"""State that is derived from the batches of a log: who produces, and what was aborted.

Both can be rebuilt from the log at any time; snapshots and indexes only make that short. Used when a log is
opened, after a truncation, and when a derived file turns out to be damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.storage.core.aborted import AbortedIndex
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.segment import PRODUCERS_SUFFIX, Segment, offset_name

SnapshotReader = Callable[[int], bytes]
"""The snapshot at an offset; FileNotFoundError when there is none."""


def snapshot_path(directory: str, offset: int) -> str:
    return f"{directory}/{offset_name(offset)}{PRODUCERS_SUFFIX}"


def snapshots_in(files: Files, directory: str) -> SnapshotReader:
    return lambda at: files.read(snapshot_path(directory, at))


def load_producers(
    read_snapshot: SnapshotReader,
    segments: Sequence[Segment],
    snapshots: Sequence[int],
    log_start: int,
    now_ms: int,
) -> ProducerStates:
    """The states at the end of `segments`, from the newest usable snapshot and the headers after it."""
    end = segments[-1].next_offset
    states, offset = ProducerStates(), segments[0].base_offset
    for at in sorted((at for at in snapshots if offset <= at <= end), reverse=True):
        try:
            states, offset = ProducerStates.decode(read_snapshot(at))
            break
        except (TailraceError, OSError):
            continue  # A damaged snapshot costs a longer replay, nothing else.
    for segment in segments:
        if segment.next_offset > offset:
            for header, markers in segment.replay(offset):
                states.apply(header, now_ms=now_ms, markers=markers)
    states.drop_below(log_start)
    return states


def rebuild_aborted(
    read_snapshot: SnapshotReader,
    segments: Sequence[Segment],
    segment: Segment,
    snapshots: Sequence[int],
    log_start: int,
) -> AbortedIndex:
    """The aborted transactions whose markers are in `segment`, from the batches themselves."""
    before = segments[: segments.index(segment)]
    states = ProducerStates()
    if before:
        usable = [at for at in snapshots if at <= segment.base_offset]
        states = load_producers(read_snapshot, before, usable, log_start, now_ms=0)
    index = AbortedIndex()
    for header, markers in segment.replay(segment.base_offset):
        for aborted in states.apply(header, now_ms=0, markers=markers):
            index.append(aborted)
    return index
