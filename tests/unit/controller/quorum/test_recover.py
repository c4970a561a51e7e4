"""Recovery from one surviving directory: all of it is kept, under a term above all that went before."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.journal import Journal
from tailrace.cluster.controller.quorum.recover import TERM_GAP, recover_directory
from tailrace.cluster.controller.quorum.settings import QuorumSettings
from tailrace.cluster.controller.quorum.votes import Phase, VoteState, read_votes
from tests.support.fault_files import FaultFiles, PowerLost
from tests.support.raft_cluster import DIRECTORY, SETTINGS, RaftCluster, small_snapshots

SOURCE = "/survivor"


def survivor(settings: QuorumSettings = SETTINGS, count: int = 50) -> tuple[FaultFiles, int]:
    """The disk of a follower of a quorum that has committed `count` entries, its directory as SOURCE."""
    cluster = RaftCluster(3, settings=settings)
    cluster.start()
    cluster.commit(*[b"%d" % number for number in range(count)])
    cluster.run_until(cluster.agreed)
    follower = cluster.followers()[0]
    cluster.cut_power(follower)
    files = cluster.files[follower]
    files.rename(DIRECTORY, SOURCE)
    return files, cluster.term(cluster.elect())


@pytest.mark.parametrize("settings", [SETTINGS, small_snapshots()])
@pytest.mark.parametrize("size", [1, 3])
def test_new_quorum_has_everything_when_made_from_one_directory(settings: QuorumSettings, size: int) -> None:
    files, term = survivor(settings)
    before = files.files_below(SOURCE)
    cluster = RaftCluster(size, settings=settings, seed=7)
    for node_id in cluster.voters:
        target = f"/new/{node_id}"
        recovered = recover_directory(files, SOURCE, target, node_id, rng=Random(1))
        assert (recovered.node_id, recovered.term) == (node_id, term + TERM_GAP)
        disk = cluster.files[node_id]
        disk.make_dirs(DIRECTORY)
        for path, content in files.files_below(target).items():
            disk.open(DIRECTORY + path.removeprefix(target), create=True).pwritev([content], 0)
    assert {path: data for path, data in files.files_below(SOURCE).items() if "lock" not in path} == {
        path: data for path, data in before.items() if "lock" not in path
    }
    cluster.start()
    cluster.commit(b"new")
    cluster.run_until(cluster.agreed)
    expected = [b"%d" % number for number in range(50)] + [b"new"]
    assert all(machine.payloads == expected for machine in cluster.machines.values())
    assert cluster.machines[1].epoch > term + TERM_GAP


def test_entries_are_kept_when_it_is_not_known_whether_they_were_committed() -> None:
    cluster = RaftCluster(3)
    cluster.start()
    leader = cluster.commit(b"a")
    cluster.run_until(cluster.agreed)
    cluster.network.isolate(leader, cluster.voters)
    cluster.propose(leader, b"b")
    cluster.run(50)
    cluster.kill(leader)
    files = cluster.files[leader]
    recover_directory(files, DIRECTORY, "/new", 9)
    assert Journal.read(files, "/new/journal") == Journal.read(files, f"{DIRECTORY}/journal")
    assert read_votes(files, "/new/votes") == VoteState(
        node_id=9, voters=None, term=1 + TERM_GAP, vote=None, phase=Phase.CAUGHT_UP
    )


def test_recovery_is_refused_when_the_target_is_not_empty() -> None:
    files, _ = survivor()
    files.make_dirs("/new")
    files.open("/new/something", create=True)
    with pytest.raises(TailraceError, match=r"/new is not empty.*Name another one") as raised:
        recover_directory(files, SOURCE, "/new", 1)
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    assert [entry.name for entry in files.list("/new")] == ["something"]


def test_recovery_fills_the_target_when_it_is_an_empty_directory() -> None:
    files, _ = survivor()
    files.make_dirs("/new")
    assert recover_directory(files, SOURCE, "/new", 1).last_index == 53


def test_recovery_is_refused_when_the_source_is_no_controllers_directory() -> None:
    files = FaultFiles(Random(1))
    with pytest.raises(TailraceError, match="/nothing is not the directory of a controller"):
        recover_directory(files, "/nothing", "/new", 1)
    assert not files.exists("/new")


def test_recovery_is_refused_when_the_source_is_in_use() -> None:
    files, _ = survivor()
    lock = files.lock(f"{SOURCE}/lock")
    with pytest.raises(TailraceError, match="is locked"):
        recover_directory(files, SOURCE, "/new", 1)
    lock.close()


@pytest.mark.parametrize("name", ["votes", "journal", "snapshot-"])
def test_recovery_is_refused_when_the_source_is_damaged(name: str) -> None:
    files, _ = survivor(small_snapshots())
    path = max(path for path in files.files_below(SOURCE) if name in path)
    files.flip_bit(path, 60)
    with pytest.raises(TailraceError) as raised:
        recover_directory(files, SOURCE, "/new", 1)
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    assert path in str(raised.value)
    assert not files.exists("/new")


def test_recovery_is_refused_when_entries_between_snapshot_and_journal_are_missing() -> None:
    files, _ = survivor(small_snapshots())
    for path in files.files_below(SOURCE):
        if "snapshot-" in path:
            files.delete_file(path)
    with pytest.raises(TailraceError, match="entries are missing"):
        recover_directory(files, SOURCE, "/new", 1)


def test_unfinished_target_is_refused_at_its_start_when_the_power_went_during_recovery() -> None:
    """It is whole, or it has no votes and does not start as if it were new."""
    reference, _ = survivor(small_snapshots())
    first = reference.steps
    recover_directory(reference, SOURCE, "/new", 1, rng=Random(1))
    for step in range(first + 1, reference.steps + 1):
        files, _ = survivor(small_snapshots())
        files.crash_after(step)
        with suppress(PowerLost):
            recover_directory(files, SOURCE, "/new", 1, rng=Random(1))
        found = files.crash(Random(step))
        if found.exists("/new/votes"):
            assert Journal.read(found, "/new/journal") == Journal.read(reference, "/new/journal")
