"""Makes a directory for a new quorum out of that of one surviving controller, while nothing runs.

For the case that a majority of the controllers is lost for good. What the survivor holds, snapshot and whole
journal, becomes the truth: also entries of which it did not know whether they were committed. What the others
had committed without it is lost; that is why a person decides it, and not the quorum by itself.

A directory is made for each controller of the new quorum, all from the same source. The term is raised by
`TERM_GAP`, because the lost majority may have elected leaders that the survivor has not heard of, and
brokers may have met them: the next controller epoch has to be above theirs.
"""

from __future__ import annotations

from random import Random, SystemRandom
from typing import NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.frames import SALT_BYTES, Entry
from tailrace.cluster.controller.quorum.journal import NO_OP, Journal
from tailrace.cluster.controller.quorum.snapshots import (
    Snapshot,
    read_snapshot,
    snapshot_indexes,
    write_snapshot,
)
from tailrace.cluster.controller.quorum.store import JOURNAL, LOCK, VOTES
from tailrace.cluster.controller.quorum.votes import Phase, VoteFile, VoteState, read_votes
from tailrace.cluster.storage.files import Files, make_durable_dirs, storage_error

TERM_GAP = 1_000


class Recovered(NamedTuple):
    """What the new directory holds."""

    node_id: int
    source_node_id: int
    term: int
    snapshot_index: int | None
    last_index: int


def recover_directory(
    files: Files, source: str, target: str, node_id: int, *, rng: Random | None = None
) -> Recovered:
    """Make `target` a directory for controller `node_id` of a new quorum; `source` stays as it is.

    TailraceError if the target is not empty, or the source is in use, damaged or incomplete.
    """
    try:
        _check_empty(files, target)
        if not files.exists(f"{source}/{VOTES}"):
            raise TailraceError(
                ErrorCode.LOG_DIR_NOT_FOUND,
                f"{source} is not the directory of a controller: it has no {VOTES}. Name the directory that "
                "the surviving controller used.",
            )
        lock = files.lock(f"{source}/{LOCK}")
        try:
            return _recover(files, source, target, node_id, rng if rng is not None else SystemRandom())
        finally:
            lock.close()
    except OSError as error:
        raise storage_error("recovering a controller's directory", error) from error


def _recover(files: Files, source: str, target: str, node_id: int, rng: Random) -> Recovered:
    survivor = read_votes(files, f"{source}/{VOTES}")
    indexes = snapshot_indexes(files, source)
    snapshot = read_snapshot(files, source, indexes[-1]) if indexes else None
    entries = _entries_after(source, Journal.read(files, f"{source}/{JOURNAL}"), snapshot)
    term = max(survivor.term, entries[-1].term) + TERM_GAP
    make_durable_dirs(files, target)
    # The votes come last: without them, a directory that was not finished is refused at the start.
    if snapshot is not None:
        write_snapshot(files, target, snapshot.info, snapshot.state)
    Journal.create(files, f"{target}/{JOURNAL}", entries, rng.randbytes(SALT_BYTES)).close()
    state = VoteState(node_id=node_id, voters=None, term=term, phase=Phase.CAUGHT_UP)
    VoteFile.create(files, f"{target}/{VOTES}", state)
    return Recovered(
        node_id=node_id,
        source_node_id=survivor.node_id,
        term=term,
        snapshot_index=None if snapshot is None else snapshot.info.last_index,
        last_index=entries[-1].index,
    )


def _entries_after(source: str, entries: list[Entry], snapshot: Snapshot | None) -> list[Entry]:
    """The log as a start on `source` would have it (see `store`), without the part before the snapshot."""
    first = entries[0].index
    start, term = (1, 0) if snapshot is None else (snapshot.info.last_index, snapshot.info.last_term)
    if first > start:
        raise TailraceError(
            ErrorCode.STORAGE_CORRUPT,
            f"{source}/{JOURNAL} begins at entry {first}, but what is before it ends with {start}: entries "
            "are missing. Recover from another controller's directory or from a backup.",
        )
    following = entries[start - first :]
    if following and following[0].term == term:
        return following
    return [Entry(NO_OP, start, term)]


def _check_empty(files: Files, target: str) -> None:
    if files.exists(target) and files.list(target):
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"{target} is not empty; recovery only fills an empty directory. Name another one, or move what "
            "is in it away.",
        )
