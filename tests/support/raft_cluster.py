"""A controller quorum in one process, on virtual time: the nodes, their disks, and the network between them.

`RaftCluster` drives `RaftNode`s, the same code that `Quorum` runs on a thread. Time moves in steps; in each
step messages sent before are delivered, every node ticks once, and jobs run. Everything random comes from
one seed, so a run can be repeated. Nodes can be killed, lose power, lose their disk, and be started again;
links can be cut in one direction (silently) or broken (noticed).
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random

from tailrace.cluster.controller.quorum.links import LinkEvents
from tailrace.cluster.controller.quorum.machine import AppliedEntry, EntryKind, StateMachine
from tailrace.cluster.controller.quorum.node import RaftNode
from tailrace.cluster.controller.quorum.outcomes import Leadership, Outcome
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.runtime.blocking import InlineBlocking
from tailrace.cluster.runtime.clock import ManualClock
from tests.support.fault_files import FaultFiles, PowerLost

DIRECTORY = "/controller"
SETTINGS = QuorumSettings()


class RecordingMachine(StateMachine):
    """Keeps every accepted payload, in order."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.claims: list[int] = []
        self.version = 0
        self.epoch = 0
        self.loads = 0
        self.freezes = 0

    def apply(self, entry: AppliedEntry) -> None:
        if entry.kind is EntryKind.CLAIM:
            self.claims.append(entry.epoch)
            assert (entry.version, entry.payload) == (self.version, b"")
        else:
            self.payloads.append(entry.payload)
            assert entry.version == self.version + 1
        self.version, self.epoch = entry.version, entry.epoch

    def snapshot(self) -> Callable[[], bytes]:
        self.freezes += 1
        payloads, claims = list(self.payloads), list(self.claims)
        return lambda: json.dumps([[payload.hex() for payload in payloads], claims]).encode()

    def load(self, state: bytes, version: int, epoch: int) -> None:
        payloads, self.claims = json.loads(state)
        self.payloads = [bytes.fromhex(payload) for payload in payloads]
        self.version, self.epoch = version, epoch
        self.loads += 1
        assert len(self.payloads) == version


