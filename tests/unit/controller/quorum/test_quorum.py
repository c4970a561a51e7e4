"""The quorum on threads and real files: starting, stopping, handing over, and failing."""

from __future__ import annotations

import errno
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.links import LinkEvents
from tailrace.cluster.controller.quorum.machine import AppliedEntry
from tailrace.cluster.controller.quorum.quorum import (
    Committed,
    Leadership,
    Outcome,
    Quorum,
    QuorumSettings,
    Refused,
    Unknown,
    Voter,
)
from tailrace.cluster.storage.files import Files, OsFiles
from tests.support.fault_files import FaultFiles
from tests.support.raft_cluster import DirectLinks, RecordingMachine

ROOT = Path(__file__).resolve().parents[4]
# Generous, because the machine may be busy: nothing here waits for a time to pass.
DEADLINE_S = 60.0
SETTINGS = QuorumSettings(heartbeat_ms=20, election_min_ms=200, election_max_ms=400, leader_fallback_ms=200)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        threading.Event().wait(0.002)


class Group:
    """Quorums of one cluster, in this process."""

    def __init__(self, size: int, directory: Path, settings: QuorumSettings = SETTINGS) -> None:
        self.voters = [Voter(node_id=number, host="localhost", port=number) for number in range(1, size + 1)]
        self.directory = directory
        self.settings = settings
        self.files: dict[int, Files] = {voter.node_id: OsFiles() for voter in self.voters}
        self.hub: dict[int, LinkEvents] = {}
        self.lock = threading.Lock()
        self.quorums: dict[int, Quorum] = {}
        self.machines: dict[int, RecordingMachine] = {}
        self.failures: list[TailraceError] = []
        self.leaderships: list[tuple[int, Leadership]] = []

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or [voter.node_id for voter in self.voters]:
            self.machines[node_id] = RecordingMachine()
            self.quorums[node_id] = self.make(node_id)
            self.quorums[node_id].start()

    def make(self, node_id: int) -> Quorum:
        return Quorum(
            node_id=node_id,
            voters=self.voters,
            directory=str(self.directory / str(node_id)),
            files=self.files[node_id],
            machine=self.machines[node_id],
            links=DirectLinks(self.hub, self.lock, node_id),
            settings=self.settings,
            on_leadership=lambda leadership: self.leaderships.append((node_id, leadership)),
            on_failure=self.failures.append,
        )

    def active(self) -> Quorum | None:
        return next((one for one in self.quorums.values() if one.leadership().active), None)

    def commit(self, payload: bytes) -> Quorum:
        """Propose until it is committed, once: on a busy machine leadership may be lost on the way."""
        committed: list[Quorum] = []

        def attempt() -> bool:
            active = self.active()
            if active is None or not isinstance(answer(active.barrier), Committed):
                return False
            leadership = active.leadership()
            if payload in self.machines[active.status().node_id].payloads:
                committed.append(active)
                return True
            outcome = answer(lambda done: active.propose(leadership.epoch, leadership.version, payload, done))
            if isinstance(outcome, Committed):
                wait_until(lambda: active.leadership().version >= outcome.version)
                committed.append(active)
            return bool(committed)

        wait_until(attempt)
        return committed[0]

    def stop(self) -> None:
        for quorum in self.quorums.values():
            quorum.stop()


def answer(ask: Callable[[Callable[[Outcome], None]], None]) -> Outcome:
    told = threading.Event()
    outcomes: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        outcomes.append(outcome)
        told.set()

    ask(done)
    assert told.wait(DEADLINE_S)
    return outcomes[0]


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(size: int = 3, **settings: int) -> Group:
        made.append(Group(size, tmp_path, replace(SETTINGS, **settings)))
        return made[-1]

    yield make
    for group in made:
        group.stop()


@pytest.mark.parametrize("size", [1, 3])
def test_quorum_commits_and_keeps_it_when_stopped_and_started(
    groups: Callable[..., Group], size: int
) -> None:
    group = groups(size)
    group.start()
    payloads = [b"%d" % number for number in range(20)]
    for payload in payloads:
        group.commit(payload)
    group.stop()
    group.start()
    group.commit(b"after")
    wait_until(lambda: all(machine.version == 21 for machine in group.machines.values()))
    assert all(machine.payloads == [*payloads, b"after"] for machine in group.machines.values())
    assert group.failures == []


