"""Controllers' links for tests: what they report, certificates on disk, and a peer in another process."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from tailrace.cluster.controller.quorum.grpc_links import GrpcRaftLinks
from tailrace.cluster.rpc.certificates import Authority, KeyPair
from tailrace.cluster.rpc.link_streams import LinkSettings
from tailrace.cluster.rpc.tls import TlsSettings

DEADLINE_S = 60.0
LOOPBACK = "127.0.0.1"


class Seen(NamedTuple):
    kind: str
    peer_id: int
    data: bytes = b""


class Recorder:
    """Keeps what links report, in order. `gate` can hold messages back, as a busy Raft thread would."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self.gate = threading.Event()
        self.gate.set()

    def on_message(self, peer_id: int, data: bytes) -> None:
        self.gate.wait(DEADLINE_S)
        self._add(Seen("message", peer_id, data))

    def on_up(self, peer_id: int) -> None:
        self._add(Seen("up", peer_id))

    def on_down(self, peer_id: int) -> None:
        self._add(Seen("down", peer_id))

    def _add(self, seen: Seen) -> None:
        with self._changed:
            self._seen.append(seen)
            self._changed.notify_all()

    def history(self, peer_id: int) -> list[Seen]:
        with self._changed:
            return [one for one in self._seen if one.peer_id == peer_id]

    def messages(self, peer_id: int) -> list[bytes]:
        return [one.data for one in self.history(peer_id) if one.kind == "message"]

    def count(self, kind: str, peer_id: int) -> int:
        return sum(one.kind == kind for one in self.history(peer_id))

    def is_up(self, peer_id: int) -> bool:
        return self.count("up", peer_id) > self.count("down", peer_id)

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        with self._changed:
            while not holds():
                left = deadline - time.monotonic()
                assert left > 0, f"{what} did not happen; seen: {self._seen[-20:]}"
                self._changed.wait(min(left, 0.1))

    def wait_up(self, peer_id: int, times: int = 1) -> None:
        self.wait_for(
            f"link to {peer_id} up", lambda: self.count("up", peer_id) >= times and self.is_up(peer_id)
        )

    def wait_down(self, peer_id: int, times: int = 1) -> None:
        self.wait_for(f"link to {peer_id} down", lambda: self.count("down", peer_id) >= times)

    def wait_message(self, peer_id: int, data: bytes) -> None:
        self.wait_for(f"message {data[:20]!r}", lambda: data in self.messages(peer_id))


def poll(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


class Certificates:
    """An authority and what it issues, as files."""

    def __init__(self, directory: Path, authority: Authority | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.authority = authority if authority is not None else Authority.create(days=2)
        (directory / "ca.crt").write_bytes(self.authority.pair.certificate)

    @property
    def ca(self) -> bytes:
        return self.authority.pair.certificate

    def node(self, node_id: int) -> TlsSettings:
        return self.write(f"node-{node_id}", self.authority.issue_node(node_id, [LOOPBACK], days=1))

    def write(self, name: str, pair: KeyPair) -> TlsSettings:
        certificate, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return TlsSettings(
            cert_file=str(certificate), key_file=str(key), ca_file=str(self._directory / "ca.crt")
        )


class Node(NamedTuple):
    links: GrpcRaftLinks
    seen: Recorder


def make_links(
    node_id: int,
    voters: Mapping[int, str],
    *,
    listen: str = f"{LOOPBACK}:0",
    tls: TlsSettings | None = None,
    settings: LinkSettings | None = None,
    cluster_id: str = "",
) -> GrpcRaftLinks:
    return GrpcRaftLinks(
        node_id=node_id,
        voters=voters,
        listen=listen,
        tls=tls,
        settings=settings,
        cluster_id=lambda: cluster_id,
    )


@contextmanager
def running(*made: GrpcRaftLinks, voters: dict[int, str], ids: list[int]) -> Iterator[list[Node]]:
    """Starts links that know each other; `voters` gets the ports that they were given."""
    nodes = [Node(links, Recorder()) for links in made]
    try:
        for node_id, node in zip(ids, nodes, strict=True):
            voters[node_id] = f"{LOOPBACK}:{node.links.bind()}"
        for node in nodes:
            node.links.start(node.seen)
        yield nodes
    finally:
        for node in nodes:
            node.seen.gate.set()
            node.links.stop()


class PeerProcess:
    """Links of one node in a process of its own, which sends every message back to where it came from."""

    def __init__(
        self, node_id: int, ids: list[int], tls: TlsSettings | None = None, cluster_id: str = ""
    ) -> None:
        files = None if tls is None else [tls.cert_file, tls.key_file, tls.ca_file]
        config = json.dumps({"node_id": node_id, "ids": ids, "tls": files, "cluster_id": cluster_id})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.raft_peer", config],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, voters: Mapping[int, str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(voters)) + "\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) / 1024

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