class MemoryLinks:
    """The links of one node, in a `MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, node_id: int) -> None:
        self._network = network
        self._node_id = node_id

    def start(self, events: LinkEvents) -> None:
        self._network.join(self._node_id, events)

    def send(self, peer_id: int, data: bytes) -> bool:
        return self._network.send(self._node_id, peer_id, data)

    def stop(self) -> None:
        self._network.leave(self._node_id)


class MemoryNetwork:
    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._joined: dict[int, LinkEvents] = {}
        self._queue: deque[tuple[int, int, bytes]] = deque()
        self._broken: set[frozenset[int]] = set()
        self.cut: set[tuple[int, int]] = set()
        """Directions (from, to) in which messages vanish without anybody noticing."""
        self.loss = 0.0
        self.filter: Callable[[int, int, bytes], bool] = lambda source, target, data: True
        self.sent: list[tuple[int, int, bytes]] = []

    def join(self, node_id: int, events: LinkEvents) -> None:
        self._joined[node_id] = events
        for other in self._joined:
            if other != node_id and frozenset((node_id, other)) not in self._broken:
                self._joined[other].on_up(node_id)
                events.on_up(other)

    def leave(self, node_id: int) -> None:
        if self._joined.pop(node_id, None) is None:
            return
        self._forget(lambda source, target: node_id in (source, target))
        for other, events in self._joined.items():
            if frozenset((node_id, other)) not in self._broken:
                events.on_down(node_id)

    def connected(self, one: int, other: int) -> bool:
        return {one, other} <= set(self._joined) and frozenset((one, other)) not in self._broken

    def break_link(self, one: int, other: int) -> None:
        """Both sides notice at once, and what was on its way is gone."""
        if self.connected(one, other):
            self._joined[one].on_down(other)
            self._joined[other].on_down(one)
        self._broken.add(frozenset((one, other)))
        self._forget(lambda source, target: {source, target} == {one, other})

    def isolate(self, node_id: int, others: Iterable[int]) -> None:
        for other in others:
            if other != node_id:
                self.break_link(node_id, other)

    def heal(self) -> None:
        self.cut.clear()
        broken, self._broken = self._broken, set()
        for link in broken:
            one, other = link
            if link <= set(self._joined):
                self._joined[one].on_up(other)
                self._joined[other].on_up(one)

    def send(self, source: int, target: int, data: bytes) -> bool:
        if not self.connected(source, target):
            return False
        self.sent.append((source, target, data))
        self._queue.append((source, target, data))
        return True

    def deliver(self) -> None:
        """Everything that was sent before this call."""
        for _ in range(len(self._queue)):
            source, target, data = self._queue.popleft()
            lost = self.loss and self._rng.random() < self.loss
            if (source, target) not in self.cut and not lost and self.filter(source, target, data):
                self._joined[target].on_message(source, data)

    def _forget(self, concerns: Callable[[int, int], bool]) -> None:
        self._queue = deque(item for item in self._queue if not concerns(item[0], item[1]))


class DirectLinks:
    """Links between `Quorum`s on threads of one process: a message arrives when it is sent."""

    def __init__(self, hub: dict[int, LinkEvents], lock: threading.Lock, node_id: int) -> None:
        self._hub = hub
        self._lock = lock
        self._node_id = node_id

    def start(self, events: LinkEvents) -> None:
        with self._lock:
            self._hub[self._node_id] = events
            for other, theirs in self._hub.items():
                if other != self._node_id:
                    theirs.on_up(self._node_id)
                    events.on_up(other)

    def send(self, peer_id: int, data: bytes) -> bool:
        events = self._hub.get(peer_id)
        if events is None or self._node_id not in self._hub:
            return False
        events.on_message(self._node_id, data)
        return True

    def stop(self) -> None:
        with self._lock:
            if self._hub.pop(self._node_id, None) is not None:
                for theirs in self._hub.values():
                    theirs.on_down(self._node_id)


@dataclass(slots=True)
class Attempt:
    """A proposal or barrier and what became of it."""

    payload: bytes
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        assert len(self.outcomes) <= 1, "answered twice"
        return self.outcomes[0] if self.outcomes else None


class RaftCluster:
    def __init__(
        self, size: int = 3, *, seed: int = 1, settings: QuorumSettings = SETTINGS, step_ms: int = 5
    ) -> None:
        self.rng = Random(seed)
        self.voters = list(range(1, size + 1))
        self.settings = settings
        self.step_ms = step_ms
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.rng)
        self.jobs = InlineBlocking()
        self.run_jobs = True
        self.power_may_go = False
        """A loss of power inside a tick ends that node, and not the test."""
        self.files = {node_id: FaultFiles(Random(self.rng.random())) for node_id in self.voters}
        self.machines: dict[int, RecordingMachine] = {}
        self.nodes: dict[int, RaftNode] = {}
        self.leaderships: dict[int, list[Leadership]] = {node_id: [] for node_id in self.voters}
        self.failures: dict[int, BaseException] = {}

    # Nodes.

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.voters:
            machine = self.machines[node_id] = RecordingMachine()
            links = MemoryLinks(self.network, node_id)
            self.nodes[node_id] = node = RaftNode(
                node_id=node_id,
                voters=self.voters,
                directory=DIRECTORY,
                files=self.files[node_id],
                machine=machine,
                links=links,
                settings=self.settings,
                clock=self.clock,
                rng=Random(self.rng.random()),
                start_job=self.jobs.start,
                wake=lambda: None,
                on_leadership=self.leaderships[node_id].append,
            )
            links.start(node)

    def stop(self, node_id: int) -> None:
        """End the process in an orderly way, without handing leadership over."""
        self.network.leave(node_id)
        self.nodes.pop(node_id).close()

    def kill(self, node_id: int) -> None:
        """End the process; what it wrote is there, synced or not."""
        self._gone(node_id)
        self.files[node_id] = self.files[node_id].kill()

    def cut_power(self, node_id: int) -> None:
        self._gone(node_id)
        self.files[node_id] = self.files[node_id].crash(Random(self.rng.random()))

    def lose_disk(self, node_id: int) -> None:
        if node_id in self.nodes:
            self._gone(node_id)
        self.files[node_id] = FaultFiles(Random(self.rng.random()))

    def _gone(self, node_id: int) -> None:
        self.network.leave(node_id)
        self.nodes.pop(node_id, None)

    # Time.

    def step(self) -> None:
        self.clock.advance(self.step_ms)
        self.network.deliver()
        for node_id in sorted(self.nodes):
            try:
                self.nodes[node_id].tick()
            except Exception as error:
                self.failures[node_id] = error
                self._gone(node_id)
            except PowerLost:
                # Set by `crash_after`; a test that has set it in a node's files expects it to come through.
                if not self.power_may_go:
                    raise
                self.cut_power(node_id)
        if self.run_jobs:
            self._run_jobs()

    def _run_jobs(self) -> None:
        while True:
            # A job of a node that lost its power finds that out when it touches a file.
            with suppress(PowerLost):
                if not self.jobs.run_one():
                    return

    def run(self, ms: int) -> None:
        for _ in range(0, ms, self.step_ms):
            self.step()

    def run_until(self, condition: Callable[[], bool], *, limit_ms: int = 20_000) -> None:
        for _ in range(0, limit_ms, self.step_ms):
            if condition():
                return
            self.step()
        assert condition(), f"not within {limit_ms} ms: {self.describe()}"

    # What tests ask and do.

    def active(self) -> int | None:
        """The node that is the active controller in the highest epoch."""
        found = [
            (node.leadership().epoch, node_id)
            for node_id, node in self.nodes.items()
            if self.is_active(node_id)
        ]
        return max(found)[1] if found else None

    def is_active(self, node_id: int) -> bool:
        return self.nodes[node_id].leadership().active

    def elect(self, *, limit_ms: int = 20_000) -> int:
        self.run_until(lambda: self.active() is not None, limit_ms=limit_ms)
        active = self.active()
        assert active is not None
        return active

    def followers(self) -> list[int]:
        return [node_id for node_id in self.nodes if node_id != self.active()]

    def propose(self, node_id: int, payload: bytes, *, ahead: int = 0) -> Attempt:
        """Propose on the node's current epoch, on the version that will be current after `ahead` more."""
        node = self.nodes[node_id]
        attempt = Attempt(payload)
        leadership = node.leadership()
        node.propose(leadership.epoch, leadership.version + ahead, payload, attempt.outcomes.append)
        return attempt

    def barrier(self, node_id: int) -> Attempt:
        attempt = Attempt(b"")
        self.nodes[node_id].barrier(attempt.outcomes.append)
        return attempt

    def commit(self, *payloads: bytes) -> int:
        """Propose one after the other on the active node and wait for each; returns that node."""
        active = self.elect()
        for payload in payloads:
            attempt = self.propose(active, payload)
            self.run_until(lambda attempt=attempt: attempt.outcome is not None)  # type: ignore[misc]
            assert type(attempt.outcome).__name__ == "Committed", attempt.outcome
        return active

    def agreed(self) -> bool:
        """Whether all running nodes have applied the same, and all there is."""
        states = [machine_state(self.machines[node_id]) for node_id in self.nodes]
        ends = {node.status().last_index for node in self.nodes.values()}
        applied = {node.status().applied_index for node in self.nodes.values()}
        return all(state == states[0] for state in states) and ends == applied and len(ends) == 1

    def term(self, node_id: int) -> int:
        return self.nodes[node_id].status().term

    def dropped(self, node_id: int) -> dict[str, int]:
        return dict(self.nodes[node_id].status().dropped)

    def describe(self) -> str:
        lines = [f"failures: {self.failures}"]
        lines += [str(node.status()) for node in self.nodes.values()]
        return "\n".join(lines)


def machine_state(machine: RecordingMachine) -> tuple[list[bytes], int, int]:
    return machine.payloads, machine.version, machine.epoch


def small_snapshots(
    settings: QuorumSettings = SETTINGS, *, entries: int = 20, keep: int = 5
) -> QuorumSettings:
    """Settings under which a few entries are enough for a snapshot, and a snapshot takes several chunks."""
    return replace(settings, snapshot_entries=entries, keep_entries=keep, snapshot_chunk_bytes=512)
