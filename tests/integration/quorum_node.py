"""A process with one controller of a quorum: real files, real links, and a history of all that was applied.

Started by `quorum_cluster` with its configuration as the argument. It reads one JSON list a line from its
standard input, and ends with it. What it writes, one JSON list a line:

    ["committed", generation, serial, version]     outcomes of its proposals, each id proposed once;
    ["refused", generation, serial, code]          written by the Raft thread itself, so that a process that
    ["unknown", generation, serial, reason]        is killed has told of all that it acknowledged
    ["started"]                                    the node takes part, and commands are read
    ["reply", value]                               the answer to a command, in the order of the commands
    ["failed", message]                            the node cannot start or go on; the process ends

A generation is one life of one process, so the ids of a node that was killed are never used again.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.controller.quorum.grpc_links import GrpcRaftLinks
from tailrace.cluster.controller.quorum.links import LinkEvents, RaftLinks
from tailrace.cluster.controller.quorum.machine import AppliedEntry, EntryKind, StateMachine
from tailrace.cluster.controller.quorum.messages import PreVoteRequest, encode
from tailrace.cluster.controller.quorum.outcomes import Committed, Outcome, Refused, Unknown, Voter
from tailrace.cluster.controller.quorum.quorum import Quorum
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.runtime.logs import configure_logs
from tailrace.cluster.storage.files import OsFiles

RECORD = struct.Struct("<IIII")
"""What a history keeps of an entry: epoch, log index, generation, serial. Claims have generation 0."""
_ID = struct.Struct("<II")
_PRE_VOTE_KIND = encode(PreVoteRequest(0, 0, 0, 0))[0]
_PUMP_SECONDS = 0.02
_STRAY_EVERY = 20


def make_payload(generation: int, serial: int) -> bytes:
    """Of varying length, and all of it follows from the id, so that a wrong byte is noticed."""
    head = _ID.pack(generation, serial)
    return head + hashlib.sha256(head).hexdigest().encode() * (1 + serial % 3)


class History(StateMachine):
    """Keeps a record of every applied entry. What cannot be is noted and told, rather than raised."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._version = 0
        self._epoch = 0
        self._index = 0
        self.problems: list[str] = []

    def apply(self, entry: AppliedEntry) -> None:
        if entry.index <= self._index:
            self.problems.append(f"{entry} came after index {self._index}")
        if entry.kind is EntryKind.CLAIM:
            generation, serial = 0, 0
            expected = entry.version == self._version and entry.epoch > self._epoch
        else:
            generation, serial = _ID.unpack_from(entry.payload)
            expected = entry.version == self._version + 1 and entry.epoch == self._epoch
            if entry.payload != make_payload(generation, serial):
                self.problems.append(f"the payload of {entry} is not what was proposed")
        if not expected:
            self.problems.append(f"{entry} cannot follow version {self._version} of epoch {self._epoch}")
        self._version, self._epoch, self._index = entry.version, entry.epoch, entry.index
        self._records += RECORD.pack(entry.epoch, entry.index, generation, serial)

    def snapshot(self) -> Callable[[], bytes]:
        frozen = bytes(self._records)
        return lambda: frozen

    def load(self, state: bytes, version: int, epoch: int) -> None:
        self._records = bytearray(state)
        self._version, self._epoch = version, epoch
        self._index = RECORD.unpack_from(state, len(state) - RECORD.size)[1] if state else 0
        proposals = sum(1 for record in RECORD.iter_unpack(state) if record[2])
        if proposals != version:
            self.problems.append(f"a snapshot of version {version} holds {proposals} proposals")

    @property
    def records(self) -> bytes:
        return bytes(self._records)


class CuttableLinks(RaftLinks):
    """Links that lose what is sent to some peers, unnoticed; they count the questions before elections."""

    def __init__(self, links: RaftLinks) -> None:
        self._links = links
        self.cut: frozenset[int] = frozenset()
        self.pre_votes_asked = 0

    def start(self, events: LinkEvents) -> None:
        self._links.start(events)

    def send(self, peer_id: int, data: bytes) -> bool:
        if data[0] == _PRE_VOTE_KIND:
            self.pre_votes_asked += 1
        return peer_id in self.cut or self._links.send(peer_id, data)

    def stop(self) -> None:
        self._links.stop()


