"""A controller quorum of real processes that tests kill, pause and start again.

`QuorumCluster` is a context manager: whatever happens, its processes are killed at the end. Every wait has
a deadline, and a wait that fails says what the nodes were like. `Book` collects the outcomes that the nodes
tell; `quorum_kills.judge` compares it with what they have applied.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

DEADLINE_S = 60.0
LOOPBACK = "127.0.0.1"
# Below the ports that the system gives to outgoing connections, so that nobody takes the port of a node
# while it is down.
_PORTS = range(20_000, 30_000)

Settings = Mapping[str, int]
EntryId = tuple[int, int]
"""Generation and serial."""

FAST_SETTINGS: Settings = {
    "heartbeat_ms": 50,
    "election_min_ms": 400,
    "election_max_ms": 800,
    "leader_fallback_ms": 350,
    "snapshot_entries": 150,
    "keep_entries": 20,
}
"""Failover within a second, and snapshots all the time, some of which lagging nodes need."""


@dataclass
class Book:
    """What became of the proposals, as far as the nodes have told."""

    committed: dict[EntryId, int] = field(default_factory=dict)
    """With the version that the node named."""
    refused: set[EntryId] = field(default_factory=set)
    unknown: set[EntryId] = field(default_factory=set)
    answered_twice: list[EntryId] = field(default_factory=list)

    def enter(self, outcome: str, generation: int, serial: int, detail: Any) -> None:
        entry = (generation, serial)
        if entry in self.committed or entry in self.refused or entry in self.unknown:
            self.answered_twice.append(entry)
        match outcome:
            case "committed":
                self.committed[entry] = detail
            case "refused":
                self.refused.add(entry)
            case _:
                self.unknown.add(entry)


class NodeProcess:
    """One life of a node, from its start to its end."""

    def __init__(self, config: Mapping[str, Any], log: Path, enter: Callable[..., None]) -> None:
        self.generation: int = config["generation"]
        self.failure = ""
        self.started = False
        self.paused = False
        self._enter = enter
        self._replies: SimpleQueue[Any] = SimpleQueue()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.quorum_node", json.dumps(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=Path(__file__).resolve().parents[2],
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, *command: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def reply(self) -> Any:
        """The next answer; replies come in the order of the commands."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with suppress(Empty):
                return self._replies.get(timeout=0.2)
            assert self.alive, f"the node has ended with status {self._process.returncode}: {self.failure}"
            assert time.monotonic() < deadline, "the node does not answer"

    def ask(self, *command: object) -> Any:
        self.send(*command)
        return self.reply()

    def strike(self) -> None:
        """Like kill -9; it may take a moment until the process is gone."""
        self._process.kill()

    def kill(self) -> None:
        """Like kill -9. The process is gone, and what it had told is in the book, when this returns."""
        self.strike()
        self.wait_end()

    def pause(self) -> None:
        self.paused = True
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.paused = False

    def wait_end(self) -> int:
        status = self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        return status

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                kind, *rest = json.loads(line)
                match kind:
                    case "started":
                        self.started = True
                    case "reply":
                        self._replies.put(rest[0])
                    case "failed":
                        self.failure = rest[0]
                    case _:
                        self._enter(kind, *rest)


