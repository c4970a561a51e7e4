"""Pysyncobj's Raft core behind a typed face: roles, terms, votes, timers, commitment, the order of applying.

With `library`, the only importer of pysyncobj, and the only place where its private names are used. What it
keeps doing: it starts elections and counts votes, adds a no-op when elected, commits what a majority holds
(only entries of the leader's own term by counting, as Raft 5.4.2 wants; a test checks it), applies what is
committed in order, and steps down without a majority's answers. What is taken out of its hands, by overriding
or never reaching its methods:

- sending and receiving entries and snapshots (`leader`, `follower`);
- deciding when an election may begin (`elections`): it only sees its deadline pass when it may;
- reading and writing of log, votes and snapshots (`store`);
- forwarding commands to another leader: they are answered here with `NOT_LEADER` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from random import Random
from typing import Any, Protocol

from pysyncobj.config import FAIL_REASON, SyncObjConf  # type: ignore[import-untyped]
from pysyncobj.node import Node  # type: ignore[import-untyped]
from pysyncobj.syncobj import SyncObj  # type: ignore[import-untyped]
from pysyncobj.transport import Transport  # type: ignore[import-untyped]

from tailrace.cluster.controller.quorum.journal import Entry
from tailrace.cluster.controller.quorum.library import ambient, check_names
from tailrace.cluster.controller.quorum.messages import HandOver, Message, VoteGranted, VoteRequest
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.store import Store
from tailrace.cluster.runtime.clock import Clock

_REGULAR = b"\x00"
_NEVER = float("-inf")


class Role(IntEnum):
    """Pysyncobj's own numbers."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class Ended(IntEnum):
    """How a submitted command ended, by pysyncobj's numbers."""

    APPLIED = FAIL_REASON.SUCCESS
    QUEUE_FULL = FAIL_REASON.QUEUE_FULL
    MISSING_LEADER = FAIL_REASON.MISSING_LEADER
    REPLACED = FAIL_REASON.DISCARDED
    NOT_LEADER = FAIL_REASON.NOT_LEADER
    LEADER_CHANGED = FAIL_REASON.LEADER_CHANGED
    DENIED = FAIL_REASON.REQUEST_DENIED
    UNKNOWN = FAIL_REASON.UNKNOWN_OUTCOME


@dataclass(slots=True, kw_only=True)
class CoreHooks:
    """What the core needs from its node. All are called on the Raft thread."""

    send: Callable[[int, Message], bool]
    apply: Callable[[bytes, int], object]
    """A committed command and its index; the result goes to who submitted it."""
    elected: Callable[[], None]
    """Before the leader's first entry is added."""
    replicate: Callable[[], None]
    """Send to every follower what it lacks, or a heartbeat."""


class SubmitCallback(Protocol):
    def __call__(self, result: Any, ended: Ended) -> None: ...


