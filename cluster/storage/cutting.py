"""Cutting a log back: a follower that parted from its leader drops what the leader does not have.

Called through `Log`, on the owner thread. State is cut at once; an ordered call brings the files there. The
journal is voided and the state file says that the recovery point may lie beyond the cut, both durably,
before the first byte goes: redo and recovery never bring back, or trust, what was cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.cluster.runtime.blocking import Job
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.logfiles import (
    PARTITION_FILE,
    RecoveryPoint,
    index_paths,
    partition_body,
    remove_segment,
)
from tailrace.cluster.storage.reading import aborted_of
from tailrace.cluster.storage.segment import Place, Segment
from tailrace.cluster.storage.statefile import write_state

if TYPE_CHECKING:
    from tailrace.cluster.storage.log import Log


def truncate(log: Log, place_segment: Segment, place: Place, now_ms: int, done: Job | None) -> None:
    """`log.truncate_to` has found where to cut; bring state and files there."""
    files = log.files
    home = log.home
    number = log.segments.index(place_segment)
    dropped = log.segments[number + 1 :]
    dirty = files.paths_since_recovery_point(log.segments)
    del log.segments[number + 1 :]
    del log.bases[number + 1 :]
    aborted_of(log, place_segment)
    place_segment.cut(place)
    place_segment.persisted_entries = 0
    place_segment.persisted_aborted = 0
    log.end_offset = place.offset
    log.durable_end = min(log.durable_end, place.offset)
    log.synced_end = min(log.synced_end, place.offset)
    log.high_watermark = min(log.high_watermark, place.offset)
    log.epochs.truncate_end(place.offset)
    log.cleaned_to = min(log.cleaned_to, place.offset)
    if files.recovery_point.offset > place.offset:
        files.recovery_point = RecoveryPoint(place.offset, place_segment.base_offset, place.position)
    files.checkpointed_end = min(files.checkpointed_end, place.offset)
    stale = files.forget_snapshots(place.offset)
    files.rebuild_producers(now_ms)
    save_state = files.saving_rewrite(place.offset)
    save_indexes = files.saving_indexes(place_segment)
    key, path, indexes = log.key, place_segment.path, index_paths(place_segment)
    reserve = log.config.segment_bytes if log.config.preallocate else 0
    place_segment.reserved = bool(reserve)
    truncations = log.truncations

    def cut() -> None:
        log.on_cut(place_segment, place, truncations)
        if done is not None:
            done()

    def work() -> None:
        home.writer.void(key, [at for at in dirty if home.files.exists(at)])
        save_state()
        for segment in reversed(dropped):
            remove_segment(home.files, segment)
            home.handles.forget(segment.path)
        for gone in (*stale, *indexes):
            home.files.remove(gone)
        home.files.sync_dir(log.directory)
        with home.handles.borrow(path, write=True) as file:
            file.truncate(place.position)
            if reserve:
                file.allocate(reserve)
        home.writer.seal_file(path)
        save_indexes(home.files)

    home.writer.queue_call(work, cut)


def reset(log: Log, offset: int, *, log_start: int, now_ms: int, done: Job | None) -> None:
    """Replace all segments by an empty one at `offset`, at or below the log start."""
    files = log.files
    home = log.home
    dropped = list(log.segments)
    stale = files.forget_snapshots(-1)
    new = files.new_segment(offset, now_ms)
    log.segments[:] = [new]
    log.bases[:] = [offset]
    log.end_offset = log.durable_end = log.synced_end = offset
    log.high_watermark = log.log_start_offset = log_start
    log.epochs.truncate_end(0)
    log.cleaned_to = min(log.cleaned_to, offset)
    log.producers = ProducerStates()
    files.recovery_point = RecoveryPoint(offset, offset, 0)
    files.checkpointed_end = offset
    # The new segment is listed only once it is there.
    save_state = files.saving_rewrite(0, without_segments=True)
    body = partition_body(log, log_start)
    create = files.creating(new)
    save_new_state = files.saving_state()
    key, directory = log.key, log.directory

    def work() -> None:
        dirty = [segment.path for segment in dropped if home.files.exists(segment.path)]
        home.writer.void(key, dirty)
        save_state()
        write_state(home.files, f"{directory}/{PARTITION_FILE}", "partition", 1, body)
        # From the end, so that a crash on the way leaves a shorter log, not one with a hole.
        for segment in reversed(dropped):
            remove_segment(home.files, segment)
            home.handles.forget(segment.path)
            home.files.sync_dir(directory)
        for gone in stale:
            home.files.remove(gone)
        create()
        save_new_state()

    home.writer.queue_call(work, done)
