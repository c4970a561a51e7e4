"""One real node among voters that the test plays: it says what they send, and sees what they are sent."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from tailrace.cluster.controller.quorum.frames import Entry
from tailrace.cluster.controller.quorum.guard import Proposal, encode_command
from tailrace.cluster.controller.quorum.links import LinkEvents
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    VoteGranted,
    VoteRequest,
    decode,
    encode,
)
from tailrace.cluster.controller.quorum.node import RaftNode
from tailrace.cluster.controller.quorum.outcomes import Leadership
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.store import open_store
from tailrace.cluster.controller.quorum.votes import Phase
from tailrace.cluster.runtime.blocking import InlineBlocking
from tailrace.cluster.runtime.clock import ManualClock
from tests.support.fault_files import FaultFiles
from tests.support.raft_cluster import DIRECTORY, SETTINGS, RecordingMachine

M = TypeVar("M", bound=tuple[Any, ...])


def command(number: int, epoch: int = 0) -> bytes:
    """A proposal that no guard accepts, as pysyncobj stores it."""
    return b"\x00" + encode_command(Proposal(epoch, 10**6 + number, b"payload"))


def entry(index: int, term: int) -> Entry:
    return Entry(command(index), index, term)


class Lone:
    """Node 1. Its directory holds `log` (terms of the entries from 2 on) and is that of an old member."""

    def __init__(
        self,
        *log: int,
        voters: int = 3,
        term: int = 0,
        phase: Phase = Phase.CAUGHT_UP,
        files: FaultFiles | None = None,
        settings: QuorumSettings = SETTINGS,
    ) -> None:
        self.voters = list(range(1, voters + 1))
        self.settings = settings
        self.clock = ManualClock()
        self.jobs = InlineBlocking()
        self.machine = RecordingMachine()
        self.leaderships: list[Leadership] = []
        self.sent: list[tuple[int, Message]] = []
        self.refuse_sends = False
        if files is None:
            files = FaultFiles(Random(1))
            self._prepare(files, log, term, phase)
        self.files = files
        self.node = RaftNode(
            node_id=1,
            voters=self.voters,
            directory=DIRECTORY,
            files=files,
            machine=self.machine,
            links=self,
            settings=settings,
            clock=self.clock,
            rng=Random(2),
            start_job=self.jobs.start,
            wake=lambda: None,
            on_leadership=self.leaderships.append,
        )
        for peer in self.voters[1:]:
            self.node.on_up(peer)

    def _prepare(self, files: FaultFiles, log: tuple[int, ...], term: int, phase: Phase) -> None:
        store, _ = open_store(
            files, DIRECTORY, node_id=1, voters=self.voters, rng=Random(1), keep_entries=5, keep_bytes=1000
        )
        store.votes.enter(phase)
        store.votes.set_term(max((term, *log)), None)
        for index, entry_term in enumerate(log, 2):
            store.journal.append(entry(index, entry_term))
        store.journal.sync()
        store.close()

    # It is its own links.

    def start(self, events: LinkEvents) -> None:
        pass

    def stop(self) -> None:
        pass

    def send(self, peer_id: int, data: bytes) -> bool:
        if self.refuse_sends:
            return False
        self.sent.append((peer_id, decode(data)))
        return True

    # What the test does.

    def tick(self, ms: int = 0) -> None:
        self.clock.advance(ms)
        self.node.tick()

    def receive(self, peer: int, *messages: Message) -> None:
        for message in messages:
            self.node.on_message(peer, encode(message))
        self.node.tick()

    def append(
        self,
        peer: int,
        *terms: int,
        term: int,
        prev: tuple[int, int],
        commit: int = 1,
        founding: bool = False,
    ) -> None:
        """Entries of these terms after the entry `prev` (index and term), from the leader `peer`."""
        entries = tuple(entry(prev[0] + number, one) for number, one in enumerate(terms, 1))
        self.receive(peer, AppendEntries(term, commit, *prev, founding, entries))

    def acknowledge(self, peer: int, index: int, *, success: bool = True) -> None:
        """The follower `peer` holds the log up to `index`, or (no success) wants what follows it."""
        self.receive(peer, AppendResult(self.term, index + 1, success, True))

    def taken(self, kind: type[M], peer: int | None = None) -> list[M]:
        """The messages of a kind that were sent since the last look, to `peer` or anyone; forgets all."""
        found: list[M] = [m for to, m in self.sent if isinstance(m, kind) and peer in (None, to)]
        self.sent.clear()
        return found

    def become_leader(self) -> None:
        """By votes of node 2."""
        self.tick(self.settings.election_max_ms + 1)
        question = self.taken(PreVoteRequest, 2)[-1]
        self.receive(2, PreVoteResponse(self.term, question.next_term, True, Phase.CAUGHT_UP))
        [request] = self.taken(VoteRequest, 2)
        self.receive(2, VoteGranted(request.term))
        assert self.node.status().leader_id == 1

    @property
    def term(self) -> int:
        return self.node.status().term

    @property
    def log(self) -> list[int]:
        """The terms of the entries from 2 on."""
        journal = self.node._store.journal
        return [journal.term_at(index) for index in range(2, journal.last_index + 1)]

    @property
    def commit(self) -> int:
        return self.node.status().commit_index

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.node.status().dropped)