class RaftCore:
    def __init__(
        self,
        *,
        node_id: int,
        peers: tuple[int, ...],
        store: Store,
        settings: QuorumSettings,
        clock: Clock,
        rng: Random,
        hooks: CoreHooks,
    ) -> None:
        self.node_id = node_id
        self.peers = peers
        self.majority = (len(peers) + 1) // 2 + 1
        self._store = store
        self._clock = clock
        self._heartbeat_s = settings.heartbeat_ms / 1000
        self._nodes: dict[int, Any] = {peer: _Peer(peer) for peer in peers}
        conf = SyncObjConf(
            autoTick=False,
            appendEntriesUseBatch=True,
            appendEntriesPeriod=self._heartbeat_s,
            raftMinTimeout=settings.election_min_ms / 1000,
            raftMaxTimeout=settings.election_max_ms / 1000,
            leaderFallbackTimeout=settings.leader_fallback_ms / 1000,
            connectionTimeout=3600,
            commandsWaitLeader=False,
            commandsQueueSize=0,
            journalFile=_JournalPort(store),
            fullDumpFile=None,
            useFork=False,
            dynamicMembershipChange=False,
        )
        with ambient(clock, rng):
            self._raft: Any = _Raft(
                _Peer(node_id),
                list(self._nodes.values()),
                conf,
                hooks,
                _HookTransport(hooks, store, self._refuse_forwarded),
            )
        check_names(self._raft)
        snapshot_index = (
            store.snapshot.last_index if store.snapshot is not None else store.journal.first_index
        )
        self.install(snapshot_index)

    # What the core knows.

    @property
    def term(self) -> int:
        return int(self._raft._SyncObj__raftCurrentTerm)

    @property
    def role(self) -> Role:
        return Role(self._raft._SyncObj__raftState)

    @property
    def is_leader(self) -> bool:
        return bool(self._raft._SyncObj__raftState == Role.LEADER)

    @property
    def leader_id(self) -> int | None:
        node = self._raft._SyncObj__raftLeader
        return None if node is None else int(node.id)

    @property
    def commit_index(self) -> int:
        return int(self._raft._SyncObj__raftCommitIndex)

    @property
    def applied_index(self) -> int:
        return int(self._raft._SyncObj__raftLastApplied)

    @property
    def handed_leadership(self) -> bool:
        """The leader has asked this follower to be elected in its place."""
        return bool(self._raft._SyncObj__transferInProgress)

    @property
    def election_begins(self) -> bool:
        """`start_election` was called, and no leader has been heard since."""
        return self.election_deadline == _NEVER

    @property
    def election_deadline(self) -> float:
        return float(self._raft._SyncObj__raftElectionDeadline)

    @property
    def heartbeat_deadline(self) -> float:
        return float(self._raft._SyncObj__newAppendEntriesTime)

    def match_index(self, peer: int) -> int:
        return int(self._raft._SyncObj__raftMatchIndex.get(self._nodes[peer], 0))

    def answered_at(self, peer: int) -> float | None:
        at = self._raft._SyncObj__lastResponseTime.get(self._nodes[peer])
        return None if at is None else float(at)

    # What happens to it.

    def tick(self) -> None:
        """Elections, commitment, applying, heartbeats, and the commands that were submitted."""
        self._raft.doTick(0)

    def submit(self, command: bytes, callback: SubmitCallback) -> None:
        """Add a command to the log in the next tick; `callback` is called once at most, perhaps never."""
        self._raft._applyCommand(_REGULAR + command, lambda result, reason: callback(result, Ended(reason)))

    def connected(self, peer: int, up: bool) -> None:
        nodes = self._raft._SyncObj__connectedNodes
        (nodes.add if up else nodes.discard)(self._nodes[peer])

    def receive(self, peer: int, message: VoteRequest | VoteGranted | HandOver) -> None:
        match message:
            case VoteRequest(term, last_index, last_term, _):
                self._deliver(
                    peer, type="request_vote", term=term, last_log_index=last_index, last_log_term=last_term
                )
            case VoteGranted(term):
                self._deliver(peer, type="response_vote", term=term)
            case HandOver(term):
                self._deliver(peer, type="timeout_now", term=term)
                if self.handed_leadership:
                    self.start_election()

    def _deliver(self, peer: int, **fields: object) -> None:
        self._raft._SyncObj__onMessageReceived(self._nodes[peer], fields)

    def adopt_term(self, term: int) -> None:
        """A higher term was seen, whose leader is not known yet."""
        raft = self._raft
        if self.is_leader:
            self.postpone_election()
        raft._SyncObj__setCurrentTerm(term, None)
        raft._SyncObj__setState(Role.FOLLOWER)
        raft._SyncObj__raftLeader = None

    def follow(self, leader: int, term: int) -> None:
        """A message of `leader` in `term`, which is not below ours, has arrived."""
        raft = self._raft
        if term > self.term:
            raft._SyncObj__setCurrentTerm(term, None)
            raft._SyncObj__transferInProgress = False
        # A leader that has handed over still sends heartbeats; they must not delay the election.
        if not self.handed_leadership:
            self.postpone_election()
        raft._SyncObj__raftLeader = self._nodes[leader]
        raft._SyncObj__setState(Role.FOLLOWER)

    def postpone_election(self) -> None:
        timeout = self._raft._SyncObj__generateRaftTimeout()
        self._raft._SyncObj__raftElectionDeadline = self._clock.monotonic() + timeout

    def start_election(self) -> None:
        """Let the next tick raise the term and ask for votes."""
        self._raft._SyncObj__raftElectionDeadline = _NEVER

    def commit(self, index: int) -> None:
        """For a follower: the leader has committed this much of what is known to be equal here."""
        if index > self.commit_index:
            self._raft._SyncObj__raftCommitIndex = index

    def install(self, index: int) -> None:
        """The state after entry `index` was loaded as a whole."""
        raft = self._raft
        raft._SyncObj__raftLastApplied = index
        raft._SyncObj__raftCommitIndex = max(self.commit_index, index)
        waiting = raft._SyncObj__commandsWaitingCommit
        for passed in [waited for waited in waiting if waited <= index]:
            del waiting[passed]

    def set_match(self, peer: int, index: int) -> None:
        self._raft._SyncObj__raftMatchIndex[self._nodes[peer]] = index

    def answered(self, peer: int) -> None:
        self._raft._SyncObj__lastResponseTime[self._nodes[peer]] = self._clock.monotonic()

    def heartbeat_sent(self) -> None:
        self._raft._SyncObj__newAppendEntriesTime = self._clock.monotonic() + self._heartbeat_s

    def hand_over(self, peer: int) -> bool:
        """Ask a follower that holds the whole log to take over; False if it cannot be asked now."""
        reasons: list[int] = []
        self._raft.transferLeadership(self._nodes[peer], lambda _, reason: reasons.append(reason))
        return reasons == [FAIL_REASON.SUCCESS]

    def _refuse_forwarded(self, request_id: int) -> None:
        callback = self._raft._SyncObj__commandsWaitingReply.pop(request_id, None)
        if callback is not None:
            callback(None, FAIL_REASON.NOT_LEADER)


