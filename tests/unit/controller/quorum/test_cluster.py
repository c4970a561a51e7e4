"""Whole quorums on virtual time: proposals and their outcomes, claims, barriers, restarts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.controller.quorum.guard import Barrier, Claim, Proposal, encode_command
from tailrace.cluster.controller.quorum.node import RaftNode
from tailrace.cluster.controller.quorum.outcomes import Committed, Outcome, Refused, Unknown
from tests.support.raft_cluster import SETTINGS, Attempt, RaftCluster


def founded(size: int = 3, *, seed: int = 1, **settings: int) -> RaftCluster:
    cluster = RaftCluster(size, seed=seed, settings=replace(SETTINGS, **settings))
    cluster.start()
    cluster.elect()
    cluster.run(300)
    return cluster


def code(attempt: Attempt) -> ErrorCode | None:
    return attempt.outcome.code if isinstance(attempt.outcome, Refused) else None


@pytest.mark.parametrize("size", [1, 3, 5])
def test_proposals_are_applied_everywhere_in_order_when_committed(size: int) -> None:
    cluster = founded(size)
    payloads = [b"payload %d" % number for number in range(30)]
    cluster.commit(*payloads)
    cluster.run_until(cluster.agreed)
    assert all(machine.payloads == payloads for machine in cluster.machines.values())
    assert cluster.failures == {}


def test_proposals_are_committed_in_order_when_pipelined() -> None:
    cluster = founded()
    active = cluster.elect()
    attempts = [cluster.propose(active, b"%d" % number, ahead=number) for number in range(50)]
    cluster.run_until(lambda: attempts[-1].outcome is not None)
    assert [attempt.outcome for attempt in attempts] == [Committed(number + 1) for number in range(50)]


def test_proposal_is_refused_when_the_node_is_not_active() -> None:
    cluster = founded()
    attempt = cluster.propose(cluster.followers()[0], b"x")
    cluster.step()
    assert code(attempt) is ErrorCode.NOT_CONTROLLER


def test_proposal_is_refused_when_its_epoch_or_version_is_past() -> None:
    cluster = founded()
    active = cluster.commit(b"a", b"b")
    stale: list[Outcome] = []
    node = cluster.nodes[active]
    node.propose(node.leadership().epoch - 1, 2, b"x", stale.append)
    node.propose(node.leadership().epoch, 1, b"y", stale.append)
    cluster.step()
    assert [one.code for one in stale if isinstance(one, Refused)] == [
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
    ]
    assert cluster.machines[active].payloads == [b"a", b"b"]


def test_proposal_is_refused_when_it_is_too_large() -> None:
    cluster = founded(max_payload_bytes=1000)
    active = cluster.elect()
    attempt = cluster.propose(active, bytes(1001))
    largest = cluster.propose(active, bytes(1000))
    cluster.run(200)
    assert code(attempt) is ErrorCode.INVALID_REQUEST
    assert largest.outcome == Committed(1)


def test_large_proposals_are_committed_when_each_fills_a_message() -> None:
    cluster = founded()
    cluster.commit(*[bytes([number]) * SETTINGS.max_payload_bytes for number in range(3)])
    cluster.run_until(cluster.agreed)
    assert all(len(data) <= SETTINGS.max_message_bytes for _, _, data in cluster.network.sent)


def test_proposals_are_refused_when_too_many_wait() -> None:
    cluster = founded(max_pending=10)
    active = cluster.elect()
    cluster.network.isolate(active, cluster.voters)
    attempts = [cluster.propose(active, b"%d" % number, ahead=number) for number in range(12)]
    cluster.step()
    assert [code(attempt) for attempt in attempts] == [None] * 10 + [ErrorCode.STORAGE_OVERLOADED] * 2


def test_version_mismatch_refuses_those_after_it_when_one_falls_out() -> None:
    cluster = founded()
    active = cluster.elect()
    attempts = [cluster.propose(active, b"%d" % ahead, ahead=ahead) for ahead in (0, 2, 3)]
    cluster.run(300)
    assert attempts[0].outcome == Committed(1)
    assert [code(attempt) for attempt in attempts[1:]] == [ErrorCode.INVALID_UPDATE_VERSION] * 2
    assert cluster.machines[active].payloads == [b"0"]


# Losing leadership.


def test_outcome_is_unknown_when_leadership_is_lost_on_the_way() -> None:
    cluster = founded()
    active = cluster.elect()
    cluster.network.isolate(active, cluster.voters)
    attempt = cluster.propose(active, b"lost")
    barrier = cluster.barrier(active)
    cluster.run_until(lambda: attempt.outcome is not None)
    assert isinstance(attempt.outcome, Unknown)
    assert code(barrier) is ErrorCode.NOT_CONTROLLER
    assert not cluster.is_active(active)


def test_outcome_is_unknown_when_the_deadline_passes() -> None:
    cluster = founded(proposal_timeout_ms=200, leader_fallback_ms=450)
    active = cluster.elect()
    cluster.network.isolate(active, cluster.voters)
    attempt = cluster.propose(active, b"late")
    barrier = cluster.barrier(active)
    cluster.run(250)
    assert cluster.is_active(active)
    assert isinstance(attempt.outcome, Unknown)
    assert code(barrier) is ErrorCode.REQUEST_TIMED_OUT


def test_entry_of_a_deposed_leader_is_never_applied_when_it_had_not_left_the_node() -> None:
    cluster = founded()
    old = cluster.elect()
    cluster.network.isolate(old, cluster.voters)
    attempt = cluster.propose(old, b"of the old one")
    cluster.run_until(lambda: cluster.active() not in (None, old))
    cluster.commit(b"of the new one")
    cluster.network.heal()
    cluster.run_until(cluster.agreed)
    assert isinstance(attempt.outcome, Unknown)
    assert all(machine.payloads == [b"of the new one"] for machine in cluster.machines.values())


def test_entry_of_a_deposed_leader_is_refused_by_the_guard_when_it_is_committed_after_the_claim() -> None:
    """A late command with an old epoch in the log changes nothing, on every node alike."""
    cluster = founded()
    active = cluster.commit(b"a")
    node = cluster.nodes[active]
    ignored: list[object] = []
    for command in (Proposal(0, 1, b"late"), Claim(0, 9)):
        node._core.submit(encode_command(command), lambda result, ended: ignored.append(result))
    cluster.run(300)
    assert [type(outcome) for outcome in ignored] == [Refused, Refused]
    cluster.run_until(cluster.agreed)
    assert all(machine.payloads == [b"a"] for machine in cluster.machines.values())


def test_pending_entry_is_refused_when_another_leaders_entry_took_its_place() -> None:
    """Definite: the deposed leader learns it from the log, if it had not given an answer before."""
    cluster = founded()
    old = cluster.elect()
    node = cluster.nodes[old]
    ended: list[str] = []
    cluster.network.isolate(old, cluster.voters)
    node._core.submit(encode_command(Barrier()), lambda result, how: ended.append(how.name))
    cluster.run_until(lambda: cluster.active() not in (None, old))
    cluster.commit(b"a", b"b", b"c")
    cluster.network.heal()
    cluster.run_until(cluster.agreed)
    assert ended == ["REPLACED"]


def test_commands_are_refused_here_when_pysyncobj_would_forward_them() -> None:
    cluster = founded()
    follower = cluster.followers()[0]
    ended: list[str] = []
    cluster.nodes[follower]._core.submit(b"\x03", lambda result, how: ended.append(how.name))
    cluster.network.sent.clear()
    cluster.run(50)
    assert ended == ["NOT_LEADER"]


def test_one_leader_claims_each_epoch_when_leadership_moves() -> None:
    cluster = founded(5, seed=2)
    for number in range(4):
        active = cluster.commit(b"%d" % number)
        cluster.kill(active)
        cluster.run_until(lambda active=active: cluster.active() not in (None, active))  # type: ignore[misc]
        cluster.start(active)
    cluster.run_until(cluster.agreed)
    claims = cluster.machines[1].claims
    assert claims == sorted(set(claims))
    assert all(machine.claims == claims for machine in cluster.machines.values())
    by_epoch: dict[int, set[int]] = {}
    for node_id, leaderships in cluster.leaderships.items():
        for leadership in leaderships:
            if leadership.active:
                by_epoch.setdefault(leadership.epoch, set()).add(node_id)
    assert all(len(nodes) == 1 for nodes in by_epoch.values())
    assert set(by_epoch) == set(claims)


def test_leader_is_not_active_before_its_claim_is_committed() -> None:
    cluster = founded()
    old = cluster.commit(b"a")
    cluster.kill(old)
    seen: list[tuple[int, int]] = []

    def watch() -> bool:
        for node_id, node in cluster.nodes.items():
            status = node.status()
            if status.active:
                assert status.epoch == status.term
                seen.append((node_id, status.version))
        return bool(seen)

    cluster.run_until(watch)
    new, version = seen[0]
    assert version == 1
    assert cluster.machines[new].claims[-1] == cluster.term(new)


# Barriers.


def test_barrier_covers_everything_before_it_when_committed() -> None:
    cluster = founded()
    active = cluster.elect()
    attempts = [cluster.propose(active, b"%d" % number, ahead=number) for number in range(5)]
    last = cluster.nodes[active].status().last_index
    barriers = [cluster.barrier(active) for _ in range(10)]
    cluster.run_until(lambda: all(barrier.outcome for barrier in barriers))
    assert all(barrier.outcome == Committed(5) for barrier in barriers)
    assert all(attempt.outcome for attempt in attempts)
    # One entry serves them all.
    assert cluster.nodes[active].status().last_index == last + 6


def test_barrier_is_refused_when_the_node_does_not_lead() -> None:
    cluster = founded()
    barrier = cluster.barrier(cluster.followers()[0])
    cluster.step()
    assert code(barrier) is ErrorCode.NOT_CONTROLLER


def test_barrier_is_not_answered_from_memory_when_another_leader_may_have_written() -> None:
    cluster = founded()
    old = cluster.elect()
    cluster.network.cut.update((old, other) for other in cluster.voters)
    cluster.network.cut.update((other, old) for other in cluster.voters)
    barrier = cluster.barrier(old)
    cluster.run_until(lambda: cluster.active() not in (None, old))
    assert not isinstance(barrier.outcome, Committed)


# Restarts.


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("how", ["stop", "kill", "cut_power"])
def test_everything_committed_is_there_when_all_nodes_were_down(size: int, how: str) -> None:
    cluster = founded(size)
    payloads = [b"%d" % number for number in range(20)]
    cluster.commit(*payloads)
    term = cluster.term(1)
    for node_id in cluster.voters:
        getattr(cluster, how)(node_id)
    cluster.start()
    cluster.commit(b"after")
    cluster.run_until(cluster.agreed)
    assert cluster.machines[1].payloads == [*payloads, b"after"]
    assert cluster.term(1) > term


def test_followers_catch_up_when_they_were_down() -> None:
    cluster = founded()
    follower = cluster.followers()[0]
    cluster.cut_power(follower)
    cluster.commit(*[b"%d" % number for number in range(30)])
    cluster.start(follower)
    cluster.run_until(cluster.agreed)
    assert cluster.machines[follower].loads == 0


def test_long_divergence_is_repaired_in_few_rounds_when_a_leader_was_isolated() -> None:
    cluster = founded(max_pending=5000)
    old = cluster.elect()
    cluster.network.isolate(old, cluster.voters)
    for number in range(2000):
        cluster.propose(old, b"%d" % number, ahead=number)
    cluster.run_until(lambda: cluster.active() not in (None, old))
    cluster.commit(b"a")
    cluster.network.heal()
    cluster.run_until(cluster.agreed, limit_ms=1000)
    assert cluster.machines[old].payloads == [b"a"]


def test_nodes_agree_when_messages_get_lost() -> None:
    cluster = founded(5, seed=9)
    cluster.network.loss = 0.2
    committed = 0
    for number in range(60):
        active = cluster.elect()
        attempt = cluster.propose(active, b"%d" % number)
        cluster.run_until(lambda attempt=attempt: attempt.outcome is not None)  # type: ignore[misc]
        committed += isinstance(attempt.outcome, Committed)
    cluster.network.loss = 0.0
    cluster.run_until(lambda: cluster.active() is not None and cluster.agreed())
    assert committed > 40
    assert len(cluster.machines[1].payloads) >= committed


def test_node_ends_when_the_machine_raises() -> None:
    cluster = founded()
    follower = cluster.followers()[0]

    def explode(entry: object) -> None:
        raise RuntimeError("the machine is broken")

    cluster.machines[follower].apply = explode  # type: ignore[method-assign]
    cluster.commit(b"a")
    cluster.run(200)
    assert [str(error) for error in cluster.failures.values()] == ["the machine is broken"]
    assert follower not in cluster.nodes
    cluster.commit(b"b")


def test_node_goes_on_when_a_callback_raises() -> None:
    cluster = founded()
    active = cluster.elect()
    node: RaftNode = cluster.nodes[active]
    answered: list[Outcome] = []

    def raising(outcome: Outcome) -> None:
        answered.append(outcome)
        raise RuntimeError("the callback is broken")

    node.propose(node.leadership().epoch, 0, b"a", raising)
    cluster.run_until(lambda: bool(answered))
    cluster.commit(b"b")
    cluster.run_until(cluster.agreed)
    assert answered == [Committed(1)]
    assert cluster.machines[active].payloads == [b"a", b"b"]
    assert cluster.failures == {}