class Hose:
    """Keeps a number of proposals on their way while this node is active, each on the version of the one
    before. When one falls out, those after it do too; then it begins anew with other ids.

    Now and then a stray goes along: a proposal on a version that the one before it uses up. It gets into the
    log like any other, and every node has to refuse it there."""

    def __init__(self, quorum: Quorum, generation: int) -> None:
        self._quorum = quorum
        self._generation = generation
        self._serial = 0
        self._lock = threading.RLock()
        self._width = 0
        self._broken = True
        self._epoch = 0
        self._base = 0
        self.in_flight = 0

    def set_width(self, width: int) -> None:
        with self._lock:
            self._width = width

    def pump(self) -> None:
        """Called now and then; whatever was committed is followed by the next proposal at once."""
        with self._lock:
            leadership = self._quorum.leadership()
            if self._broken and not self.in_flight and leadership.active:
                self._epoch, self._base = leadership.epoch, leadership.version
                self._broken = False
            self._fill()

    def burst(self, count: int, epoch: int, base_version: int) -> tuple[int, int]:
        """Proposals beside the hose, whatever this node knows of the epoch: the first and last serial."""
        with self._lock:
            first = self._serial + 1
            for version in range(base_version, base_version + count):
                self._propose(epoch, version)
            return first, self._serial

    def _fill(self) -> None:
        while not self._broken and self.in_flight < self._width:
            self._propose(self._epoch, self._base)
            if self._serial % _STRAY_EVERY == 0:
                self._propose(self._epoch, self._base, stray=True)
            self._base += 1

    def _propose(self, epoch: int, base_version: int, *, stray: bool = False) -> None:
        self._serial += 1
        self.in_flight += 1
        serial = self._serial
        payload = make_payload(self._generation, serial)
        self._quorum.propose(epoch, base_version, payload, lambda outcome: self._done(serial, outcome, stray))

    def _done(self, serial: int, outcome: Outcome, stray: bool) -> None:
        match outcome:
            case Committed(version):
                tell("committed", self._generation, serial, version)
            case Refused(code, _):
                tell("refused", self._generation, serial, code.name)
            case Unknown(message):
                tell("unknown", self._generation, serial, message)
        with self._lock:
            self.in_flight -= 1
            if not isinstance(outcome, Committed) and not stray:
                self._broken = True
            self._fill()


def tell(*what: object) -> None:
    """One short write, which a pipe takes as a whole or not at all, also when the process is killed."""
    os.write(1, json.dumps(what).encode() + b"\n")


def fail(error: TailraceError) -> NoReturn:
    tell("failed", str(error))
    os._exit(1)


class Commands:
    """What the process does on demand; each method is a command and returns the reply."""

    def __init__(self, quorum: Quorum, links: CuttableLinks, history: History, hose: Hose) -> None:
        self._quorum = quorum
        self._links = links
        self._history = history
        self._hose = hose

    def hose(self, width: int) -> None:
        self._hose.set_width(width)

    def burst(self, count: int, epoch: int, base_version: int) -> tuple[int, int]:
        return self._hose.burst(count, epoch, base_version)

    def barrier(self) -> int | None:
        """The version, or None if this node does not lead."""
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._quorum.barrier(outcomes.put)
        outcome = outcomes.get()
        return outcome.version if isinstance(outcome, Committed) else None

    def cut(self, *peers: int) -> None:
        self._links.cut = frozenset(peers)

    def dump(self, path: str) -> str:
        """Writes the history to a file; its digest."""
        records = self._history.records
        Path(path).write_bytes(records)
        return hashlib.sha256(records).hexdigest()

    def status(self) -> dict[str, Any]:
        return asdict(self._quorum.status()) | {
            "in_flight": self._hose.in_flight,
            "problems": self._history.problems,
            "pre_votes_asked": self._links.pre_votes_asked,
        }


def main() -> None:
    config = json.loads(sys.argv[1])
    configure_logs("info", "text")
    voters = {int(node_id): address for node_id, address in config["voters"].items()}
    node_id = config["node_id"]
    links = CuttableLinks(GrpcRaftLinks(node_id=node_id, voters=voters, listen=voters[node_id]))
    history = History()
    hosts = {voter: address.rsplit(":", 1) for voter, address in voters.items()}
    quorum = Quorum(
        node_id=node_id,
        voters=[Voter(node_id=voter, host=host, port=int(port)) for voter, (host, port) in hosts.items()],
        directory=config["directory"],
        files=OsFiles(),
        machine=history,
        links=links,
        settings=QuorumSettings(**config["settings"]),
        on_leadership=lambda leadership: None,
        on_failure=fail,
    )
    try:
        quorum.start()
    except TailraceError as error:
        fail(error)
    hose = Hose(quorum, config["generation"])
    commands = Commands(quorum, links, history, hose)
    ended = threading.Event()

    def pump() -> None:
        while not ended.wait(_PUMP_SECONDS):
            hose.pump()

    pumping = threading.Thread(target=pump)
    pumping.start()
    tell("started")
    try:
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            tell("reply", getattr(commands, name)(*arguments))
    finally:
        ended.set()
        pumping.join()
        quorum.stop()


if __name__ == "__main__":
    main()