class QuorumCluster:
    def __init__(self, directory: Path, *, size: int = 3, settings: Settings = FAST_SETTINGS) -> None:
        self._directory = directory
        self._settings = dict(settings)
        self._addresses = dict(enumerate((f"{LOOPBACK}:{port}" for port in _free_ports(size)), start=1))
        self._nodes: dict[int, NodeProcess] = {}
        self._generation = 0
        self._lock = threading.Lock()
        self.book = Book()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for node in self._nodes.values():
                stack.callback(node.kill)

    # Lives of nodes.

    @property
    def ids(self) -> list[int]:
        return list(self._addresses)

    @property
    def generations(self) -> int:
        """How many lives of nodes there were."""
        return self._generation

    def node(self, node_id: int) -> NodeProcess:
        return self._nodes[node_id]

    def directory_of(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}"

    def log_of(self, node_id: int) -> str:
        return self._log_path(node_id).read_text(errors="replace")

    def start(self, *node_ids: int) -> None:
        """Starts these nodes, or all, and waits until they take part."""
        for node_id in node_ids or self.ids:
            self._launch(node_id)
        for node_id in node_ids or self.ids:
            assert self._starts(node_id), f"node {node_id} did not start: {self._nodes[node_id].failure}"

    def start_refused(self, node_id: int) -> str:
        """Starts a node that will not: what it says."""
        node = self._launch(node_id)
        assert not self._starts(node_id), f"node {node_id} started; its log: {self.log_of(node_id)}"
        assert node.wait_end() == 1
        return node.failure

    def _starts(self, node_id: int) -> bool:
        """Waits until it has started, or ended instead."""
        node = self._nodes[node_id]
        deadline = time.monotonic() + DEADLINE_S
        while node.alive and not node.started:
            assert time.monotonic() < deadline, f"node {node_id} neither starts nor ends"
            time.sleep(0.01)
        return node.started

    def kill(self, *node_ids: int) -> None:
        """All of them at once, as far as that is possible."""
        for node_id in node_ids:
            self._nodes[node_id].strike()
        for node_id in node_ids:
            self._nodes[node_id].kill()

    def _launch(self, node_id: int) -> NodeProcess:
        self._generation += 1
        config = {
            "node_id": node_id,
            "voters": self._addresses,
            "directory": str(self.directory_of(node_id)),
            "settings": self._settings,
            "generation": self._generation,
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        self._nodes[node_id] = node = NodeProcess(config, self._log_path(node_id), self._enter)
        return node

    def _log_path(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}.log"

    def _enter(self, outcome: str, generation: int, serial: int, detail: Any) -> None:
        with self._lock:
            self.book.enter(outcome, generation, serial, detail)

    # What they are like.

    def running(self) -> list[int]:
        return [node_id for node_id, node in self._nodes.items() if node.alive and not node.paused]

    def status(self, node_id: int) -> dict[str, Any]:
        return dict(self._nodes[node_id].ask("status"))

    def acknowledged(self) -> int:
        return len(self.book.committed)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() >= deadline:
                states = {node_id: self.status(node_id) for node_id in self.running()}
                raise AssertionError(f"{what} did not happen; the nodes: {states}")
            time.sleep(0.01)

    def wait_acknowledged(self, more: int) -> None:
        """Until so many more proposals are committed, whoever leads."""
        goal = self.acknowledged() + more
        self.wait(f"{more} more acknowledged entries", lambda: self.acknowledged() >= goal)

    def wait_leader(self, *, epoch_above: int = 0) -> int:
        """The node that is active, among those that run."""
        found: list[int] = []

        def is_there() -> bool:
            for node_id in self.running():
                status = self.status(node_id)
                if status["active"] and status["epoch"] > epoch_above:
                    found.append(node_id)
            return bool(found)

        self.wait(f"an active controller of an epoch above {epoch_above}", is_there)
        return found[0]

    # Load.

    def hose(self, width: int, node_ids: Iterable[int] = ()) -> None:
        """Keep so many proposals on their way at whichever of these nodes (or all) is active; 0 stops it."""
        for node_id in node_ids or self.running():
            self._nodes[node_id].ask("hose", width)

    def settle(self) -> None:
        """Stop the load and wait until everything is answered, and applied on every node."""
        assert self.running() == sorted(self.ids), f"of {self.ids} only {self.running()} run"
        self.hose(0)
        self.wait("every proposal answered", lambda: not any(s["in_flight"] for s in self._statuses()))
        self.wait("a barrier", lambda: self._nodes[self.wait_leader()].ask("barrier") is not None)

        def are_level() -> bool:
            statuses = self._statuses()
            reached = {(s["version"], s["epoch"], s["applied_index"], s["last_index"]) for s in statuses}
            return len(reached) == 1 and statuses[0]["applied_index"] == statuses[0]["last_index"]

        self.wait("every node at the same entry", are_level)

    def histories(self) -> dict[int, bytes]:
        """What each node has applied; see `quorum_node.RECORD`."""
        found = {}
        for node_id in self.ids:
            path = self._directory / f"history-{node_id}"
            self._nodes[node_id].ask("dump", str(path))
            found[node_id] = path.read_bytes()
        return found

    def problems(self) -> list[str]:
        """What the state machines noticed."""
        return [f"node {s['node_id']}: {problem}" for s in self._statuses() for problem in s["problems"]]

    def _statuses(self) -> list[dict[str, Any]]:
        return [self.status(node_id) for node_id in self.ids]


def _free_ports(count: int) -> list[int]:
    """Chosen at random, so that clusters of tests that run at the same time hardly ever choose alike."""
    with ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            taken = held.enter_context(socket.socket())
            with suppress(OSError):
                port = random.choice(_PORTS)
                taken.bind((LOOPBACK, port))
                ports.append(port)
        return ports
