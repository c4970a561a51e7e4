"""Elections: PreVote, votes that are durable and counted once, and nodes whose directory was empty."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    HandOver,
    PreVoteRequest,
    PreVoteResponse,
    VoteGranted,
    VoteRequest,
)
from tailrace.cluster.controller.quorum.votes import Phase, VoteFile, read_votes
from tests.support.fault_files import PowerLost
from tests.support.raft_cluster import DIRECTORY, SETTINGS, RaftCluster
from tests.unit.controller.quorum.lone import Lone

VOTES = f"{DIRECTORY}/votes"
TIMEOUT = SETTINGS.election_max_ms + 1


def granted(lone: Lone, request: PreVoteRequest) -> bool:
    lone.receive(3, request)
    [response] = lone.taken(PreVoteResponse, 3)
    assert response.next_term == request.next_term
    assert response.term == lone.term
    return response.granted


# PreVote.


def test_term_stays_when_nobody_would_vote() -> None:
    lone = Lone(1)
    for _ in range(5):
        lone.tick(TIMEOUT)
        asked = lone.taken(PreVoteRequest)
        assert asked == [PreVoteRequest(2, 2, 1, Phase.CAUGHT_UP)] * 2
        lone.receive(2, PreVoteResponse(1, 2, False, Phase.CAUGHT_UP))
    assert lone.term == 1
    assert lone.taken(VoteRequest) == []


def test_election_begins_when_a_majority_would_vote() -> None:
    lone = Lone(1)
    lone.tick(TIMEOUT)
    lone.receive(2, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))
    assert lone.taken(VoteRequest) == [VoteRequest(2, 2, 1, Phase.CAUGHT_UP)] * 2
    assert lone.term == 2


@pytest.mark.parametrize(
    "response",
    [
        PreVoteResponse(1, 3, True, Phase.CAUGHT_UP),  # An answer to another question.
        PreVoteResponse(1, 2, False, Phase.CAUGHT_UP),
        PreVoteResponse(2, 2, True, Phase.CAUGHT_UP),  # It has seen the term already.
    ],
)
def test_election_does_not_begin_when_the_answer_does_not_fit(response: PreVoteResponse) -> None:
    lone = Lone(1)
    lone.tick(TIMEOUT)
    lone.receive(2, response)
    assert lone.taken(VoteRequest) == []


def test_one_yes_counts_once_when_it_is_repeated() -> None:
    lone = Lone(1, voters=5)
    lone.tick(TIMEOUT)
    for _ in range(3):
        lone.receive(2, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))
    assert lone.taken(VoteRequest) == []
    lone.receive(3, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))
    assert len(lone.taken(VoteRequest)) == 4


def test_election_does_not_begin_when_a_leader_is_heard_before_the_majority_answers() -> None:
    lone = Lone(1)
    lone.tick(TIMEOUT)
    lone.append(3, term=1, prev=(2, 1))
    lone.receive(2, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))
    assert lone.taken(VoteRequest) == []


def test_higher_term_is_taken_over_when_an_answer_carries_it() -> None:
    lone = Lone(1)
    lone.tick(TIMEOUT)
    lone.receive(2, PreVoteResponse(7, 2, False, Phase.CAUGHT_UP))
    assert lone.term == 7
    lone.tick(TIMEOUT)
    assert lone.taken(PreVoteRequest)[-1].next_term == 8


def test_pre_vote_is_granted_when_the_log_is_as_long_and_no_leader_is_heard() -> None:
    lone = Lone(1, 1)
    assert granted(lone, PreVoteRequest(2, 3, 1, Phase.CAUGHT_UP))
    assert granted(lone, PreVoteRequest(2, 2, 2, Phase.CAUGHT_UP))
    assert lone.term == 1
    assert read_votes(lone.files, VOTES).vote is None


@pytest.mark.parametrize(
    "request_",
    [
        PreVoteRequest(2, 2, 1, Phase.CAUGHT_UP),  # Its log is shorter.
        PreVoteRequest(2, 9, 0, Phase.CAUGHT_UP),  # Its log ends in an earlier term.
        PreVoteRequest(1, 3, 1, Phase.CAUGHT_UP),  # Its next term is not above ours.
    ],
)
def test_pre_vote_is_refused_when_a_vote_would_be(request_: PreVoteRequest) -> None:
    assert not granted(Lone(1, 1), request_)


def test_pre_vote_is_refused_when_a_leader_was_heard_within_the_minimal_timeout() -> None:
    lone = Lone(1)
    question = PreVoteRequest(2, 5, 1, Phase.CAUGHT_UP)
    lone.append(2, term=1, prev=(2, 1))
    lone.clock.advance(SETTINGS.election_min_ms - 1)
    assert not granted(lone, question)
    lone.clock.advance(2)
    assert granted(lone, question)


def test_pre_vote_is_refused_when_this_node_leads() -> None:
    lone = Lone(1)
    lone.become_leader()
    assert not granted(lone, PreVoteRequest(9, 99, 9, Phase.CAUGHT_UP))
    assert lone.node.status().leader_id == 1


@pytest.mark.parametrize("direction", ["in", "out"])
def test_terms_stay_when_a_link_is_cut_in_one_direction(direction: str) -> None:
    """Without PreVote, the node that hears no leader raises the term again and again."""
    cluster = RaftCluster(3, seed=3)
    cluster.start()
    leader = cluster.commit(b"a")
    cluster.run_until(cluster.agreed)
    deaf = cluster.followers()[0]
    cluster.network.cut.add((leader, deaf) if direction == "in" else (deaf, leader))
    term = cluster.term(leader)
    for number in range(20):
        cluster.run(500)
        cluster.commit(b"%d" % number)
    assert cluster.active() == leader
    assert {cluster.term(node_id) for node_id in cluster.nodes} == {term}
    cluster.network.heal()
    cluster.network.cut.clear()
    cluster.run_until(cluster.agreed)


def test_leader_stays_when_an_isolated_node_comes_back() -> None:
    cluster = RaftCluster(3, seed=4)
    cluster.start()
    leader = cluster.commit(b"a")
    cluster.network.isolate(cluster.followers()[0], cluster.voters)
    cluster.run(10_000)
    cluster.network.heal()
    cluster.commit(b"b")
    cluster.run_until(cluster.agreed)
    assert (cluster.active(), cluster.term(leader)) == (leader, 1)


def test_node_with_a_higher_term_gets_in_again_when_the_others_have_a_leader() -> None:
    """It ignores the leader and its pre-votes are refused; only by telling its term can it get out."""
    cluster = RaftCluster(3, seed=5)
    cluster.start()
    leader = cluster.commit(b"a")
    ahead = cluster.followers()[0]
    cluster.stop(ahead)
    store = cluster.files[ahead]
    VoteFile.open(store, VOTES, ahead, cluster.voters).set_term(50, None)
    cluster.start(ahead)
    cluster.run_until(lambda: cluster.active() is not None and cluster.term(leader) > 50)
    cluster.commit(b"b")
    cluster.run_until(cluster.agreed)


# Votes.


def test_vote_is_durable_before_it_leaves_when_the_power_goes_at_any_step() -> None:
    def run(lone: Lone) -> None:
        lone.receive(2, VoteRequest(5, 9, 1, Phase.CAUGHT_UP))

    reference = Lone(1)
    first = reference.files.steps
    run(reference)
    assert [one for _, one in reference.sent] == [VoteGranted(5)]
    for step in range(first + 1, reference.files.steps + 1):
        lone = Lone(1)
        lone.files.crash_after(step)
        with suppress(PowerLost):
            run(lone)
        for seed in range(5):
            found = read_votes(lone.files.crash(Random(seed)), VOTES)
            if lone.sent:
                assert (found.term, found.vote) == (5, 2)


def test_own_vote_is_durable_before_the_request_leaves_when_the_power_goes_at_any_step() -> None:
    def run(lone: Lone) -> None:
        lone.tick(TIMEOUT)
        lone.receive(2, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))

    reference = Lone(1)
    first = reference.files.steps
    run(reference)
    assert reference.taken(VoteRequest)
    for step in range(first + 1, reference.files.steps + 1):
        lone = Lone(1)
        lone.files.crash_after(step)
        with suppress(PowerLost):
            run(lone)
        for seed in range(5):
            found = read_votes(lone.files.crash(Random(seed)), VOTES)
            if any(isinstance(one, VoteRequest) for _, one in lone.sent):
                assert (found.term, found.vote) == (2, 1)


def test_second_candidate_gets_no_vote_when_the_node_was_started_again_in_the_same_term() -> None:
    lone = Lone(1)
    lone.receive(2, VoteRequest(5, 9, 1, Phase.CAUGHT_UP))
    assert lone.taken(VoteGranted, 2) == [VoteGranted(5)]
    again = Lone(files=lone.files.crash())
    again.receive(3, VoteRequest(5, 9, 1, Phase.CAUGHT_UP))
    assert again.taken(VoteGranted) == []
    again.receive(3, VoteRequest(6, 9, 1, Phase.CAUGHT_UP))
    assert again.taken(VoteGranted, 3) == [VoteGranted(6)]


def test_vote_counts_once_when_a_peer_sends_it_twice() -> None:
    lone = Lone(1, voters=5)
    lone.tick(TIMEOUT)
    for peer in (2, 3):
        lone.receive(peer, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))
    lone.receive(2, VoteGranted(2), VoteGranted(2), VoteGranted(2))
    assert lone.node.status().leader_id is None
    assert lone.dropped == {"second_vote": 2}
    lone.receive(3, VoteGranted(2))
    assert lone.node.status().leader_id == 1


@pytest.mark.parametrize("term", [1, 3])
def test_vote_is_ignored_when_it_is_of_another_term(term: int) -> None:
    lone = Lone(1)
    lone.tick(TIMEOUT)
    lone.receive(2, PreVoteResponse(1, 2, True, Phase.CAUGHT_UP))
    lone.receive(2, VoteGranted(term))
    assert lone.node.status().leader_id is None
    assert lone.term == 2


# Handing over.


def test_follower_stands_at_once_when_its_leader_hands_over() -> None:
    lone = Lone(1)
    lone.append(2, term=1, prev=(2, 1))
    lone.receive(2, HandOver(1))
    lone.tick()
    assert len(lone.taken(VoteRequest)) == 2
    assert lone.term == 2


@pytest.mark.parametrize(("peer", "term"), [(3, 1), (2, 0), (2, 2)])
def test_follower_does_not_stand_when_somebody_else_asks_it_to(peer: int, term: int) -> None:
    lone = Lone(1)
    lone.append(2, term=1, prev=(2, 1))
    lone.receive(peer, HandOver(term))
    lone.tick()
    assert lone.taken(VoteRequest) == []
    assert lone.dropped == {"hand_over_not_from_leader": 1}


# Empty directories.


@pytest.mark.parametrize(
    ("voter", "candidate", "expected"),
    [
        (Phase.EMPTY, Phase.EMPTY, True),
        (Phase.EMPTY, Phase.FOUNDING, True),
        (Phase.EMPTY, Phase.CAUGHT_UP, False),
        (Phase.FOUNDING, Phase.FOUNDING, True),
        (Phase.FOUNDING, Phase.CAUGHT_UP, True),
        (Phase.CAUGHT_UP, Phase.FOUNDING, True),
        (Phase.CAUGHT_UP, Phase.CAUGHT_UP, True),
    ],
)
def test_vote_depends_on_the_phases_when_a_directory_was_empty(
    voter: Phase, candidate: Phase, expected: bool
) -> None:
    lone = Lone(phase=voter)
    lone.receive(3, VoteRequest(4, 9, 3, candidate))
    assert bool(lone.taken(VoteGranted, 3)) is expected
    # The term is taken over in any case.
    assert lone.term == 4
    lone = Lone(phase=voter)
    assert granted(lone, PreVoteRequest(4, 9, 3, candidate)) is expected


def test_empty_node_neither_votes_nor_stands_when_it_has_heard_of_an_old_member() -> None:
    lone = Lone(phase=Phase.EMPTY)
    lone.receive(2, PreVoteResponse(0, 1, False, Phase.CAUGHT_UP))
    lone.receive(3, VoteRequest(4, 9, 3, Phase.EMPTY))
    assert lone.taken(VoteGranted) == []
    lone.tick(TIMEOUT)
    assert lone.taken(PreVoteRequest) == []


def test_empty_node_does_not_vote_when_it_has_taken_entries_of_an_old_cluster() -> None:
    lone = Lone(phase=Phase.EMPTY)
    lone.append(2, 3, 3, term=3, prev=(1, 0), commit=9)
    again = Lone(files=lone.files.crash())
    again.tick(TIMEOUT)
    again.receive(3, VoteRequest(4, 99, 3, Phase.EMPTY))
    again.receive(3, VoteRequest(5, 99, 3, Phase.CAUGHT_UP))
    assert again.taken(VoteGranted) == []
    assert again.taken(PreVoteRequest) == []


def test_node_has_caught_up_when_it_holds_what_a_leader_committed_in_its_own_term() -> None:
    lone = Lone(phase=Phase.EMPTY)
    lone.append(2, 2, 2, term=3, prev=(1, 0), commit=3)
    assert not lone.node.status().caught_up  # Nothing of the leader's own term is committed.
    lone.append(2, 3, term=3, prev=(3, 2), commit=5)
    assert not lone.node.status().caught_up  # More is committed than is here.
    lone.append(2, 3, term=3, prev=(4, 3), commit=4)
    assert lone.node.status().caught_up
    assert read_votes(lone.files.crash(), VOTES).phase is Phase.CAUGHT_UP


def test_node_is_founding_when_it_follows_the_leader_of_a_new_cluster() -> None:
    lone = Lone(phase=Phase.EMPTY)
    lone.append(2, 1, term=1, prev=(1, 0), founding=True)
    assert read_votes(lone.files.crash(), VOTES).phase is Phase.FOUNDING


def test_node_is_not_founding_when_it_knows_an_old_member() -> None:
    lone = Lone(phase=Phase.EMPTY)
    lone.receive(3, PreVoteRequest(1, 1, 0, Phase.CAUGHT_UP))
    lone.append(2, 1, term=1, prev=(1, 0), founding=True)
    assert read_votes(lone.files, VOTES).phase is Phase.EMPTY


def test_founding_leader_is_not_active_when_it_alone_knows_what_is_committed() -> None:
    lone = Lone(phase=Phase.EMPTY)
    lone.tick(TIMEOUT)
    lone.receive(2, PreVoteResponse(0, 1, True, Phase.EMPTY))
    lone.receive(2, VoteGranted(1))
    assert read_votes(lone.files, VOTES).phase is Phase.FOUNDING
    assert all(one.founding for one in lone.taken(AppendEntries))
    lone.receive(2, AppendResult(1, 4, True, False))
    assert (lone.commit, lone.machine.claims) == (3, [1])
    assert not lone.node.leadership().active
    lone.receive(2, AppendResult(1, 4, True, True))
    assert lone.node.leadership().active
    assert read_votes(lone.files.crash(), VOTES).phase is Phase.CAUGHT_UP


def test_leader_does_not_call_itself_founding_when_it_has_heard_of_an_old_member() -> None:
    lone = Lone(phase=Phase.FOUNDING)
    lone.become_leader()
    lone.tick(SETTINGS.heartbeat_ms + 1)
    assert not any(one.founding for one in lone.taken(AppendEntries))


def phases(cluster: RaftCluster) -> list[Phase]:
    return [read_votes(cluster.files[node_id], VOTES).phase for node_id in cluster.voters]


def test_all_have_caught_up_when_a_new_cluster_is_founded() -> None:
    for size in (1, 3, 5):
        cluster = RaftCluster(size, seed=size)
        cluster.start()
        cluster.elect()
        cluster.run(500)
        assert phases(cluster) == [Phase.CAUGHT_UP] * size


def test_new_cluster_goes_on_when_it_is_killed_at_any_moment_of_its_founding() -> None:
    """All three lose power after some steps and start again: no phase may lock them out of each other."""
    for steps in range(0, 260, 3):
        cluster = RaftCluster(3, seed=steps, step_ms=5)
        cluster.start()
        for _ in range(steps):
            cluster.step()
        for node_id in cluster.voters:
            cluster.cut_power(node_id)
        cluster.start()
        cluster.commit(b"a")
        cluster.run_until(cluster.agreed)


def test_replaced_disk_is_filled_and_votes_again_when_the_others_are_healthy() -> None:
    cluster = RaftCluster(3, seed=6)
    cluster.start()
    leader = cluster.commit(b"a", b"b")
    follower, other = cluster.followers()
    cluster.lose_disk(follower)
    cluster.start(follower)
    cluster.run_until(lambda: cluster.nodes[follower].status().caught_up)
    cluster.run_until(cluster.agreed)
    # Now it stands in for the one that fails.
    cluster.kill(leader)
    cluster.commit(b"c")
    assert cluster.machines[follower].payloads == [b"a", b"b", b"c"]
    assert other in cluster.nodes


def test_nothing_is_lost_when_a_disk_is_lost_and_the_one_other_holder_fails() -> None:
    """b is on the leader and one follower; that follower loses its disk, and the leader is gone as well."""
    cluster = RaftCluster(3, seed=7)
    cluster.start()
    leader = cluster.commit(b"a")
    cluster.run_until(cluster.agreed)
    holder, behind = cluster.followers()
    cluster.network.isolate(behind, cluster.voters)
    cluster.commit(b"b")
    cluster.kill(leader)
    cluster.lose_disk(holder)
    cluster.network.heal()
    cluster.start(holder)
    cluster.run(10_000)
    # A majority is up, but not one that could know of b.
    assert cluster.active() is None
    assert cluster.machines[behind].payloads == [b"a"]
    cluster.start(leader)
    cluster.commit(b"c")
    cluster.run_until(cluster.agreed)
    assert cluster.machines[behind].payloads == [b"a", b"b", b"c"]


def test_two_empty_nodes_found_no_cluster_when_an_old_member_is_there() -> None:
    """One never was up and one lost its disk: together they are a majority that knows nothing."""
    cluster = RaftCluster(3, seed=8)
    cluster.start(1, 2)
    cluster.commit(b"a")
    cluster.run(500)
    cluster.lose_disk(2)
    cluster.start(2, 3)
    cluster.run(10_000)
    assert cluster.active() is None
    assert cluster.machines[1].payloads == [b"a"]
    assert cluster.failures == {}
