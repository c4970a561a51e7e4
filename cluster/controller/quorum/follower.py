"""How a follower takes entries and snapshots from its leader. Replaces what pysyncobj does with them.

The rules are Raft's (5.3, 7), with the reasons why pysyncobj's own are not kept:

- *Entries are removed only where they contradict the leader's.* Pysyncobj cuts its log after `prev_index`
  with every message, and adds what the message holds. A message that was overtaken by later ones, or a mere
  heartbeat, then removes entries that were acknowledged, and a crash before they come again loses them
  although the leader has counted them. Here an entry that is there with the same term is the same entry
  (one leader a term, and it writes each index once), so it is skipped; at the first one of another term the
  rest is cut. An entry below the commit index is never cut: if a leader contradicts it, the logs have
  parted, and the node stops.
- *What is acknowledged was compared.* After a message, the log is known to equal the leader's up to the
  last entry of the message and not further; only so much is acknowledged and can be committed here, however
  long the log is. (Pysyncobj commits up to the end of its log, which is right only because it has cut it.)
- *Acknowledgements are durable.* They wait for the end of the tick, when one sync covers all entries that
  arrived in it; of several to the same leader only the last is sent.
- *They carry the term*, so that a leader does not count what was acknowledged to another, whose entries may
  since have been replaced.
- *A leader of an older term is told so.* Pysyncobj leaves it without an answer. With PreVote a node whose
  term is higher cannot depose it by an election either, and would be left out for ever.

A snapshot arrives in chunks, each answered with how far it has come. It is checked and durable, with its
final name, before the journal goes on after it and the machine loads it; the start knows each step (see
`store`).
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.core import RaftCore
from tailrace.cluster.controller.quorum.elections import Elections
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    Message,
    SnapshotChunk,
    SnapshotProgress,
    StaleTerm,
)
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.snapshots import IncomingSnapshot, Snapshot
from tailrace.cluster.controller.quorum.store import Store
from tailrace.cluster.controller.quorum.votes import Phase
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import storage_error

log = get_logger(__name__)


class Follower:
    def __init__(
        self,
        *,
        core: RaftCore,
        store: Store,
        elections: Elections,
        settings: QuorumSettings,
        send: Callable[[int, Message], bool],
        drop: Callable[[str], None],
        load: Callable[[Snapshot], None],
    ) -> None:
        self._core = core
        self._store = store
        self._elections = elections
        self._settings = settings
        self._send = send
        self._drop = drop
        self._load = load
        self._success: tuple[int, int] | None = None
        """The leader that waits for an acknowledgement, and the index up to which our logs are equal."""
        self._leader_commit = 0
        self._incoming: IncomingSnapshot | None = None

    # Entries.

    def on_append(self, peer: int, message: AppendEntries) -> None:
        if not self._accepts(peer, message.term):
            return
        journal = self._store.journal
        prev = message.prev_index
        if prev > journal.last_index:
            self._ask_from(peer, journal.last_index + 1)
            return
        # The first entry and all before it are committed, so every leader has them.
        if prev >= journal.first_index and journal.term_at(prev) != message.prev_term:
            self._never_committed(prev, message.term)
            self._ask_from(peer, journal.first_of_term(prev, not_before=self._core.commit_index + 1))
            return
        self._elections.before_appending(founding=message.founding)
        for entry in message.entries:
            if entry.index <= journal.first_index or journal.holds(entry.index, entry.term):
                continue
            if entry.index <= journal.last_index:
                self._never_committed(entry.index, message.term)
                log.info("raft_log_cut", index=entry.index, last_index=journal.last_index, leader=peer)
                journal.cut_from(entry.index)
            journal.append(entry)
        verified = max(prev + len(message.entries), journal.first_index)
        self._core.commit(min(message.commit_index, verified))
        self._acknowledge(peer, verified, message.commit_index)

    def _accepts(self, peer: int, term: int) -> bool:
        """Whether a message comes from the leader of the newest term; then that is who we follow."""
        core = self._core
        if term < core.term:
            self._send(peer, StaleTerm(core.term))
            return False
        if term == core.term and core.is_leader:
            log.error("raft_second_leader", term=term, peer=peer)
            self._drop("second_leader")
            return False
        if (peer, term) != (core.leader_id, core.term):
            # What waits to be acknowledged was equal to another leader's log.
            self._success = None
        core.follow(peer, term)
        self._elections.heard_leader()
        return True

    def _never_committed(self, index: int, term: int) -> None:
        if index <= self._core.commit_index:
            raise TailraceError(
                ErrorCode.STORAGE_CORRUPT,
                f"the leader of term {term} contradicts entry {index} of the metadata log, which was "
                "committed: the logs have parted. A directory was lost, restored from an old backup, or "
                "belongs to another cluster. Compare the controllers' directories before starting any.",
            )

    def _ask_from(self, peer: int, next_index: int) -> None:
        self.flush()
        caught_up = self._elections.phase is Phase.CAUGHT_UP
        self._send(peer, AppendResult(self._core.term, next_index, False, caught_up))

    def _acknowledge(self, peer: int, verified: int, leader_commit: int) -> None:
        """Within a term what is verified only grows: the leader changes nothing, and we cut nothing of it."""
        before = self._success[1] if self._success is not None else 0
        self._success = (peer, max(before, verified))
        self._leader_commit = leader_commit

    def flush(self) -> None:
        """Make the log durable, then acknowledge it. Called at the end of every tick."""
        self._store.journal.sync()
        if self._success is None:
            return
        peer, verified = self._success
        self._success = None
        core = self._core
        if core.leader_id != peer:
            return
        self._elections.before_acknowledging(
            leader_commit=self._leader_commit, verified=verified, term=core.term
        )
        caught_up = self._elections.phase is Phase.CAUGHT_UP
        self._send(peer, AppendResult(core.term, verified + 1, True, caught_up))

    # Snapshots.

    def on_chunk(self, peer: int, chunk: SnapshotChunk) -> None:
        if chunk.size > self._settings.max_snapshot_bytes:
            self._drop("snapshot_too_large")
            return
        if not self._accepts(peer, chunk.term):
            return
        if chunk.snapshot_index <= self._core.commit_index:
            # Everything up to there is here already.
            self._acknowledge(peer, chunk.snapshot_index, chunk.commit_index)
            return
        try:
            self._take_chunk(peer, chunk)
        except OSError as error:
            raise storage_error("receiving a snapshot", error) from error

    def _take_chunk(self, peer: int, chunk: SnapshotChunk) -> None:
        incoming = self._incoming
        if incoming is None or not incoming.is_of(chunk.snapshot_index, chunk.snapshot_term, chunk.size):
            self._discard_incoming()
            self._incoming = incoming = IncomingSnapshot(
                self._store.files,
                self._store.directory,
                chunk.snapshot_index,
                chunk.snapshot_term,
                chunk.size,
            )
        incoming.add(chunk.offset, chunk.data)
        if incoming.complete:
            self._incoming = None
            found = incoming.finish()
            if isinstance(found, Snapshot):
                self._install(found)
                self._acknowledge(peer, chunk.snapshot_index, chunk.commit_index)
                return
            log.error("raft_snapshot_refused", index=chunk.snapshot_index, leader=peer, problem=found)
            self._drop("bad_snapshot")
        received = self._incoming.received if self._incoming is not None else 0
        self._send(peer, SnapshotProgress(self._core.term, chunk.snapshot_index, received))

    def _install(self, snapshot: Snapshot) -> None:
        info = snapshot.info
        settings = self._settings
        self._store.use_snapshot(info, keep_entries=settings.keep_entries, keep_bytes=settings.keep_bytes)
        self._load(snapshot)
        self._core.install(info.last_index)
        log.info("raft_snapshot_installed", index=info.last_index, version=info.version, size=info.file_bytes)

    def close(self) -> None:
        """Leave an unfinished snapshot to the next start, which removes it."""
        if self._incoming is not None:
            self._incoming.close()
            self._incoming = None

    def _discard_incoming(self) -> None:
        if self._incoming is not None:
            self._incoming.discard()
            self._incoming = None
