"""One controller of the quorum, without a thread: everything happens in `tick`, called from outside.

Wires the parts together and decides their order within a tick. `Quorum` gives it a thread and a real clock; a
simulation calls `tick` itself, on virtual time, with links and files of its own: the same code runs in both.

Thread-safe are the calls of `LinkEvents`, `propose`, `barrier`, `leadership` and `status`; they only put
something into the inbox, or read what the last tick has published. All else belongs to who calls `tick`.

An exception in a tick is final: what waits is answered, every later tick raises the same error, and nothing
is written or sent any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.core import CoreHooks, Ended, RaftCore
from tailrace.cluster.controller.quorum.elections import Elections
from tailrace.cluster.controller.quorum.follower import Follower
from tailrace.cluster.controller.quorum.guard import Claim, Guard, Proposal, decode_command, encode_command
from tailrace.cluster.controller.quorum.inbox import Inbox
from tailrace.cluster.controller.quorum.leader import Leader
from tailrace.cluster.controller.quorum.library import ambient
from tailrace.cluster.controller.quorum.links import LinkEvents, RaftLinks
from tailrace.cluster.controller.quorum.machine import AppliedEntry, EntryKind, StateMachine
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    HandOver,
    MalformedMessageError,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotChunk,
    SnapshotProgress,
    StaleTerm,
    VoteGranted,
    VoteRequest,
    decode,
    encode,
)
from tailrace.cluster.controller.quorum.outcomes import (
    Committed,
    Leadership,
    QuorumStatus,
    Refused,
    VoterStatus,
)
from tailrace.cluster.controller.quorum.proposals import NOT_ACTIVE, Done, Proposals, Waiting
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.snapshots import Snapshot
from tailrace.cluster.controller.quorum.snapshotting import Snapshotting
from tailrace.cluster.controller.quorum.store import open_store
from tailrace.cluster.controller.quorum.votes import Phase
from tailrace.cluster.runtime.blocking import Job
from tailrace.cluster.runtime.clock import Clock
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import Files

log = get_logger(__name__)


class RaftNode(LinkEvents):
    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        directory: str,
        files: Files,
        machine: StateMachine,
        links: RaftLinks,
        settings: QuorumSettings,
        clock: Clock,
        rng: Random,
        start_job: Callable[[Job], None],
        wake: Callable[[], None],
        on_leadership: Callable[[Leadership], None],
    ) -> None:
        """Opens the directory and loads its snapshot; TailraceError if that is not possible."""
        if node_id not in voters or len(set(voters)) != len(voters):
            raise TailraceError(
                ErrorCode.INVALID_CONFIG,
                f"controller.quorum.voters names {list(voters)}: each must be named once, and this one, "
                f"{node_id}, among them",
            )
        self.node_id = node_id
        self._settings = settings
        self._machine = machine
        self._links = links
        self._clock = clock
        self._rng = rng
        self._on_leadership = on_leadership
        self._inbox = Inbox(max_bytes=settings.inbox_bytes, wake=wake)
        self._guard = Guard()
        self._failure: BaseException | None = None
        self._refusing = False
        self._closed = False
        self._handing_over = False
        self._peers = tuple(sorted(set(voters) - {node_id}))
        self._store, snapshot = open_store(
            files,
            directory,
            node_id=node_id,
            voters=voters,
            rng=rng,
            keep_entries=settings.keep_entries,
            keep_bytes=settings.keep_bytes,
        )
        try:
            if snapshot is not None:
                self._load(snapshot)
            self._assemble(machine, start_job)
        except BaseException:
            self._store.close()
            raise
        self._leadership = self._current_leadership()
        self._status = self._current_status()

    def _assemble(self, machine: StateMachine, start_job: Callable[[Job], None]) -> None:
        hooks = CoreHooks(
            send=self._send,
            apply=self._apply,
            elected=self._elected,
            replicate=self._replicate,
        )
        settings, clock, store, send, drop = (
            self._settings,
            self._clock,
            self._store,
            self._send,
            self._inbox.drop,
        )
        self._core = core = RaftCore(
            node_id=self.node_id,
            peers=self._peers,
            store=store,
            settings=settings,
            clock=clock,
            rng=self._rng,
            hooks=hooks,
        )
        self._elections = elections = Elections(
            core=core, store=store, settings=settings, clock=clock, send=send, drop=drop
        )
        self._leader = Leader(
            core=core, store=store, elections=elections, settings=settings, send=send, drop=drop
        )
        self._follower = Follower(
            core=core,
            store=store,
            elections=elections,
            settings=settings,
            send=send,
            drop=drop,
            load=self._load,
        )
        self._proposals = Proposals(core, self._guard, settings)
        self._snapshotting = Snapshotting(
            core=core,
            store=store,
            guard=self._guard,
            machine=machine,
            settings=settings,
            clock=clock,
            start_job=start_job,
            report=lambda done: self._inbox.post(self._snapshotting.on_done, done),
        )
        self._handlers: dict[type[Message], Callable[[int, Any], None]] = {
            PreVoteRequest: elections.on_pre_vote_request,
            PreVoteResponse: elections.on_pre_vote_response,
            VoteRequest: elections.on_vote_request,
            VoteGranted: elections.on_vote,
            HandOver: elections.on_hand_over,
            AppendEntries: self._follower.on_append,
            SnapshotChunk: self._follower.on_chunk,
            AppendResult: self._leader.on_result,
            SnapshotProgress: self._leader.on_progress,
            StaleTerm: self._on_stale_term,
        }

    # From any thread.

    def on_message(self, peer_id: int, data: bytes) -> None:
        if peer_id not in self._peers:
            self._inbox.drop("unknown_peer")
        elif len(data) > self._settings.max_message_bytes:
            self._inbox.drop("oversized")
        else:
            self._inbox.post_message(self._received, peer_id, data)

    def on_up(self, peer_id: int) -> None:
        if peer_id in self._peers:
            self._inbox.post(self._link_changed, peer_id, True)

    def on_down(self, peer_id: int) -> None:
        if peer_id in self._peers:
            self._inbox.post(self._link_changed, peer_id, False)

    def propose(self, epoch: int, base_version: int, payload: bytes, done: Done) -> None:
        self._wait_for(Waiting(Proposal(epoch, base_version, bytes(payload)), self._deadline(), done))

    def barrier(self, done: Done) -> None:
        self._wait_for(Waiting(None, self._deadline(), done))

    def leadership(self) -> Leadership:
        return self._leadership

    def status(self) -> QuorumStatus:
        return self._status

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._settings.proposal_timeout_ms / 1000

    def _wait_for(self, waiting: Waiting) -> None:
        self._inbox.post(self._take, waiting)
        if self._refusing:
            self._refuse_inbox()

    # Ticks.

    def tick(self) -> None:
        """Take what has arrived and do what is due."""
        if self._failure is not None:
            raise self._failure
        try:
            with ambient(self._clock, self._rng):
                self._tick()
        except BaseException as error:
            self._failure = error
            self._answer_all()
            raise

    def _tick(self) -> None:
        for handler, arguments in self._inbox.take():
            handler(*arguments)
        self._proposals.submit_barriers()
        self._elections.tick()
        self._core.tick()
        if self._core.is_leader:
            self._lead()
        else:
            self._leader.resign()
        # What is new is on its way to the followers while this node makes it durable.
        self._leader.push()
        self._follower.flush()
        self._proposals.settle(self._clock.monotonic())
        self._snapshotting.tick()
        self._publish()

    def _lead(self) -> None:
        core, journal = self._core, self._store.journal
        if journal.holds(core.commit_index, core.term):
            self._elections.after_commit(caught_up_followers=self._leader.caught_up_followers())
        if self._handing_over and (successor := self._leader.best_successor()) is not None:
            core.hand_over(successor)

    def wait_seconds(self) -> float:
        """How long nothing will be due, unless something arrives."""
        core = self._core
        if self._inbox or (
            core.is_leader and not self._peers and core.commit_index < self._store.journal.last_index
        ):
            return 0.0
        due = core.heartbeat_deadline if core.is_leader else core.election_deadline
        if (deadline := self._proposals.next_deadline) is not None:
            due = min(due, deadline)
        return min(max(0.0, due - self._clock.monotonic()), self._settings.heartbeat_ms / 1000)

    def hand_over(self) -> None:
        """Take no more proposals, and try with every tick to pass leadership on."""
        self._handing_over = True

    @property
    def can_hand_over(self) -> bool:
        """Whether this node leads, and there is somebody to whom leadership could be passed."""
        return self._core.is_leader and any(map(self._leader.is_connected, self._peers))

    def close(self) -> None:
        """Answer what waits and release the directory; a job that still writes keeps it locked till then."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._failure is None:
                self._store.journal.sync()
        finally:
            self._failure = self._failure or RuntimeError("the node is closed")
            self._answer_all()
            self._leader.resign()
            self._follower.close()
            self._store.close()

    def _answer_all(self) -> None:
        # The flag first: who adds to the inbox afterwards empties it again.
        self._refusing = True
        self._refuse_inbox()
        self._proposals.give_up()
        self._status = replace(self._status, active=False, leader_id=None)
        self._announce(Leadership(None, self._guard.epoch, False, self._guard.version))

    def _refuse_inbox(self) -> None:
        for handler, arguments in self._inbox.take():
            if handler == self._take:
                arguments[0].answer(NOT_ACTIVE)

    # What arrives.

    def _received(self, peer: int, data: bytes) -> None:
        self._inbox.message_taken(data)
        try:
            message = decode(data)
        except MalformedMessageError as problem:
            self._inbox.drop("malformed")
            log.warning("raft_message_malformed", peer=peer, problem=str(problem))
            return
        self._handlers[type(message)](peer, message)

    def _link_changed(self, peer: int, up: bool) -> None:
        self._core.connected(peer, up)
        (self._leader.on_up if up else self._leader.on_down)(peer)

    def _on_stale_term(self, peer: int, message: StaleTerm) -> None:
        if message.term > self._core.term:
            self._core.adopt_term(message.term)

    def _take(self, waiting: Waiting) -> None:
        self._proposals.take(waiting, active=self._is_active, now=self._clock.monotonic())

    def _replicate(self) -> None:
        self._leader.heartbeat()

    def _send(self, peer: int, message: Message) -> bool:
        return self._links.send(peer, encode(message))

    # The state machine.

    def _elected(self) -> None:
        self._elections.elected()
        self._leader.elected()
        log.info("raft_leader_elected", node_id=self.node_id, term=self._core.term)
        self._core.submit(encode_command(Claim(self._core.term, self.node_id)), _ignore)

    def _apply(self, data: bytes, index: int) -> Committed | Refused:
        command = decode_command(data)
        outcome = self._guard.decide(command)
        if isinstance(outcome, Committed):
            epoch = self._guard.epoch
            if isinstance(command, Proposal):
                entry = AppliedEntry(EntryKind.PROPOSAL, outcome.version, epoch, command.payload, index)
                self._machine.apply(entry)
            elif isinstance(command, Claim):
                self._machine.apply(AppliedEntry(EntryKind.CLAIM, outcome.version, epoch, b"", index))
        return outcome

    def _load(self, snapshot: Snapshot) -> None:
        info, state = snapshot
        self._machine.load(state, info.version, info.epoch)
        self._guard.load(version=info.version, epoch=info.epoch)

    # What is published.

    @property
    def _is_active(self) -> bool:
        return (
            self._core.is_leader
            and self._guard.epoch == self._core.term
            and self._elections.phase is Phase.CAUGHT_UP
            and not self._handing_over
        )

    def _publish(self) -> None:
        self._status = self._current_status()
        self._announce(self._current_leadership())

    def _announce(self, leadership: Leadership) -> None:
        before, self._leadership = self._leadership, leadership
        if before[:3] == leadership[:3]:
            return
        try:
            self._on_leadership(leadership)
        except Exception:
            log.exception("quorum_callback_failed", outcome="Leadership")

    def _current_leadership(self) -> Leadership:
        return Leadership(self._core.leader_id, self._guard.epoch, self._is_active, self._guard.version)

    def _current_status(self) -> QuorumStatus:
        core, journal = self._core, self._store.journal
        return QuorumStatus(
            node_id=self.node_id,
            leader_id=core.leader_id,
            active=self._is_active,
            epoch=self._guard.epoch,
            term=core.term,
            version=self._guard.version,
            last_index=journal.last_index,
            commit_index=core.commit_index,
            applied_index=core.applied_index,
            caught_up=self._elections.phase is Phase.CAUGHT_UP,
            voters=tuple(map(self._voter_status, self._peers)),
            snapshot=self._snapshotting.status(),
            journal_entries=len(journal),
            journal_bytes=journal.size_bytes,
            pending_proposals=self._proposals.open,
            failed_snapshots=self._snapshotting.failures,
            snapshot_error=self._snapshotting.error,
            dropped=self._inbox.dropped,
        )

    def _voter_status(self, peer: int) -> VoterStatus:
        progress = self._leader.progress(peer)
        answered = self._core.answered_at(peer) if progress is not None else None
        return VoterStatus(
            node_id=peer,
            connected=self._leader.is_connected(peer),
            match_index=progress.match if progress is not None else None,
            lag_entries=self._store.journal.last_index - progress.match if progress is not None else None,
            since_answer_ms=None if answered is None else round((self._clock.monotonic() - answered) * 1000),
        )


def _ignore(result: object, ended: Ended) -> None:
    pass
