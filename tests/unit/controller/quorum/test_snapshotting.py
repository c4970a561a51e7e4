"""Snapshots in a whole quorum: made beside the log, retried when they fail, sent in chunks, and durable."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from tailrace.cluster.controller.quorum.messages import SnapshotChunk, decode, encode
from tailrace.cluster.controller.quorum.outcomes import Committed
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.snapshots import snapshot_path
from tests.support.fault_files import PowerLost, on
from tests.support.raft_cluster import DIRECTORY, RaftCluster, small_snapshots

SMALL = small_snapshots()


def payloads(count: int, prefix: bytes = b"p") -> list[bytes]:
    return [b"%b%d" % (prefix, number) for number in range(count)]


def founded(size: int = 3, *, seed: int = 1, settings: QuorumSettings = SMALL) -> RaftCluster:
    cluster = RaftCluster(size, seed=seed, settings=settings)
    cluster.start()
    cluster.elect()
    cluster.run(300)
    return cluster


def chunks(cluster: RaftCluster, target: int) -> list[SnapshotChunk]:
    messages = [decode(data) for _, to, data in cluster.network.sent if to == target]
    return [message for message in messages if isinstance(message, SnapshotChunk)]


def lag_behind(cluster: RaftCluster, count: int = 60) -> int:
    """Stops a follower until the others have forgotten what it lacks; returns it."""
    follower = cluster.followers()[0]
    cluster.cut_power(follower)
    cluster.commit(*payloads(count, b"missed"))
    cluster.network.sent.clear()
    return follower


def test_log_is_trimmed_on_every_node_when_a_snapshot_is_made() -> None:
    cluster = founded()
    cluster.commit(*payloads(50))
    cluster.run_until(cluster.agreed)
    for node in cluster.nodes.values():
        status = node.status()
        assert status.snapshot is not None
        assert status.snapshot.index > 40
        assert status.snapshot.version == status.snapshot.index - 3
        assert status.journal_entries <= 20 + 5 + 1
        assert status.failed_snapshots == 0


def test_state_comes_from_the_snapshot_when_all_nodes_start_again() -> None:
    cluster = founded()
    cluster.commit(*payloads(50))
    for node_id in cluster.voters:
        cluster.cut_power(node_id)
    cluster.start()
    assert all(machine.loads == 1 for machine in cluster.machines.values())
    cluster.commit(b"after")
    cluster.run_until(cluster.agreed)
    assert cluster.machines[1].payloads == [*payloads(50), b"after"]


def test_log_goes_on_while_a_snapshot_is_being_encoded() -> None:
    cluster = founded()
    cluster.run_jobs = False
    cluster.commit(*payloads(70))
    assert all(node.status().snapshot is None for node in cluster.nodes.values())
    # The state was frozen once, and no second job was begun beside the first.
    assert all(machine.freezes == 1 for machine in cluster.machines.values())
    cluster.run_jobs = True
    cluster.run(50)
    statuses = [node.status() for node in cluster.nodes.values()]
    assert all(status.snapshot is not None and status.snapshot.index > 60 for status in statuses)


def test_snapshot_is_made_when_the_log_has_many_bytes() -> None:
    cluster = founded(1, settings=replace(SMALL, snapshot_entries=10_000, snapshot_bytes=5_000))
    cluster.commit(*[bytes(1000)] * 8)
    assert cluster.nodes[1].status().snapshot is not None


def test_follower_needs_no_snapshot_when_it_lags_a_little() -> None:
    cluster = founded(settings=small_snapshots(keep=10))
    cluster.commit(*payloads(12))
    cluster.run_until(cluster.agreed)
    follower = cluster.followers()[0]
    behind = cluster.nodes[follower].status().last_index
    cluster.cut_power(follower)
    active = cluster.commit(*payloads(9))
    snapshot = cluster.nodes[active].status().snapshot
    assert snapshot is not None
    assert snapshot.index > behind
    cluster.start(follower)
    cluster.run_until(cluster.agreed)
    assert cluster.machines[follower].loads == 0
    assert chunks(cluster, follower) == []


# Failures.


@pytest.mark.parametrize("call", ["create", "write", "datasync", "rename"])
def test_failed_snapshot_is_tried_again_and_shows_when_the_disk_refuses_it(call: str) -> None:
    cluster = founded(1)
    fault = cluster.files[1].fail(
        errno.ENOSPC, lambda made, path: made == call and "snapshot-" in path, times=3
    )
    cluster.commit(*payloads(60))
    status = cluster.nodes[1].status()
    assert (status.failed_snapshots, fault.hits) == (1, 1)
    assert "No space left" in status.snapshot_error
    for failures in (2, 3):
        cluster.run(SMALL.snapshot_retry_ms + 100)
        assert cluster.nodes[1].status().failed_snapshots == failures
    cluster.run(SMALL.snapshot_retry_ms + 100)
    status = cluster.nodes[1].status()
    assert (status.failed_snapshots, status.snapshot_error) == (3, "")
    assert status.snapshot is not None
    assert cluster.failures == {}
    cluster.cut_power(1)
    cluster.start()
    assert cluster.machines[1].payloads == payloads(60)[: cluster.machines[1].version]


def test_failed_snapshot_is_tried_again_when_encoding_raises() -> None:
    cluster = founded(1)
    good: Callable[[], Callable[[], bytes]] = cluster.machines[1].snapshot

    def broken() -> Callable[[], bytes]:
        def encode() -> bytes:
            raise MemoryError("no memory")

        return encode

    cluster.machines[1].snapshot = broken  # type: ignore[method-assign]
    cluster.commit(*payloads(30))
    assert "no memory" in cluster.nodes[1].status().snapshot_error
    cluster.machines[1].snapshot = good  # type: ignore[method-assign]
    cluster.run(SMALL.snapshot_retry_ms + 100)
    assert cluster.nodes[1].status().snapshot is not None


def test_snapshot_fails_here_when_followers_would_refuse_its_size() -> None:
    cluster = founded(1, settings=replace(SMALL, max_snapshot_bytes=600))
    cluster.commit(*[bytes(20)] * 30)
    assert "max_snapshot_bytes" in cluster.nodes[1].status().snapshot_error


# Transfers.


def test_lagging_follower_gets_the_snapshot_in_bounded_chunks() -> None:
    cluster = founded()
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster, 120)
    cluster.start(follower)
    cluster.run_until(cluster.agreed)
    sent = chunks(cluster, follower)
    assert cluster.machines[follower].loads == 2  # Its own at the start, and the leader's.
    assert len([chunk for chunk in sent if chunk.data]) > 3
    assert max(len(chunk.data) for chunk in sent) == SMALL.snapshot_chunk_bytes
    assert cluster.nodes[follower].status().caught_up


def test_empty_follower_gets_the_snapshot_when_its_disk_was_replaced() -> None:
    cluster = founded()
    cluster.commit(*payloads(90))
    follower = cluster.followers()[0]
    cluster.lose_disk(follower)
    cluster.start(follower)
    cluster.run_until(cluster.agreed)
    cluster.run_until(lambda: cluster.nodes[follower].status().caught_up)
    assert cluster.machines[follower].payloads == payloads(90)


def test_transfer_resumes_when_the_connection_breaks() -> None:
    cluster = founded()
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster, 200)
    cluster.start(follower)
    cluster.run_until(lambda: len(chunks(cluster, follower)) > 4)
    active = cluster.elect()
    cluster.network.break_link(active, follower)
    cluster.run(50)
    cluster.network.sent.clear()
    cluster.network.heal()
    cluster.run_until(cluster.agreed)
    first = next(chunk.offset for chunk in chunks(cluster, follower) if chunk.offset)
    assert first > SMALL.snapshot_chunk_bytes


def test_transfer_ends_when_chunks_and_answers_get_lost() -> None:
    cluster = founded(seed=3)
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster)
    cluster.start(follower)
    cluster.network.loss = 0.3
    cluster.run_until(lambda: cluster.machines[follower].version >= 89, limit_ms=60_000)
    cluster.network.loss = 0.0
    cluster.run_until(lambda: cluster.active() is not None and cluster.agreed())
    assert cluster.machines[follower].loads == 2


def test_leader_stays_when_its_only_follower_is_busy_with_a_long_transfer() -> None:
    """Each chunk is answered; otherwise the leader would step down for want of answers."""
    cluster = founded(settings=replace(SMALL, snapshot_chunk_bytes=20))
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster)
    active = cluster.elect()
    term = cluster.term(active)
    [other] = [node_id for node_id in cluster.nodes if node_id != active]
    cluster.start(follower)
    cluster.run_until(lambda: bool(chunks(cluster, follower)))
    cluster.kill(other)
    started = cluster.clock.monotonic()
    cluster.run_until(lambda: cluster.machines[follower].loads == 2, limit_ms=60_000)
    assert cluster.clock.monotonic() - started > SMALL.leader_fallback_ms / 1000
    assert (cluster.active(), cluster.term(active)) == (active, term)


def test_proposals_are_committed_while_a_snapshot_is_sent() -> None:
    cluster = founded(settings=replace(SMALL, snapshot_chunk_bytes=50))
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster)
    cluster.start(follower)
    cluster.run_until(lambda: bool(chunks(cluster, follower)))
    attempt = cluster.propose(cluster.elect(), b"beside")
    cluster.run(100)
    assert isinstance(attempt.outcome, Committed)
    assert cluster.machines[follower].loads == 1
    cluster.run_until(cluster.agreed, limit_ms=60_000)


def test_received_snapshot_is_refused_and_asked_for_again_when_it_was_damaged_on_the_way() -> None:
    cluster = founded()
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster)
    cluster.start(follower)
    damaged: list[int] = []

    def damage(source: int, target: int, data: bytes) -> bool:
        message = decode(data)
        if isinstance(message, SnapshotChunk) and message.offset and not damaged:
            damaged.append(message.offset)
            wrong = message._replace(data=bytes(len(message.data)))
            cluster.nodes[target].on_message(source, encode(wrong))
            return False
        return True

    cluster.network.filter = damage
    cluster.run_until(cluster.agreed)
    assert cluster.dropped(follower) == {"bad_snapshot": 1}
    assert cluster.machines[follower].loads == 2


def test_follower_starts_from_old_or_new_state_when_the_power_goes_at_any_step_of_a_transfer() -> None:
    def at_transfer(seed: int) -> tuple[RaftCluster, int]:
        cluster = founded(seed=seed)
        cluster.commit(*payloads(30))
        follower = lag_behind(cluster)
        cluster.start(follower)
        return cluster, follower

    reference, follower = at_transfer(1)
    first = reference.files[follower].steps
    reference.run_until(reference.agreed)
    last = reference.files[follower].steps
    assert last - first > 15
    for step in range(first + 1, last + 1):
        cluster, follower = at_transfer(1)
        cluster.files[follower].crash_after(step)
        with suppress(PowerLost):
            cluster.run(5000)
        assert cluster.files[follower]._plan.dead
        cluster.cut_power(follower)
        cluster.start(follower)
        cluster.run_until(cluster.agreed)
        assert cluster.machines[follower].payloads == [*payloads(30), *payloads(60, b"missed")], step


def test_committed_entries_survive_when_the_power_goes_at_any_step_of_snapshotting() -> None:
    """A quorum of one: whatever it has answered must be there after the crash."""

    def run(cluster: RaftCluster, answered: list[bytes]) -> None:
        for payload in payloads(50):
            cluster.commit(payload)
            answered.append(payload)

    reference = founded(1)
    first = reference.files[1].steps
    run(reference, [])
    for step in range(first + 1, reference.files[1].steps + 1, 3):
        cluster = founded(1)
        cluster.files[1].crash_after(step)
        answered: list[bytes] = []
        with suppress(PowerLost):
            run(cluster, answered)
        cluster.cut_power(1)
        cluster.start()
        cluster.commit(b"end")
        found = cluster.machines[1].payloads
        assert found[: len(answered)] == answered, step


def test_leader_ends_when_it_cannot_read_its_own_snapshot() -> None:
    cluster = founded()
    cluster.commit(*payloads(30))
    follower = lag_behind(cluster)
    active = cluster.elect()
    cluster.files[active].fail(errno.EIO, on("read"), times=None)
    cluster.start(follower)
    cluster.run_until(lambda: active in cluster.failures)
    assert "reading a snapshot failed" in str(cluster.failures[active])
    cluster.commit(b"by the others")


def test_snapshot_files_do_not_pile_up_when_many_are_made() -> None:
    cluster = founded(1)
    cluster.commit(*payloads(200))
    names = [entry.name for entry in cluster.files[1].list(DIRECTORY)]
    status = cluster.nodes[1].status()
    assert status.snapshot is not None
    assert sorted(name for name in names if "snapshot" in name) == [
        snapshot_path(DIRECTORY, status.snapshot.index).rpartition("/")[2]
    ]
