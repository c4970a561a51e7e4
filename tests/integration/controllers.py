"""Three controllers as processes, as `tailrace server` runs them, on ports that the system chose."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tailrace import Admin
from tailrace.clients.admin_types import QuorumDescription

T = TypeVar("T")
DEADLINE_SECONDS = 60


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def eventually(attempt: Callable[[], T | None], what: str) -> T:
    """What `attempt` gives, once it gives anything; errors on the way are part of what is waited for."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    last: Exception | None = None
    while time.monotonic() < deadline:
        try:
            found = attempt()
            if found is not None:
                return found
        except Exception as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {DEADLINE_SECONDS} s; the last error was {last!r}")


class Controllers:
    def __init__(self, directory: Path, count: int = 3) -> None:
        self.directory = directory
        ports = free_ports(2 * count)
        self.ports = dict(enumerate(ports[:count], start=1))
        self._raft_ports = dict(enumerate(ports[count:], start=1))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in self.ports:
            self._write_config(node_id)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def _write_config(self, node_id: int) -> None:
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, port in self._raft_ports.items())
        lines = [
            f"node.id = {node_id}",
            'process.roles = "controller"',
            f'listeners = "CONTROLLER://127.0.0.1:{self.ports[node_id]}"',
            f'controller.quorum.voters = "{voters}"',
            f'metadata.log.dir = "{self.metadata_directory(node_id)}"',
            "broker.session.timeout.ms = 2000",
            "broker.heartbeat.interval.ms = 300",
        ]
        (self.directory / f"node-{node_id}.toml").write_text("\n".join(lines) + "\n")

    def metadata_directory(self, node_id: int) -> Path:
        return self.directory / f"metadata-{node_id}"

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.ports:
            log = (self.directory / f"node-{node_id}.log").open("ab")
            command = [sys.executable, "-m", "tailrace", "server", "--config", f"node-{node_id}.toml"]
            with log:
                self.processes[node_id] = subprocess.Popen(
                    command, cwd=self.directory, stdout=log, stderr=log, env=os.environ | {"NO_COLOR": "1"}
                )

    def kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.processes[node_id].kill()
        for node_id in node_ids:
            self.processes.pop(node_id).wait()

    def terminate(self, node_id: int) -> int:
        process = self.processes.pop(node_id)
        process.send_signal(signal.SIGTERM)
        return process.wait(DEADLINE_SECONDS)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()

    def log_of(self, node_id: int) -> str:
        return (self.directory / f"node-{node_id}.log").read_text()

    def quorum(self, node_id: int) -> QuorumDescription:
        """As this controller itself sees it."""
        with Admin(
            bootstrap_controllers=f"127.0.0.1:{self.ports[node_id]}", request_timeout_ms=5_000
        ) as admin:
            return admin.describe_quorum()

    def leader(self) -> int:
        """The active controller, once there is one that answers."""

        def find() -> int | None:
            with Admin(bootstrap_controllers=self.bootstrap, request_timeout_ms=5_000) as admin:
                found = admin.describe_cluster().controller_id
                return found if found in self.processes else None

        return eventually(find, "an election")


@contextlib.contextmanager
def controllers(directory: Path, count: int = 3) -> Iterator[Controllers]:
    cluster = Controllers(directory, count)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
