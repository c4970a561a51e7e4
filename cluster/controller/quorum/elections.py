"""Who may ask for votes, and who gets one: PreVote, and what a vote is worth after a directory was empty.

**PreVote.** When its election deadline passes, a node first asks the others whether they would vote for it.
Nothing changes by that, no term and no vote. They say yes if its log is at least as long as theirs, its
next term is above their own, and they have not heard from a leader for the minimal election timeout (a
leader always hears itself). Only with a majority's yes does the real election begin, by letting pysyncobj
see its deadline passed. So a node that cannot hear the leader, but can be heard, raises no terms; and a
node that was away does not depose a leader by coming back. The answer carries the responder's term: who
learns of a higher one takes it over, or it would be refused for ever for asking with a term that is past. A
follower that its leader has asked to take over (`HandOver`) asks for votes at once.

**Empty directories.** A node whose directory was empty at its start may have been a voter that lost its disk:
the entries that it acknowledged and the votes that it gave are forgotten. So it begins in phase EMPTY:

- EMPTY votes and stands only in the founding of a new cluster: for and among candidates that are EMPTY or
  FOUNDING themselves. It does neither when it knows that the cluster is not new, because it has heard from
  a voter that is CAUGHT_UP, or has taken entries from a leader that is not founding.
- FOUNDING is who was elected while EMPTY, or while EMPTY followed a leader that says it is founding one
  (which it says while it is FOUNDING itself and has heard of no voter that is CAUGHT_UP). These are full
  voters.
- CAUGHT_UP is who holds, durably, everything up to the commit index of a leader that has committed an entry
  of its own term. A founding leader enters it when a majority of the voters, counting itself, has; before
  that it does not become active, so there is nothing yet that anybody was promised.

Why a node that lost its disk may vote again once it is CAUGHT_UP: what was committed with the help of its
former self is below that leader's commit index. Entries of earlier terms are, because the leader has them
and an entry of its own is committed behind them; entries of the leader's own term are, because a leader
forgets what a follower had acknowledged when the connection is made anew, and counts only what is
acknowledged after that (see `leader`). Its forgotten vote in the leader's own term does no harm either: its
log has an entry of that term now, and another candidate of that term has none, so it does not get a second
vote from it.

Why FOUNDING nodes may vote for each other: as long as a majority has not reached CAUGHT_UP, nothing was
promised; afterwards every elected leader has heard from a node that is CAUGHT_UP and does not call itself
founding, so no node that lost its disk becomes FOUNDING.

The price: while a cluster is being founded, a controller that never was up cannot stand in for one that
fails.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.cluster.controller.quorum.core import RaftCore, Role
from tailrace.cluster.controller.quorum.messages import (
    HandOver,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    VoteGranted,
    VoteRequest,
)
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.store import Store
from tailrace.cluster.controller.quorum.votes import Phase
from tailrace.cluster.runtime.clock import Clock
from tailrace.cluster.runtime.logs import get_logger

log = get_logger(__name__)


class Elections:
    def __init__(
        self,
        *,
        core: RaftCore,
        store: Store,
        settings: QuorumSettings,
        clock: Clock,
        send: Callable[[int, Message], bool],
        drop: Callable[[str], None],
    ) -> None:
        self._core = core
        self._store = store
        self._clock = clock
        self._send = send
        self._drop = drop
        self._quiet_s = settings.election_min_ms / 1000
        self._heard_leader_at: float | None = None
        self._asking_for: int | None = None
        """The term of the PreVote round that is going on."""
        self._would_vote: set[int] = set()
        self._voted: tuple[int, set[int]] = (0, set())
        """A term, and the peers whose votes in it were counted."""
        self._heard_caught_up = False

    @property
    def phase(self) -> Phase:
        return self._store.votes.state.phase

    @property
    def founding(self) -> bool:
        """What this node, as a leader, tells its followers."""
        return self.phase is not Phase.CAUGHT_UP and not self._heard_caught_up

    @property
    def _takes_part(self) -> bool:
        """Whether this node may vote and stand at all."""
        if self.phase is not Phase.EMPTY:
            return True
        bare = self._store.snapshot is None and self._store.journal.last_index == 1
        return bare and not self._heard_caught_up

    # As time passes.

    def tick(self) -> None:
        """Called before the core's own tick, which starts an election when it finds its deadline passed."""
        core = self._core
        if core.is_leader or core.handed_leadership or core.election_begins:
            return
        if core.election_deadline >= self._clock.monotonic():
            return
        core.postpone_election()
        self._asking_for = None
        if not self._takes_part:
            return
        self._asking_for = core.term + 1
        self._would_vote = {core.node_id}
        journal = self._store.journal
        question = PreVoteRequest(self._asking_for, journal.last_index, journal.last_term, self.phase)
        for peer in core.peers:
            self._send(peer, question)
        self._elect_if_majority()

    def heard_leader(self) -> None:
        """A message of the current leader has arrived; a round that asks to replace it is over."""
        self._heard_leader_at = self._clock.monotonic()
        self._asking_for = None

    def _elect_if_majority(self) -> None:
        if len(self._would_vote) >= self._core.majority:
            self._asking_for = None
            self._core.start_election()

    # PreVote.

    def on_pre_vote_request(self, peer: int, request: PreVoteRequest) -> None:
        self._note_phase(request.phase)
        granted = (
            not self._hears_leader()
            and request.next_term > self._core.term
            and self._is_up_to_date(request.last_index, request.last_term)
            and self._may_support(request.phase)
        )
        self._send(peer, PreVoteResponse(self._core.term, request.next_term, granted, self.phase))

    def on_pre_vote_response(self, peer: int, response: PreVoteResponse) -> None:
        self._note_phase(response.phase)
        core = self._core
        if response.term > core.term:
            self._asking_for = None
            core.adopt_term(response.term)
        elif response.granted and response.next_term == self._asking_for == core.term + 1:
            self._would_vote.add(peer)
            self._elect_if_majority()

    def _hears_leader(self) -> bool:
        if self._core.is_leader:
            return True
        heard = self._heard_leader_at
        return heard is not None and self._clock.monotonic() - heard < self._quiet_s

    def _is_up_to_date(self, last_index: int, last_term: int) -> bool:
        journal = self._store.journal
        return (last_term, last_index) >= (journal.last_term, journal.last_index)

    # Votes.

    def on_vote_request(self, peer: int, request: VoteRequest) -> None:
        self._note_phase(request.phase)
        if self._may_support(request.phase):
            self._core.receive(peer, request)
        elif request.term > self._core.term:
            self._core.adopt_term(request.term)

    def on_vote(self, peer: int, vote: VoteGranted) -> None:
        """A vote counts once for each peer and term, however often it arrives."""
        core = self._core
        if vote.term > core.term:
            self._drop("vote_not_asked_for")
            return
        if vote.term < core.term or core.role is not Role.CANDIDATE:
            # It comes late: the election is decided already.
            return
        if self._voted[0] != vote.term:
            self._voted = (vote.term, set())
        if peer in self._voted[1]:
            self._drop("second_vote")
            return
        self._voted[1].add(peer)
        core.receive(peer, vote)

    def on_hand_over(self, peer: int, message: HandOver) -> None:
        if peer != self._core.leader_id or message.term != self._core.term or not self._takes_part:
            self._drop("hand_over_not_from_leader")
            return
        self._core.receive(peer, message)

    # Phases.

    def _may_support(self, candidate_phase: int) -> bool:
        if self.phase is Phase.EMPTY:
            return self._takes_part and candidate_phase != Phase.CAUGHT_UP
        return True

    def _note_phase(self, peer_phase: int) -> None:
        if peer_phase == Phase.CAUGHT_UP and not self._heard_caught_up:
            self._heard_caught_up = True
            # A round that was begun in the belief that the cluster is new must not be won.
            if not self._takes_part:
                self._asking_for = None
                log.warning("raft_empty_directory_in_old_cluster", node_id=self._core.node_id)

    def elected(self) -> None:
        if self.phase is Phase.EMPTY:
            self._enter(Phase.FOUNDING)

    def before_appending(self, *, founding: bool) -> None:
        """For a follower, before it takes the first entries that a leader offers."""
        if founding and self.phase is Phase.EMPTY and self._takes_part:
            self._enter(Phase.FOUNDING)

    def before_acknowledging(self, *, leader_commit: int, verified: int, term: int) -> None:
        """For a follower whose log is durable, and equal to that of the leader of `term` up to `verified`."""
        complete = leader_commit <= verified and self._store.journal.holds(leader_commit, term)
        if complete and self.phase is not Phase.CAUGHT_UP:
            self._enter(Phase.CAUGHT_UP)

    def after_commit(self, *, caught_up_followers: int) -> None:
        """For a leader whose commit index covers an entry of its own term."""
        if self.phase is not Phase.CAUGHT_UP and caught_up_followers + 1 >= self._core.majority:
            self._enter(Phase.CAUGHT_UP)

    def _enter(self, phase: Phase) -> None:
        self._store.votes.enter(phase)
        log.info(
            "raft_phase_entered", node_id=self._core.node_id, phase=phase.name.lower(), term=self._core.term
        )
