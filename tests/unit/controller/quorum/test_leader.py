"""A leader: what it counts, what it commits, what it sends again, and when it steps down."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    PreVoteResponse,
    StaleTerm,
    VoteGranted,
)
from tailrace.cluster.controller.quorum.outcomes import Committed, Outcome
from tailrace.cluster.controller.quorum.votes import Phase
from tests.support.fault_files import on
from tests.support.raft_cluster import DIRECTORY, SETTINGS
from tests.unit.controller.quorum.lone import Lone

JOURNAL = f"{DIRECTORY}/journal"


def leading(*log: int, voters: int = 3, **settings: int) -> Lone:
    lone = Lone(*log, voters=voters, settings=replace(SETTINGS, **settings))
    lone.become_leader()
    return lone


def active(*log: int, **settings: int) -> Lone:
    """A leader whose no-op and claim are committed by the answer of node 2."""
    lone = leading(*log, **settings)
    lone.acknowledge(2, len(lone.log) + 1)
    assert lone.node.leadership().active
    lone.sent.clear()
    return lone


def propose(lone: Lone, *payloads: bytes) -> list[Outcome]:
    outcomes: list[Outcome] = []
    leadership = lone.node.leadership()
    for number, payload in enumerate(payloads):
        lone.node.propose(leadership.epoch, leadership.version + number, payload, outcomes.append)
    lone.tick()
    return outcomes


# What is committed.


def test_entry_of_an_earlier_term_is_not_committed_by_counting_when_a_majority_holds_it() -> None:
    """Raft 5.4.2: it could still be replaced by a leader that has a later term in its log."""
    lone = leading(1, 1)
    assert lone.log == [1, 1, 2, 2]
    lone.acknowledge(2, 3)
    lone.acknowledge(3, 3)
    assert lone.commit == 1
    lone.acknowledge(2, 4)
    assert lone.commit == 4


def leading_five() -> Lone:
    lone = Lone(voters=5)
    lone.tick(SETTINGS.election_max_ms + 1)
    for peer in (2, 3):
        lone.receive(peer, PreVoteResponse(0, 1, True, Phase.CAUGHT_UP))
    for peer in (2, 3):
        lone.receive(peer, VoteGranted(1))
    return lone


def test_entry_is_committed_when_a_majority_of_five_holds_it() -> None:
    lone = leading_five()
    lone.acknowledge(2, 3)
    assert lone.commit == 1
    lone.acknowledge(3, 2)
    assert lone.commit == 2
    lone.acknowledge(4, 3)
    assert lone.commit == 3


def test_leader_counts_itself_after_its_own_sync_when_a_follower_was_faster() -> None:
    lone = active()
    happened: list[str] = []
    lone.files.before_sync = lambda path: happened.append("sync")
    outcomes = propose(lone, b"x")
    assert happened == ["sync"]
    assert isinstance(lone.sent[0][1], AppendEntries)
    lone.acknowledge(2, lone.node.status().last_index)
    assert outcomes == [Committed(1)]


def test_nothing_is_applied_before_it_is_durable_when_the_leader_is_alone() -> None:
    """Its own copy is a majority, and the election and the commitment of its first entry are one tick."""
    lone = Lone(voters=1)
    applied_at_sync: list[int] = []

    def note(path: str) -> None:
        if path == JOURNAL:
            applied_at_sync.append(lone.node._core.applied_index)

    lone.files.before_sync = note
    lone.tick(SETTINGS.election_max_ms + 1)
    # Once before the no-op is applied, and once for the claim, which is not committed yet.
    assert applied_at_sync == [1, 2]
    assert lone.node.status().applied_index == 2


def test_nothing_is_committed_when_the_leader_cannot_sync() -> None:
    lone = active()
    commit = lone.commit
    lone.files.fail(errno.EIO, on("datasync", "journal"), times=None)
    outcomes: list[Outcome] = []
    leadership = lone.node.leadership()
    lone.node.propose(leadership.epoch, leadership.version, b"x", outcomes.append)
    with pytest.raises(TailraceError, match="writing the Raft journal"):
        lone.tick()
    assert [type(outcome).__name__ for outcome in outcomes] == ["Unknown"]
    with pytest.raises(TailraceError, match="writing the Raft journal"):
        lone.acknowledge(2, commit + 1)
    assert (lone.commit, lone.machine.payloads) == (commit, [])


# Answers.


def test_answer_is_not_counted_when_it_was_given_in_another_term() -> None:
    lone = leading(1, 1)
    lone.receive(2, AppendResult(1, 6, True, True))
    assert lone.commit == 1
    assert lone.dropped == {"answer_of_another_term": 1}


def test_answer_is_not_counted_when_it_acknowledges_what_the_leader_does_not_have() -> None:
    lone = leading()
    lone.acknowledge(2, 1000)
    assert lone.commit == 1
    assert lone.dropped == {"acknowledged_too_much": 1}


def test_leader_steps_down_when_an_answer_or_a_hint_carries_a_higher_term() -> None:
    for message in (AppendResult(9, 2, False, True), StaleTerm(9)):
        lone = active()
        lone.receive(2, message)
        assert (lone.term, lone.node.leadership().active) == (9, False)
        assert lone.node.status().leader_id is None


def test_entries_are_not_sent_again_when_answers_to_earlier_messages_arrive() -> None:
    lone = active()
    first = lone.node.status().last_index
    for number in range(5):
        propose(lone, *([b"x"] if number == 0 else []))
        lone.node.propose(lone.term, number + 1, b"x", lambda _: None)
    lone.tick()
    sent = [one.entries for one in lone.taken(AppendEntries, 2)]
    assert [entry.index for entries in sent for entry in entries] == list(range(first + 1, first + 7))
    for index in range(first + 1, first + 7):
        lone.acknowledge(2, index)
    assert [one.entries for one in lone.taken(AppendEntries, 2) if one.entries] == []
    assert lone.commit == first + 6


def test_match_does_not_fall_when_an_older_answer_arrives_late() -> None:
    lone = active()
    propose(lone, b"a", b"b")
    last = lone.node.status().last_index
    lone.acknowledge(2, last)
    lone.acknowledge(2, last - 2)
    lone.acknowledge(2, 1, success=False)
    lone.sent.clear()
    lone.tick(SETTINGS.heartbeat_ms + 1)
    assert lone.node.status().voters[0].match_index == last
    assert [one.prev_index for one in lone.taken(AppendEntries, 2)] == [last]


def test_follower_gets_what_it_lacks_when_its_log_is_shorter_or_differs() -> None:
    lone = leading(1, 1, 1, 1)
    lone.taken(AppendEntries)
    lone.acknowledge(2, 3, success=False)
    # Nothing but the question whether the place is right now, until there is an answer.
    assert [(one.prev_index, one.entries) for one in lone.taken(AppendEntries, 2)] == [(3, ())]
    lone.acknowledge(2, 3)
    [message] = [one for one in lone.taken(AppendEntries, 2) if one.entries]
    assert [entry.index for entry in message.entries] == [4, 5, 6, 7]


def test_leader_forgets_what_a_follower_had_when_the_connection_is_made_anew() -> None:
    """Behind the name there may be a node that lost its disk; see `elections`."""
    lone = active()
    propose(lone, b"a")
    last = lone.node.status().last_index
    lone.acknowledge(2, last)
    lone.node.on_down(2)
    lone.node.on_up(2)
    lone.tick()
    assert lone.node.status().voters[0].match_index == 0
    assert lone.commit == last
    lone.taken(AppendEntries)
    lone.acknowledge(2, 1, success=False)
    assert [one.prev_index for one in lone.taken(AppendEntries, 2)] == [1]


def test_former_answer_is_not_counted_when_the_connection_was_made_anew() -> None:
    lone = leading_five()
    lone.acknowledge(2, 3)
    lone.node.on_down(2)
    lone.node.on_up(2)
    lone.acknowledge(3, 3)
    assert lone.commit == 1
    lone.acknowledge(2, 3)
    assert lone.commit == 3


def test_little_is_on_its_way_when_a_follower_does_not_answer() -> None:
    lone = active(in_flight_bytes=5000, batch_bytes=2000)
    payloads = [bytes(1000)] * 40
    propose(lone, *payloads)
    sent = sum(len(entry.command) for one in lone.taken(AppendEntries, 2) for entry in one.entries)
    assert 5000 <= sent < 8000
    while lone.node.status().voters[0].lag_entries:
        last = lone.node._leader.progress(2)
        assert last is not None
        lone.acknowledge(2, last.next - 1)
        assert all(len(one.entries) <= 2 for one in lone.taken(AppendEntries, 2))
    assert lone.machine.payloads == payloads


def test_leader_probes_when_a_link_takes_no_more() -> None:
    lone = active()
    lone.refuse_sends = True
    propose(lone, b"a")
    lone.refuse_sends = False
    lone.tick(SETTINGS.heartbeat_ms + 1)
    assert all(not one.entries for one in lone.taken(AppendEntries, 2))
    last = lone.node.status().last_index
    lone.acknowledge(2, last - 1, success=False)
    lone.acknowledge(2, last - 1)
    assert [len(one.entries) for one in lone.taken(AppendEntries, 2)][-1] == 1


def test_nonsense_answers_do_no_harm_when_a_follower_asks_from_before_the_beginning() -> None:
    lone = leading()
    for index in (-1, 0):
        lone.receive(2, AppendResult(lone.term, index + 1, False, True))
        lone.tick(SETTINGS.heartbeat_ms + 1)
    lone.receive(2, AppendResult(lone.term, 0, True, True))
    assert lone.commit == 1
    assert lone.taken(AppendEntries, 2)[-1].prev_index >= 1


# Time.


def test_leader_steps_down_when_no_majority_answers() -> None:
    lone = active()
    lone.tick(SETTINGS.leader_fallback_ms - 50)
    assert lone.node.leadership().active
    lone.tick(100)
    assert not lone.node.leadership().active
    assert [leadership.active for leadership in lone.leaderships][-2:] == [True, False]


def test_followers_hear_of_the_commit_at_once_when_nothing_else_is_to_be_sent() -> None:
    lone = active()
    propose(lone, b"a")
    lone.taken(AppendEntries)
    last = lone.node.status().last_index
    lone.acknowledge(2, last)
    assert [one.commit_index for one in lone.taken(AppendEntries, 3)] == [last]


def test_heartbeats_go_out_in_their_period_when_nothing_happens() -> None:
    lone = active()
    counted = 0
    for _ in range(20):
        lone.tick(SETTINGS.heartbeat_ms * 3 // 10)
        lone.acknowledge(2, lone.node.status().last_index)
        counted += len(lone.taken(AppendEntries, 2))
    assert 4 <= counted <= 6
