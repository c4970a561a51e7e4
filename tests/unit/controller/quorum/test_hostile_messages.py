"""What a peer may send without doing harm: it is dropped and counted, and nothing is raised."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from tailrace.cluster.controller.quorum.frames import Entry
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    HandOver,
    Message,
    PreVoteResponse,
    SnapshotChunk,
    SnapshotProgress,
    VoteGranted,
    encode,
)
from tailrace.cluster.controller.quorum.settings import MIB, QuorumSettings
from tailrace.cluster.controller.quorum.votes import Phase
from tests.support.raft_cluster import RaftCluster
from tests.unit.controller.quorum.lone import Lone

SMALL = QuorumSettings(
    max_message_bytes=300_000, max_payload_bytes=1000, batch_bytes=1000, snapshot_chunk_bytes=1000
)


class Evil:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "malformed"),
        (b"\xff" * 30, "malformed"),
        (b"\x05" + b"\xff" * 60, "malformed"),
        (pickle.dumps(Evil()), "malformed"),
        (pickle.dumps({"type": "apply_command", "command": b"\x00x", "request_id": 1}), "malformed"),
        (pickle.dumps({"type": "timeout_now", "term": 99}), "malformed"),
        (bytes(300_001), "oversized"),
        (encode(VoteGranted(99)), "vote_not_asked_for"),
        (encode(HandOver(0)), "hand_over_not_from_leader"),
        (encode(AppendResult(0, 5, True, True)), "answer_of_another_term"),
        (encode(SnapshotProgress(0, 5, 5)), "answer_of_another_term"),
        (encode(SnapshotChunk(1, 1, 9, 1, 2 << 40, 0, b"")), "snapshot_too_large"),
    ],
)
def test_message_is_dropped_and_counted_when_it_is_not_to_be_followed(data: bytes, reason: str) -> None:
    lone = Lone(settings=SMALL)
    lone.node.on_message(2, data)
    lone.tick()
    lone.tick()
    assert lone.dropped == {reason: 1}
    assert (lone.term, lone.log, lone.node.status().leader_id) == (0, [], None)


def test_message_is_dropped_when_its_sender_is_no_voter() -> None:
    lone = Lone()
    lone.node.on_up(9)
    lone.node.on_message(9, encode(AppendEntries(1, 1, 1, 0, False, (Entry(b"\x01", 2, 1),))))
    lone.node.on_down(9)
    lone.tick()
    lone.tick()
    assert lone.dropped == {"unknown_peer": 1}
    assert lone.term == 0


def test_messages_are_dropped_when_they_arrive_faster_than_they_are_read() -> None:
    lone = Lone(settings=QuorumSettings(inbox_bytes=3 * MIB))
    for _ in range(10):
        lone.node.on_message(2, b"\xff" * MIB)
    lone.tick()
    lone.tick()
    assert lone.dropped == {"inbox_full": 7, "malformed": 3}
    lone.node.on_message(2, b"\xff" * MIB)
    lone.tick()
    lone.tick()
    assert lone.dropped["malformed"] == 4


def test_entries_of_a_second_leader_are_dropped_when_this_node_leads_the_term() -> None:
    lone = Lone(1)
    lone.become_leader()
    lone.append(3, 2, term=2, prev=(2, 1))
    lone.tick()
    assert lone.dropped == {"second_leader": 1}
    assert lone.node.status().leader_id == 1


def test_nothing_is_raised_when_messages_are_random_bytes() -> None:
    rng = Random(1)
    lone = Lone(1, 1)
    for _ in range(3000):
        kind = bytes([rng.randint(0, 11)])
        lone.node.on_message(rng.choice([2, 3]), kind + rng.randbytes(rng.choice([0, 8, 17, 25, 26, 38, 60])))
    lone.tick()


def test_nothing_is_raised_when_votes_and_answers_are_arbitrary() -> None:
    rng = Random(2)

    def number() -> int:
        return rng.choice([0, 1, 2, 3, 5, 9, 2**40])

    def flag() -> bool:
        return rng.random() < 0.5

    lone = Lone(1)
    lone.become_leader()
    for _ in range(3000):
        choices: list[Message] = [
            AppendResult(number(), number(), flag(), flag()),
            SnapshotProgress(number(), number(), number()),
            PreVoteResponse(number(), number(), flag(), Phase.CAUGHT_UP),
            VoteGranted(number()),
            HandOver(number()),
        ]
        message = rng.choice(choices)
        lone.node.on_message(rng.choice([2, 3]), encode(message))
        if rng.random() < 0.3:
            lone.tick(rng.choice([0, 50, 200]))


def test_entry_of_a_newer_release_stops_each_node_that_commits_it() -> None:
    cluster = RaftCluster(3)
    cluster.start()
    active = cluster.commit(b"a")
    cluster.nodes[active]._core.submit(b"\x63 what comes later", lambda result, ended: None)
    cluster.run(5000)
    # The last one has no majority any more, and so nothing is committed there.
    assert len(cluster.failures) == 2
    assert all("Start that release or a later one" in str(error) for error in cluster.failures.values())
    assert cluster.active() is None
