"""How a leader brings its followers up to its log. Replaces what pysyncobj does for that.

For each follower there is a `Progress`, which is knowledge about one connection in one term:

- `match`: the follower holds our log up to there, durably. It only grows, by acknowledgements of our own
  term: one of another term was given for another leader's log, whose entries may have been replaced. Within
  a term our log only grows and a follower removes nothing that equals it, so what was acknowledged stays
  true, and an answer that was overtaken by a later one cannot lower it. When the connection is made anew it
  begins at 0 again: behind the same name there may now be a follower that has lost its disk. To know less
  is always safe; the commit index does not fall by it.
- `next`: the next entry to send. It runs ahead of the answers (STREAM), within a bound of bytes on the way,
  and an acknowledgement never sets it back: pysyncobj does that, and sends again whatever is on its way.
  Only a follower that lacks what was before `next` sets it back, and not to before `match`; then (PROBE)
  nothing but heartbeats is sent until an answer says that the place is right.
- A follower that needs entries from before our log gets the snapshot (SNAPSHOT), one chunk at a time; each
  is answered, so a long transfer does not look like a dead follower. A heartbeat without data finds out
  what came through if an answer is missing.

A message may get lost; the next heartbeat shows it. Entries are sent before they are durable here; the leader
counts itself only after its own sync (`core`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum

from tailrace.cluster.controller.quorum.core import RaftCore
from tailrace.cluster.controller.quorum.elections import Elections
from tailrace.cluster.controller.quorum.frames import Entry
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    Message,
    SnapshotChunk,
    SnapshotProgress,
)
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.snapshots import SnapshotInfo, snapshot_path
from tailrace.cluster.controller.quorum.store import Store
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import File, Files, storage_error

log = get_logger(__name__)


class Mode(Enum):
    PROBE = "probe"
    STREAM = "stream"
    SNAPSHOT = "snapshot"


class Progress:
    __slots__ = (
        "caught_up",
        "commit_sent",
        "in_flight",
        "in_flight_bytes",
        "match",
        "mode",
        "next",
        "transfer",
    )

    def __init__(self, next_index: int, mode: Mode) -> None:
        self.match = 0
        self.next = next_index
        self.mode = mode
        self.caught_up = False
        self.commit_sent = 0
        self.in_flight: deque[tuple[int, int]] = deque()
        """Last index and bytes of the messages that were not acknowledged yet."""
        self.in_flight_bytes = 0
        self.transfer: _Transfer | None = None

    def sent(self, last_index: int, size: int) -> None:
        self.next = last_index + 1
        self.in_flight.append((last_index, size))
        self.in_flight_bytes += size

    def acknowledged(self, index: int) -> None:
        self.match = max(self.match, index)
        self.next = max(self.next, index + 1)
        while self.in_flight and self.in_flight[0][0] <= index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]

    def go_back(self, index: int) -> None:
        self.next = max(self.match + 1, min(index, self.next))
        self.probe()

    def probe(self) -> None:
        self.mode = Mode.PROBE
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def end_transfer(self) -> None:
        if self.transfer is not None:
            self.transfer.close()
            self.transfer = None


class _Transfer:
    """A snapshot file on its way. It stays open, so it may be replaced by a newer one meanwhile."""

    def __init__(self, files: Files, directory: str, info: SnapshotInfo) -> None:
        self.info = info
        self.offset = 0
        self.waiting = False
        self._file: File = files.open(snapshot_path(directory, info.last_index))

    def read(self, size: int) -> bytes:
        return self._file.pread(size, self.offset)

    def close(self) -> None:
        self._file.close()


class Leader:
    def __init__(
        self,
        *,
        core: RaftCore,
        store: Store,
        elections: Elections,
        settings: QuorumSettings,
        send: Callable[[int, Message], bool],
        drop: Callable[[str], None],
    ) -> None:
        self._core = core
        self._store = store
        self._elections = elections
        self._settings = settings
        self._send = send
        self._drop = drop
        self._connected: set[int] = set()
        self._progress: dict[int, Progress] = {}

    def progress(self, peer: int) -> Progress | None:
        return self._progress.get(peer) if self._core.is_leader else None

    def is_connected(self, peer: int) -> bool:
        return peer in self._connected

    # What happens to this node.

    def elected(self) -> None:
        """Called before the first entry of the new term is added: most followers have all before it."""
        self.resign()
        next_index = self._store.journal.last_index + 1
        self._progress = {peer: Progress(next_index, Mode.STREAM) for peer in self._core.peers}

    def resign(self) -> None:
        for progress in self._progress.values():
            progress.end_transfer()
        self._progress = {}

    def on_up(self, peer: int) -> None:
        self._connected.add(peer)
        if self._core.is_leader:
            self._progress[peer].end_transfer()
            self._progress[peer] = Progress(self._store.journal.last_index + 1, Mode.PROBE)
            self._core.set_match(peer, 0)
            self._heartbeat(peer, self._progress[peer])

    def on_down(self, peer: int) -> None:
        self._connected.discard(peer)

    def heartbeat(self) -> None:
        """Something to every follower, so that it knows that there is a leader."""
        self._core.heartbeat_sent()
        for peer, progress in self._progress.items():
            if peer in self._connected and not self._push(peer, progress):
                self._heartbeat(peer, progress)

    def push(self) -> None:
        """What is new, to the followers that stream. Called at the end of every tick."""
        if not self._core.is_leader:
            return
        for peer, progress in self._progress.items():
            if peer not in self._connected or self._push(peer, progress):
                continue
            # Followers learn at once of what is committed, not with the next heartbeat.
            if progress.mode is Mode.STREAM and progress.commit_sent < self._core.commit_index:
                self._heartbeat(peer, progress)

    # Answers.

    def on_result(self, peer: int, result: AppendResult) -> None:
        if not self._is_answer(peer, result.term):
            return
        progress = self._progress[peer]
        index = result.next_index - 1
        if result.success and index > self._store.journal.last_index:
            self._drop("acknowledged_too_much")
            return
        progress.caught_up = result.caught_up
        if result.success:
            progress.acknowledged(index)
            self._core.set_match(peer, progress.match)
            if progress.transfer is None or index >= progress.transfer.info.last_index:
                progress.end_transfer()
                progress.mode = Mode.STREAM
        elif progress.mode is not Mode.SNAPSHOT:
            # Every log begins with the same entry 1, so nobody needs to be sent it.
            progress.go_back(max(result.next_index, 2))
            self._heartbeat(peer, progress)

    def on_progress(self, peer: int, message: SnapshotProgress) -> None:
        if not self._is_answer(peer, message.term):
            return
        progress = self._progress[peer]
        transfer = progress.transfer
        if (
            progress.mode is not Mode.SNAPSHOT
            or transfer is None
            or transfer.info.last_index != message.snapshot_index
        ):
            return
        moved_on = message.offset > transfer.offset
        transfer.offset = min(message.offset, transfer.info.file_bytes)
        transfer.waiting = False
        # A follower that goes back, or stays where it was, gets its chunk with the next heartbeat: if our
        # file is damaged that happens again and again.
        if moved_on:
            self._send_chunk(peer, transfer)

    def _is_answer(self, peer: int, term: int) -> bool:
        """Whether an answer was given to us in our own term."""
        if term > self._core.term:
            self._core.adopt_term(term)
            return False
        if term < self._core.term or not self._core.is_leader:
            self._drop("answer_of_another_term")
            return False
        self._core.answered(peer)
        return True

    def caught_up_followers(self) -> int:
        return sum(progress.caught_up for progress in self._progress.values())

    def best_successor(self) -> int | None:
        """A connected follower that holds the whole log."""
        last = self._store.journal.last_index
        for peer, progress in self._progress.items():
            if peer in self._connected and progress.match == last and progress.caught_up:
                return peer
        return None

    # Sending.

    def _push(self, peer: int, progress: Progress) -> bool:
        """Send entries as far as the bound allows; whether there were any to send."""
        journal, settings = self._store.journal, self._settings
        if progress.next <= journal.first_index and progress.mode is not Mode.SNAPSHOT:
            self._begin_transfer(peer, progress)
            return True
        pushed = False
        while (
            progress.mode is Mode.STREAM
            and progress.next <= journal.last_index
            and progress.in_flight_bytes < settings.in_flight_bytes
        ):
            entries = journal.entries_from(progress.next, settings.batch_bytes)
            if not self._send_entries(peer, progress, entries):
                break
            progress.sent(entries[-1].index, sum(len(entry.command) for entry in entries))
            pushed = True
        return pushed

    def _heartbeat(self, peer: int, progress: Progress) -> None:
        if progress.mode is not Mode.SNAPSHOT and progress.next > self._store.journal.first_index:
            self._send_entries(peer, progress, ())
        elif progress.transfer is None:
            self._begin_transfer(peer, progress)
        elif progress.transfer.waiting:
            self._send_part(peer, progress.transfer, b"")
        else:
            self._send_chunk(peer, progress.transfer)

    def _send_entries(self, peer: int, progress: Progress, entries: tuple[Entry, ...]) -> bool:
        core = self._core
        previous = progress.next - 1
        message = AppendEntries(
            core.term,
            core.commit_index,
            previous,
            self._store.journal.term_at(previous),
            self._elections.founding,
            entries,
        )
        if not self._send(peer, message):
            # The connection is lost or about to be, and what was sent before may be, too.
            progress.probe()
            return False
        progress.commit_sent = core.commit_index
        return True

    def _begin_transfer(self, peer: int, progress: Progress) -> None:
        info = self._store.snapshot
        assert info is not None, "entries are forgotten only when a snapshot has them"
        progress.end_transfer()
        progress.mode = Mode.SNAPSHOT
        try:
            progress.transfer = _Transfer(self._store.files, self._store.directory, info)
        except OSError as error:
            raise storage_error("reading a snapshot", error) from error
        log.info("raft_snapshot_sending", peer=peer, index=info.last_index, size=info.file_bytes)
        self._send_chunk(peer, progress.transfer)

    def _send_chunk(self, peer: int, transfer: _Transfer) -> None:
        try:
            data = transfer.read(self._settings.snapshot_chunk_bytes)
        except OSError as error:
            raise storage_error("reading a snapshot", error) from error
        transfer.waiting = self._send_part(peer, transfer, data)

    def _send_part(self, peer: int, transfer: _Transfer, data: bytes) -> bool:
        core, info = self._core, transfer.info
        chunk = SnapshotChunk(
            core.term,
            core.commit_index,
            info.last_index,
            info.last_term,
            info.file_bytes,
            transfer.offset,
            data,
        )
        return self._send(peer, chunk)
