"""Controllers of a quorum as real processes: killed, paused, cut off, and started on damaged directories.

`python -m tests.quorum_kills` does the same as the first test for as long as one likes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tests.integration.quorum_cluster import FAST_SETTINGS, Book, EntryId, QuorumCluster
from tests.integration.quorum_node import RECORD
from tests.quorum_kills import HOSE_WIDTH, judge, judge_cluster, kill_round

# Durable in each file since it came into being; further on, a broken journal may be just a torn one.
DAMAGED_BYTE = 50
ROUNDS = {"leader": 3, "two": 2, "all": 2}
# A node that is only slow, on a busy machine, is not to be taken for one that is gone.
PATIENT_SETTINGS = {
    **FAST_SETTINGS,
    "election_min_ms": 1_000,
    "election_max_ms": 1_500,
    "leader_fallback_ms": 900,
}


@pytest.mark.parametrize("kind", ROUNDS)
def test_quorum_keeps_its_promises_when_nodes_are_killed_under_load(tmp_path: Path, kind: str) -> None:
    rng = Random()
    with QuorumCluster(tmp_path) as cluster:
        cluster.start()
        cluster.hose(HOSE_WIDTH)
        for _ in range(ROUNDS[kind]):
            kill_round(cluster, kind, rng, acknowledged=range(200, 800))
        verdict = judge_cluster(cluster)
        assert not verdict.problems
        assert verdict.epochs > ROUNDS[kind]
        assert verdict.refused
        assert all(cluster.status(node_id)["snapshot"] is not None for node_id in cluster.ids)


def test_leader_applies_nothing_of_its_queue_when_it_was_paused_beyond_its_term(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path) as cluster:
        cluster.start()
        cluster.hose(HOSE_WIDTH)
        cluster.wait_acknowledged(300)
        deposed = cluster.wait_leader()
        before = cluster.status(deposed)
        node = cluster.node(deposed)
        node.pause()
        successor = cluster.wait_leader(epoch_above=before["epoch"])
        cluster.wait_acknowledged(300)
        node.send("burst", 50, before["epoch"], before["version"])
        node.resume()
        first, last = node.reply()
        verdict = judge_cluster(cluster)
        applied = _applied(cluster.histories()[deposed])
    burst = {(node.generation, serial) for serial in range(first, last + 1)}
    assert successor != deposed
    assert not verdict.problems
    assert len(burst) == 50
    assert burst <= cluster.book.refused | cluster.book.unknown
    assert not burst & applied


def test_quorum_keeps_its_term_when_a_link_is_cut_in_one_direction(tmp_path: Path) -> None:
    with QuorumCluster(tmp_path, settings=PATIENT_SETTINGS) as cluster:
        cluster.start()
        leader = cluster.wait_leader()
        cluster.hose(HOSE_WIDTH)
        cluster.wait_acknowledged(100)
        deaf = next(node_id for node_id in cluster.ids if node_id != leader)
        term = cluster.status(leader)["term"]

        cluster.node(leader).ask("cut", deaf)
        asked = cluster.status(deaf)["pre_votes_asked"]
        cluster.wait("three attempts", lambda: cluster.status(deaf)["pre_votes_asked"] >= asked + 6)
        cluster.wait_acknowledged(300)
        assert [cluster.status(node_id)["term"] for node_id in cluster.ids] == [term] * 3

        cluster.node(leader).ask("cut")
        cluster.wait("the leader heard", lambda: cluster.status(deaf)["leader_id"] == leader)
        cluster.node(deaf).ask("cut", leader)
        silent_ms = 2 * PATIENT_SETTINGS["election_max_ms"]
        cluster.wait("silence", lambda: _since_answer_ms(cluster, leader, deaf) > silent_ms)
        cluster.wait_acknowledged(300)
        assert [cluster.status(node_id)["term"] for node_id in cluster.ids] == [term] * 3

        cluster.node(deaf).ask("cut")
        verdict = judge_cluster(cluster)
        assert not verdict.problems
        assert cluster.wait_leader() == leader


@pytest.mark.parametrize("at_the_end_of", ["entries", "file"])
def test_node_cuts_its_journal_when_its_tail_is_torn(tmp_path: Path, at_the_end_of: str) -> None:
    with QuorumCluster(tmp_path) as cluster:
        cluster.start()
        cluster.hose(HOSE_WIDTH)
        cluster.wait_acknowledged(200)
        victim = cluster.wait_leader()
        cluster.kill(victim)
        journal = cluster.directory_of(victim) / "journal"
        data = journal.read_bytes()
        # Frames are padded to 8 bytes, and the space after the last one is filled with zeros.
        end = -(-len(data.rstrip(b"\0")) // 8) * 8 if at_the_end_of == "entries" else len(data)
        garbage = Random(1).randbytes(1000)
        journal.write_bytes(data[:end] + garbage + data[end + len(garbage) :])
        cluster.start(victim)
        cluster.wait_acknowledged(200)
        verdict = judge_cluster(cluster)
        assert not verdict.problems
        assert "raft_journal_tail_cut" in cluster.log_of(victim)
        assert garbage not in journal.read_bytes()


@pytest.mark.parametrize("pattern", ["snapshot-*", "votes", "journal"])
def test_node_refuses_to_start_when_a_file_is_damaged(tmp_path: Path, pattern: str) -> None:
    with QuorumCluster(tmp_path, size=1) as cluster:
        cluster.start()
        cluster.hose(HOSE_WIDTH)
        cluster.wait("a snapshot", lambda: cluster.status(1)["snapshot"] is not None)
        cluster.wait_acknowledged(100)
        cluster.kill(1)
        # The kill may have left an unfinished file beside, which does not count.
        path = max(path for path in cluster.directory_of(1).glob(pattern) if path.suffix != ".tmp")
        whole = path.read_bytes()
        path.write_bytes(_with_flipped_bit(whole, DAMAGED_BYTE))
        message = cluster.start_refused(1)
        assert str(path) in message
        assert "start this one with an empty directory" in message
        assert "restore the whole directory from a backup" in message

        path.write_bytes(whole)
        cluster.start(1)
        assert not judge_cluster(cluster).problems


# The judge itself.

CLAIM_1, CLAIM_2 = (1, 2, 0, 0), (2, 5, 0, 0)
A, B, C = (1, 3, 1, 1), (1, 4, 1, 2), (2, 6, 2, 1)
HISTORY = [CLAIM_1, A, B, CLAIM_2, C]


@pytest.mark.parametrize(
    ("history", "problem"),
    [
        (HISTORY[:-1], "1 acknowledged entries are lost, first (2, 1)"),
        ([*HISTORY, (2, 7, 2, 1)], "1 entries were applied twice, first (2, 1)"),
        ([CLAIM_1, B, (1, 5, 1, 1), (2, 6, 0, 0), (2, 7, 2, 1)], "another version than was said"),
        ([*HISTORY, (2, 7, 2, 9)], "1 refused entries were applied, first (2, 9)"),
        ([*HISTORY, (2, 7, 3, 1)], "1 entries were proposed by nobody, first (3, 1)"),
        ([CLAIM_1, A, CLAIM_2, (1, 6, 1, 2), (2, 7, 2, 1)], "(1, 6, 1, 2) was applied in epoch 2"),
        ([*HISTORY, (1, 7, 0, 0)], "epoch 1 was claimed in epoch 2"),
        ([CLAIM_1, A, B, CLAIM_2, (2, 5, 2, 1)], "index 5 was applied after 5"),
        ([*HISTORY, (2, 7, 1, 3)], "another proposer than 2, in one epoch"),
    ],
)
def test_judge_names_what_is_wrong_when_a_promise_is_broken(
    history: list[tuple[int, ...]], problem: str
) -> None:
    verdict = judge(_book(), {1: _encoded(history), 2: _encoded(history)}, generations=2)
    assert any(problem in found for found in verdict.problems), verdict


def test_judge_finds_the_loss_when_one_node_alone_lacks_an_entry() -> None:
    verdict = judge(_book(), {1: _encoded(HISTORY), 2: _encoded(HISTORY[:-1])}, generations=2)
    assert (verdict.lost, verdict.digests_equal) == (1, False)


def test_judge_finds_nothing_when_every_promise_is_kept() -> None:
    verdict = judge(_book(), {1: _encoded(HISTORY), 2: _encoded(HISTORY)}, generations=2)
    assert verdict.problems == ()
    assert (verdict.acknowledged, verdict.applied, verdict.epochs) == (3, 3, 2)


def _book() -> Book:
    return Book(committed={(1, 1): 1, (1, 2): 2, (2, 1): 3}, refused={(2, 9)})


def _encoded(records: Iterable[tuple[int, ...]]) -> bytes:
    return b"".join(RECORD.pack(*record) for record in records)


def _applied(history: bytes) -> set[EntryId]:
    return {(generation, serial) for _, _, generation, serial in RECORD.iter_unpack(history)}


def _since_answer_ms(cluster: QuorumCluster, leader: int, follower: int) -> int:
    voters = cluster.status(leader)["voters"]
    [answered] = [voter["since_answer_ms"] for voter in voters if voter["node_id"] == follower]
    return answered or 0


def _with_flipped_bit(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
