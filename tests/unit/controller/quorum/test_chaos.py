"""Histories of faults, drawn by a seed: whatever happens, what was answered stays true.

Nodes are killed, lose power between or inside their steps, lose their disk, and come back; links are cut,
broken and lossy; snapshots are made and sent. At any time no two nodes are active in one epoch and no two
states contradict each other; in the end all agree, every `Committed` is where it was said to be, and no
`Refused` is anywhere. A failure names its seed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from tailrace.cluster.controller.quorum.outcomes import Committed, Refused
from tests.support.fault_files import PowerLost
from tests.support.raft_cluster import Attempt, RaftCluster, small_snapshots

STEPS = 1200


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class History:
    def __init__(self, seed: int, size: int) -> None:
        self.rng = rng = Random(seed)
        settings = replace(
            small_snapshots(entries=rng.choice([15, 60, 10_000]), keep=rng.choice([0, 5, 50])),
            snapshot_chunk_bytes=rng.choice([4096, 65536]),
            in_flight_bytes=rng.choice([200, 4 << 20]),
            batch_bytes=rng.choice([64, 512 << 10]),
            max_pending=50,
        )
        self.cluster = RaftCluster(size, seed=seed, settings=settings, step_ms=rng.choice([1, 5, 20]))
        self.cluster.power_may_go = True
        self.attempts: list[Attempt] = []
        self.active_by_epoch: dict[int, int] = {}

    def run(self) -> None:
        cluster = self.cluster
        cluster.start()
        for step in range(STEPS):
            cluster.step()
            self._propose()
            self._strike_a_node()
            self._strike_a_link()
            cluster.run_jobs = self.rng.random() > 0.3
            self._check_leaders()
            if step % 50 == 0:
                self._check_prefixes()
        self._heal()
        cluster.commit(b"final")
        cluster.run_until(cluster.agreed)
        self._check_outcomes()

    def _propose(self) -> None:
        for node_id in list(self.cluster.nodes):
            if self.cluster.is_active(node_id) and self.rng.random() < 0.5:
                for ahead in range(self.rng.choice([1, 1, 3])):
                    payload = b"%d" % len(self.attempts) + bytes(self.rng.choice([0, 0, 300]))
                    self.attempts.append(self.cluster.propose(node_id, payload, ahead=ahead))

    @property
    def _down(self) -> list[int]:
        return [node_id for node_id in self.cluster.voters if node_id not in self.cluster.nodes]

    def _strike_a_node(self) -> None:
        cluster, rng = self.cluster, self.rng
        few_are_down = len(self._down) < (
            len(cluster.voters) if rng.random() < 0.2 else len(cluster.voters) // 2
        )
        if rng.random() < 0.008 and few_are_down:
            node_id = rng.choice(list(cluster.nodes))
            match rng.choice(["kill", "cut_power", "crash_inside", "crash_inside", "stop", "lose_disk"]):
                case "crash_inside":
                    files = cluster.files[node_id]
                    files.crash_after(files.steps + rng.randint(1, 30))
                case "lose_disk" if not self._disk_may_be_lost():
                    pass
                case how:
                    self._unless_power_goes(node_id, getattr(cluster, how))
        for node_id in self._down:
            if rng.random() < 0.02:
                self._unless_power_goes(node_id, cluster.start)

    def _unless_power_goes(self, node_id: int, action: Callable[[int], None]) -> None:
        """A loss of power that waits for its step may come while a node starts or stops, too."""
        try:
            action(node_id)
        except PowerLost:
            self.cluster.cut_power(node_id)

    def _disk_may_be_lost(self) -> bool:
        """What a majority must not forget is on the others: all are up and have caught up."""
        statuses = [node.status() for node in self.cluster.nodes.values()]
        whole = len(statuses) == len(self.cluster.voters) and all(status.caught_up for status in statuses)
        return whole and len(statuses) > 1

    def _strike_a_link(self) -> None:
        cluster, rng = self.cluster, self.rng
        if len(cluster.voters) == 1:
            return
        chance = rng.random()
        if chance < 0.003:
            cluster.network.break_link(*rng.sample(cluster.voters, 2))
        elif chance < 0.006:
            one, other = rng.sample(cluster.voters, 2)
            cluster.network.cut.add((one, other))
        elif chance < 0.008:
            cluster.network.isolate(rng.choice(cluster.voters), cluster.voters)
        elif chance < 0.02:
            cluster.network.heal()
        elif chance < 0.03:
            cluster.network.loss = rng.choice([0, 0, 0, 0.05, 0.3])

    def _heal(self) -> None:
        cluster = self.cluster
        cluster.power_may_go = False
        cluster.network.heal()
        cluster.network.loss = 0.0
        cluster.run_jobs = True
        for node_id in cluster.voters:
            if cluster.files[node_id]._plan.dead:
                # The power went in a job, and the node has not noticed it yet.
                cluster.cut_power(node_id)
            cluster.files[node_id].crash_after(0)
            if node_id not in cluster.nodes:
                cluster.start(node_id)
        cluster.run_until(lambda: cluster.active() is not None and cluster.agreed(), limit_ms=60_000)
        # What was proposed in the last steps is answered, too.
        cluster.run(500)

    def _check_leaders(self) -> None:
        assert self.cluster.failures == {}
        for node_id, node in self.cluster.nodes.items():
            leadership = node.leadership()
            if leadership.active:
                assert self.active_by_epoch.setdefault(leadership.epoch, node_id) == node_id

    def _check_prefixes(self) -> None:
        states = sorted((self.cluster.machines[node_id].payloads for node_id in self.cluster.nodes), key=len)
        for shorter, longer in pairwise(states):
            assert longer[: len(shorter)] == shorter

    def _check_outcomes(self) -> None:
        log = self.cluster.machines[1].payloads
        assert len(set(log)) == len(log), "something was applied twice"
        for attempt in self.attempts:
            match attempt.outcome:
                case Committed(version):
                    assert log[version - 1] == attempt.payload
                case Refused():
                    assert attempt.payload not in log


@pytest.mark.parametrize("size", [1, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_what_was_answered_stays_true_when_anything_fails(size: int, seed: int) -> None:
    History(seed * 10 + size, size).run()