def test_barrier_shows_what_was_committed_before_when_it_is_answered(groups: Callable[..., Group]) -> None:
    group = groups()
    group.start()
    active = group.commit(b"a")
    outcome = answer(active.barrier)
    if isinstance(outcome, Committed):  # It leads still, if the machine is not too busy.
        assert outcome == Committed(1)


def test_leadership_is_handed_over_when_the_leader_stops(groups: Callable[..., Group]) -> None:
    group = groups(hand_over_ms=30_000, stop_timeout_ms=40_000)
    group.start()
    active = group.commit(b"a")
    term = active.status().term
    active.stop()
    # It has voted for its successor before it ended, and did not just wait in vain.
    assert active.status().term > term
    group.quorums = {node_id: quorum for node_id, quorum in group.quorums.items() if quorum is not active}
    group.commit(b"b")
    group.quorums[active.status().node_id] = active


def test_proposals_are_refused_at_once_when_the_quorum_does_not_run(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.machines[1] = RecordingMachine()
    quorum = group.make(1)
    assert quorum.leadership() == Leadership(None, 0, False, 0)
    for ask in (lambda done: quorum.propose(1, 0, b"x", done), quorum.barrier):
        outcome = answer(ask)
        assert isinstance(outcome, Refused)
        assert outcome.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(RuntimeError, match="not started"):
        quorum.status()
    group.start()
    group.commit(b"a")
    group.stop()
    stopped = group.quorums[1]
    for ask in (lambda done: stopped.propose(1, 0, b"x", done), stopped.barrier):
        assert isinstance(answer(ask), Refused)
    assert stopped.status().version == 1


def test_every_proposal_is_answered_once_when_threads_race_with_the_stop(
    groups: Callable[..., Group],
) -> None:
    group = groups(1)
    group.start()
    active = group.commit(b"first")
    counts = [0] * 400
    begun = threading.Barrier(5)

    def propose(start: int) -> None:
        begun.wait()
        for number in range(start, start + 100):

            def done(outcome: Outcome, number: int = number) -> None:
                counts[number] += 1

            active.propose(active.leadership().epoch, 1, b"x", done)

    threads = [threading.Thread(target=propose, args=(start,)) for start in range(0, 400, 100)]
    for thread in threads:
        thread.start()
    begun.wait()
    active.stop()
    for thread in threads:
        thread.join()
    assert counts == [1] * 400


def test_stop_is_harmless_when_repeated_or_called_before_the_start(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.machines[1] = RecordingMachine()
    group.make(1).stop()
    group.start()
    group.stop()
    group.stop()
    with pytest.raises(RuntimeError, match="started before"):
        group.quorums[1].start()


def test_stop_does_not_wait_for_itself_when_called_from_a_callback(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.start()
    active = group.commit(b"a")
    ended = threading.Event()

    def done(outcome: Outcome) -> None:
        active.stop()
        ended.set()

    active.barrier(done)
    assert ended.wait(DEADLINE_S)
    active.stop()


# Failures.


def test_start_raises_when_the_directory_is_damaged(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.start()
    group.commit(b"a")
    group.stop()
    votes = group.directory / "1" / "votes"
    votes.write_bytes(votes.read_bytes().replace(b"caught_up", b"caught_Up"))
    with pytest.raises(TailraceError, match="votes is damaged"):
        group.start()
    group.quorums.clear()


def test_directory_is_free_when_the_links_cannot_start(groups: Callable[..., Group]) -> None:
    group = groups(1)

    class Unbound(DirectLinks):
        def start(self, events: LinkEvents) -> None:
            raise OSError(errno.EADDRINUSE, "the port is in use")

    group.machines[1] = RecordingMachine()
    quorum = group.make(1)
    quorum._links = Unbound(group.hub, group.lock, 1)
    with pytest.raises(OSError, match="the port is in use"):
        quorum.start()
    quorum.stop()
    group.start()
    group.commit(b"a")


def test_caller_gets_the_error_when_a_proposal_cannot_be_encoded(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.start()
    active = group.commit(b"a")
    with pytest.raises(struct.error):
        active.propose(active.leadership().epoch, 2**70, b"x", lambda outcome: None)
    group.commit(b"b")
    assert group.failures == []


def test_start_is_refused_when_the_voters_do_not_name_the_node(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.files[2], group.machines[2] = OsFiles(), RecordingMachine()
    with pytest.raises(TailraceError, match=r"names \[1\].*this one, 2"):
        group.make(2).start()


@pytest.mark.parametrize("call", ["write", "datasync"])
def test_node_stops_and_says_so_when_the_disk_fails(groups: Callable[..., Group], call: str) -> None:
    group = groups(1)
    files = FaultFiles(Random(1))
    group.files[1] = files
    group.directory = Path("/controllers")
    group.start()
    active = group.commit(b"a")
    files.fail(errno.EIO, lambda made, path: made == call and path.endswith("journal"), times=None)
    leadership = active.leadership()
    outcome = answer(lambda done: active.propose(leadership.epoch, leadership.version, b"b", done))
    assert isinstance(outcome, Unknown)
    wait_until(lambda: bool(group.failures))
    [failure] = group.failures
    assert failure.code is ErrorCode.STORAGE_ERROR
    assert "journal" in str(failure)
    assert isinstance(answer(active.barrier), Refused)
    active.stop()
    assert not active.leadership().active
    assert not active.status().active
    assert [leadership.active for _, leadership in group.leaderships][-2:] == [True, False]
    assert 1 not in group.hub
    assert files.open_handles == 0
    assert len(group.failures) == 1


def test_node_stops_and_says_so_when_the_machine_raises(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.start()
    active = group.commit(b"a")

    def explode(entry: AppliedEntry) -> None:
        raise ValueError("no such topic")

    group.machines[1].apply = explode  # type: ignore[method-assign]
    leadership = active.leadership()
    assert isinstance(answer(lambda done: active.propose(leadership.epoch, 1, b"b", done)), Unknown)
    wait_until(lambda: bool(group.failures))
    [failure] = group.failures
    assert failure.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ValueError: no such topic" in str(failure)


def test_node_goes_on_when_callbacks_raise(groups: Callable[..., Group]) -> None:
    group = groups(1)
    group.machines[1] = RecordingMachine()
    quorum = group.make(1)
    called: list[Leadership] = []

    def raising(leadership: Leadership) -> None:
        called.append(leadership)
        raise RuntimeError("the callback is broken")

    quorum._on_leadership = raising
    group.quorums[1] = quorum
    quorum.start()
    group.commit(b"a")
    assert called
    assert group.failures == []


def test_watchdog_reports_a_failure_when_a_tick_stands_still(groups: Callable[..., Group]) -> None:
    group = groups(1, slow_tick_ms=20, stuck_tick_ms=60)
    files = FaultFiles(Random(1))
    group.files[1] = files
    group.directory = Path("/controllers")
    group.start()
    active = group.commit(b"a")
    released = threading.Event()

    def hang(path: str) -> None:
        released.wait(DEADLINE_S)

    files.before_sync = hang
    try:
        leadership = active.leadership()
        active.propose(leadership.epoch, leadership.version, b"b", lambda outcome: None)
        wait_until(lambda: bool(group.failures))
        assert "has stood still" in str(group.failures[0])
    finally:
        released.set()
    # It does not come back when the disk does.
    wait_until(lambda: 1 not in group.hub)
    wait_until(lambda: not active.leadership().active)
    active.stop()
    assert len(group.failures) == 1


def test_failing_links_are_a_failure_when_they_raise_in_a_tick(groups: Callable[..., Group]) -> None:
    group = groups(3)

    class Raising(DirectLinks):
        def send(self, peer_id: int, data: bytes) -> bool:
            raise RuntimeError("no network")

    group.machines[1] = RecordingMachine()
    quorum = group.make(1)
    quorum._links = Raising(group.hub, group.lock, 1)
    group.quorums[1] = quorum
    quorum.start()
    wait_until(lambda: bool(group.failures))
    assert "RuntimeError: no network" in str(group.failures[0])


def test_program_ends_when_it_forgets_to_stop_the_quorum(tmp_path: Path) -> None:
    code = f"""
import threading
from pathlib import Path
from tests.unit.controller.quorum.test_quorum import Group
group = Group(1, Path({str(tmp_path)!r}))
group.start()
group.commit(b"a")
raise SystemExit(3)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=DEADLINE_S, check=False)
    assert done.returncode == 3
