"""The directory of one controller: lock, votes, journal and snapshots, brought into agreement at the start.

    lock                     held while a process uses the directory
    votes                    term, vote, whose directory it is
    journal                  the Raft log after (and somewhat before) the snapshot
    snapshot-<index>         the state after that entry; the highest index counts
    *.tmp                    unfinished, removed at the start

A snapshot and the trimming of the journal are two steps, and a crash may fall between them. The start finds
out which was reached; with a snapshot that ends with entry S of term T:

- The journal holds (S, T): the snapshot was made from it, and what follows S is kept. It may still have to be
  trimmed.
- The journal ends before S, or has another term there: the snapshot came from a leader, and the journal was
  to be replaced. Everything up to S is in the snapshot; what follows an entry that S contradicts was never
  committed. The log goes on after S.
- The journal begins after S, or there is no snapshot and it does not begin with entry 1: something is missing
  that cannot be made up for. The node does not start.

A new directory gets its journal first and its votes last. So a journal with more than its first entry, or a
snapshot, without votes has lost them, and the node does not start.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from random import Random

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.frames import SALT_BYTES
from tailrace.cluster.controller.quorum.journal import FIRST_ENTRY, Journal
from tailrace.cluster.controller.quorum.snapshots import (
    Snapshot,
    SnapshotInfo,
    read_snapshot,
    remove_snapshots_before,
    snapshot_indexes,
    snapshot_path,
)
from tailrace.cluster.controller.quorum.votes import VoteFile, VoteState
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import (
    TEMPORARY_SUFFIX,
    Closeable,
    Files,
    make_durable_dirs,
    storage_error,
)

LOCK, VOTES, JOURNAL = "lock", "votes", "journal"

_REMEDY = (
    "If a majority of the other controllers is healthy, start this one with an empty directory: they will "
    "fill it. Otherwise restore the whole directory from a backup."
)

log = get_logger(__name__)


class Store:
    """Opened by `open_store`; used by the Raft thread, but for `hold` and `release`."""

    def __init__(self, files: Files, directory: str, lock: Closeable) -> None:
        self.files = files
        self.directory = directory
        self.votes: VoteFile
        self.journal: Journal
        self.snapshot: SnapshotInfo | None = None
        self._lock = lock
        self._users = 1
        self._users_lock = threading.Lock()

    def hold(self) -> None:
        """Keep the directory locked until a `release` more: for a job that writes into it."""
        with self._users_lock:
            self._users += 1

    def release(self) -> None:
        with self._users_lock:
            self._users -= 1
            if self._users:
                return
        self._lock.close()

    def close(self) -> None:
        self.journal.close()
        self.release()

    def use_snapshot(self, info: SnapshotInfo, *, keep_entries: int, keep_bytes: int) -> None:
        """Let a durable snapshot count: the journal is trimmed or goes on after it, and older ones go."""
        if self.snapshot is not None and info.last_index <= self.snapshot.last_index:
            remove_snapshots_before(self.files, self.directory, self.snapshot.last_index)
            return
        self.snapshot = info
        if self.journal.holds(info.last_index, info.last_term):
            self.trim(keep_entries=keep_entries, keep_bytes=keep_bytes)
        else:
            self.journal.restart_at(info.last_index, info.last_term)
        remove_snapshots_before(self.files, self.directory, info.last_index)

    def trim(self, *, keep_entries: int, keep_bytes: int) -> None:
        """Forget what the snapshot covers, but for the last entries before it, so that followers which lag a
        little do not need the snapshot."""
        if self.snapshot is None:
            return
        first = max(self.journal.first_index, self.snapshot.last_index - keep_entries)
        after = self.journal.bytes_after(self.snapshot.last_index)
        while first < self.snapshot.last_index and self.journal.bytes_after(first) - after > keep_bytes:
            first += 1
        if first > self.journal.first_index:
            self.journal.trim_before(first)


def open_store(
    files: Files,
    directory: str,
    *,
    node_id: int,
    voters: Sequence[int],
    rng: Random,
    keep_entries: int,
    keep_bytes: int,
) -> tuple[Store, Snapshot | None]:
    """Open or create a controller's directory; the snapshot is to be loaded into the machine."""
    try:
        make_durable_dirs(files, directory)
        store = Store(files, directory, files.lock(f"{directory}/{LOCK}"))
        try:
            snapshot = _open(store, node_id, voters, rng)
            store.trim(keep_entries=keep_entries, keep_bytes=keep_bytes)
        except BaseException:
            if hasattr(store, "journal"):
                store.journal.close()
            store.release()
            raise
    except OSError as error:
        raise storage_error("opening the controller's directory", error) from error
    return store, snapshot


def _open(store: Store, node_id: int, voters: Sequence[int], rng: Random) -> Snapshot | None:
    files, directory = store.files, store.directory
    for entry in files.list(directory):
        if entry.name.endswith(TEMPORARY_SUFFIX):
            files.remove(f"{directory}/{entry.name}")
    votes_path, journal_path = f"{directory}/{VOTES}", f"{directory}/{JOURNAL}"
    indexes = snapshot_indexes(files, directory)
    has_votes, has_journal = files.exists(votes_path), files.exists(journal_path)
    if has_votes and not has_journal:
        raise _incomplete(directory, f"{JOURNAL} is missing, but {VOTES} is there")
    if has_votes:
        store.votes = VoteFile.open(files, votes_path, node_id, voters)
    store.journal = (
        Journal.open(files, journal_path)
        if has_journal
        else Journal.create(files, journal_path, [FIRST_ENTRY], rng.randbytes(SALT_BYTES))
    )
    if not has_votes:
        if indexes or (len(store.journal), store.journal.first_index) != (1, 1):
            raise _incomplete(directory, f"{VOTES} is missing, but there is a log")
        state = VoteState(node_id=node_id, voters=tuple(sorted(voters)))
        store.votes = VoteFile.create(files, votes_path, state)
    return _reconcile(store, indexes)


def _reconcile(store: Store, indexes: list[int]) -> Snapshot | None:
    journal = store.journal
    if not indexes:
        if journal.first_index != 1:
            raise _incomplete(store.directory, f"{JOURNAL} begins at {journal.first_index}, without snapshot")
        return None
    snapshot = read_snapshot(store.files, store.directory, indexes[-1])
    store.snapshot = info = snapshot.info
    if journal.first_index > info.last_index:
        path = snapshot_path(store.directory, info.last_index)
        raise _incomplete(store.directory, f"{JOURNAL} begins at {journal.first_index}, after {path} ends")
    if not journal.holds(info.last_index, info.last_term):
        log.warning(
            "raft_journal_replaced_by_snapshot",
            directory=store.directory,
            snapshot_index=info.last_index,
            last_index=journal.last_index,
        )
        journal.restart_at(info.last_index, info.last_term)
    remove_snapshots_before(store.files, store.directory, info.last_index)
    return snapshot


def _incomplete(directory: str, problem: str) -> TailraceError:
    return TailraceError(ErrorCode.STORAGE_CORRUPT, f"{directory} is incomplete: {problem}. {_REMEDY}")