class _Peer(Node):  # type: ignore[misc]
    def __str__(self) -> str:
        return f"controller {self.id}"


class _Raft(SyncObj):  # type: ignore[misc]
    """A name with pysyncobj's prefix overrides its private method of that name."""

    def __init__(
        self, self_node: Any, other_nodes: list[Any], conf: Any, hooks: CoreHooks, transport: Any
    ) -> None:
        self._hooks = hooks
        super().__init__(self_node, other_nodes, conf, transport=transport)

    def _SyncObj__onBecomeLeader(self) -> None:  # noqa: N802
        self._hooks.elected()
        super()._SyncObj__onBecomeLeader()

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        self._hooks.replicate()

    def _SyncObj__doApplyCommand(self, command: bytes) -> object:  # noqa: N802
        # Applied entries are counted after the call, so this one is the next.
        if command.startswith(_REGULAR):
            return self._hooks.apply(command[1:], self._SyncObj__raftLastApplied + 1)
        return None

    def _SyncObj__tryLogCompaction(self) -> None:  # noqa: N802
        """Snapshots are made by `snapshotting`."""

    def _SyncObj__loadDumpFile(self, clearJournal: bool) -> None:  # noqa: N802, N803
        raise AssertionError("pysyncobj reads no snapshots")


class _HookTransport(Transport):  # type: ignore[misc]
    """Takes what pysyncobj still sends by itself: requests for votes, votes, and the hand-over."""

    def __init__(self, hooks: CoreHooks, store: Store, refuse_forwarded: Callable[[int], None]) -> None:
        super().__init__(None, None, ())
        self._hooks = hooks
        self._store = store
        self._refuse_forwarded = refuse_forwarded

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        match message:
            case {"type": "request_vote", "term": term, "last_log_index": index, "last_log_term": log_term}:
                phase = self._store.votes.state.phase
                return self._hooks.send(node.id, VoteRequest(term, index, log_term, phase))
            case {"type": "response_vote", "term": term}:
                return self._hooks.send(node.id, VoteGranted(term))
            case {"type": "timeout_now", "term": term}:
                return self._hooks.send(node.id, HandOver(term))
            case {"type": "apply_command", "request_id": request_id}:
                self._refuse_forwarded(request_id)
                return True
        raise AssertionError(f"pysyncobj sends a message that it should not: {message.get('type')}")


class _JournalPort:
    """The store, in the form in which pysyncobj uses a journal. Removing entries is not its business."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._store.journal.append(Entry(command, idx, term))

    def __getitem__(self, position: int | slice) -> Entry | list[Entry]:
        return self._store.journal[position]

    def __len__(self) -> int:
        return len(self._store.journal)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """The leader has counted itself among those that hold the entries, so it must be true first."""
        self._store.journal.sync()

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return self._store.journal.first_index

    def setCurrentTerm(self, term: int, voted_for: int | None) -> None:  # noqa: N802
        self._store.votes.set_term(term, voted_for)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._store.votes.state.term

    def getVotedForNodeId(self) -> int | None:  # noqa: N802
        return self._store.votes.state.vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        pass
