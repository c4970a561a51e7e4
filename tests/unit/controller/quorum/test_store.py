"""A controller's directory at the start: each crash point of snapshotting, and what cannot be made up for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.frames import HEADER_SIZE
from tailrace.cluster.controller.quorum.journal import Entry
from tailrace.cluster.controller.quorum.snapshots import (
    IncomingSnapshot,
    Snapshot,
    SnapshotInfo,
    encode_snapshot,
    snapshot_path,
    write_snapshot,
)
from tailrace.cluster.controller.quorum.store import Store, open_store
from tests.support.fault_files import FaultFiles, PowerLost

DIRECTORY = "/data/controller"


def opened(files: FaultFiles, *, keep_entries: int = 3) -> tuple[Store, Snapshot | None]:
    return open_store(
        files,
        DIRECTORY,
        node_id=1,
        voters=[1, 2, 3],
        rng=Random(1),
        keep_entries=keep_entries,
        keep_bytes=1 << 20,
    )


def filled(files: FaultFiles, last: int = 20, term: int = 2) -> Store:
    """A store whose log ends with entry `last`."""
    store, _ = opened(files)
    store.votes.set_term(term, None)
    for index in range(2, last + 1):
        store.journal.append(Entry(b"\x00%d" % index, index, term))
    store.journal.sync()
    return store


def info(index: int, term: int = 2) -> SnapshotInfo:
    return SnapshotInfo(index, term, index - 1, term, 0, 5)


def indexes(store: Store) -> tuple[int, int]:
    return store.journal.first_index, store.journal.last_index


@pytest.fixture
def files() -> FaultFiles:
    return FaultFiles(Random(7))


def test_directory_is_made_when_there_is_none(files: FaultFiles) -> None:
    store, snapshot = opened(files)
    assert (indexes(store), snapshot, store.votes.state.term) == ((1, 1), None, 0)
    store.close()
    assert opened(files.crash())[0].votes.state.voters == (1, 2, 3)


def test_directory_is_usable_when_the_power_went_at_any_step_of_its_making() -> None:
    reference = FaultFiles(Random(1))
    opened(reference)
    for step in range(1, reference.steps + 1):
        files = FaultFiles(Random(step))
        files.crash_after(step)
        with suppress(PowerLost):
            opened(files)
        for seed in range(6):
            assert indexes(opened(files.crash(Random(seed)))[0]) == (1, 1)


def test_directory_is_refused_when_it_is_in_use(files: FaultFiles) -> None:
    store, _ = opened(files)
    with pytest.raises(TailraceError, match="is locked"):
        opened(files)
    store.close()
    opened(files)[0].close()


def test_directory_stays_locked_when_closed_while_a_job_writes_into_it(files: FaultFiles) -> None:
    store, _ = opened(files)
    store.hold()
    store.close()
    with pytest.raises(TailraceError, match="is locked"):
        opened(files)
    store.release()
    opened(files)[0].close()


# The crash points of a snapshot that was made here.


def test_start_removes_what_is_unfinished_when_the_snapshot_was_not_renamed(files: FaultFiles) -> None:
    filled(files).close()
    for name in (snapshot_path(DIRECTORY, 15) + ".tmp", f"{DIRECTORY}/journal.tmp"):
        files.open(name, create=True).pwritev([b"half"], 0)
    store, snapshot = opened(files)
    assert (snapshot, indexes(store)) == (None, (1, 20))
    assert sorted(entry.name for entry in files.list(DIRECTORY)) == ["journal", "lock", "votes"]


def test_start_keeps_what_follows_and_trims_when_the_crash_came_before_the_trim(files: FaultFiles) -> None:
    store = filled(files)
    write_snapshot(files, DIRECTORY, info(15), b"state")
    store.close()
    store, snapshot = opened(files)
    assert snapshot == Snapshot(info(15), b"state")
    assert indexes(store) == (12, 20)


def test_start_finds_all_as_it_was_when_the_trim_was_done(files: FaultFiles) -> None:
    store = filled(files)
    write_snapshot(files, DIRECTORY, info(15), b"state")
    store.use_snapshot(info(15), keep_entries=3, keep_bytes=1 << 20)
    assert indexes(store) == (12, 20)
    store.close()
    before = files.read(f"{DIRECTORY}/journal")
    store, snapshot = opened(files)
    assert snapshot is not None
    assert indexes(store) == (12, 20)
    assert files.read(f"{DIRECTORY}/journal") == before


def test_start_takes_the_newest_and_removes_the_others_when_there_are_several(files: FaultFiles) -> None:
    store = filled(files)
    write_snapshot(files, DIRECTORY, info(8), b"older")
    write_snapshot(files, DIRECTORY, info(15), b"newer")
    store.close()
    _, snapshot = opened(files)
    assert snapshot is not None
    assert snapshot.state == b"newer"
    assert not files.exists(snapshot_path(DIRECTORY, 8))


# The crash points of a snapshot that came from a leader.


@pytest.mark.parametrize(("index", "term"), [(50, 4), (21, 2), (15, 4)])
def test_start_goes_on_after_the_snapshot_when_the_journal_was_not_replaced_yet(
    files: FaultFiles, index: int, term: int
) -> None:
    """The journal ends before the snapshot, or contradicts it."""
    filled(files).close()
    write_snapshot(files, DIRECTORY, info(index, term), b"state")
    store, snapshot = opened(files)
    assert snapshot is not None
    assert indexes(store) == (index, index)
    assert store.journal.last_term == term


def test_acknowledged_entries_survive_when_the_power_goes_at_any_step_of_a_snapshot() -> None:
    """Local and received snapshots, each with trimming or replacing; whatever step is struck."""

    def run(files: FaultFiles, reached: list[int]) -> None:
        store = filled(files)
        reached[:] = [20]
        write_snapshot(files, DIRECTORY, info(15), b"state")
        store.use_snapshot(info(15), keep_entries=3, keep_bytes=1 << 20)
        store.journal.append(Entry(b"\x00more", 21, 2))
        store.journal.sync()
        reached[:] = [21]
        data = encode_snapshot(info(40, 3), b"other")
        incoming = IncomingSnapshot(files, DIRECTORY, 40, 3, len(data))
        incoming.add(0, data[:30])
        incoming.add(30, data[30:])
        assert isinstance(incoming.finish(), Snapshot)
        reached[:] = [40]
        store.use_snapshot(info(40, 3), keep_entries=3, keep_bytes=1 << 20)
        store.journal.append(Entry(b"\x00after", 41, 3))
        store.journal.sync()
        reached[:] = [41]

    reference = FaultFiles(Random(1))
    run(reference, [])
    for step in range(1, reference.steps + 1):
        files = FaultFiles(Random(step))
        files.crash_after(step)
        reached: list[int] = []
        with suppress(PowerLost):
            run(files, reached)
        for seed in range(6):
            store, snapshot = opened(files.crash(Random(seed)))
            covered = 1 if snapshot is None else snapshot.info.last_index
            assert store.journal.first_index <= covered
            assert store.journal.last_index >= (reached[0] if reached else 1), (step, seed)


# What cannot be made up for.


def damage_journal(files: FaultFiles) -> None:
    files.flip_bit(f"{DIRECTORY}/journal", HEADER_SIZE + 40)


def damage_snapshot(files: FaultFiles) -> None:
    files.flip_bit(snapshot_path(DIRECTORY, 15), 50)


def shorten_snapshot(files: FaultFiles) -> None:
    with closing(files.open(snapshot_path(DIRECTORY, 15), write=True)) as file:
        file.truncate(40)


def rename_snapshot(files: FaultFiles) -> None:
    files.rename(snapshot_path(DIRECTORY, 15), snapshot_path(DIRECTORY, 16))


def lose_snapshot(files: FaultFiles) -> None:
    files.delete_file(snapshot_path(DIRECTORY, 15))


def go_back_to_an_old_snapshot(files: FaultFiles) -> None:
    lose_snapshot(files)
    write_snapshot(files, DIRECTORY, info(5), b"older")


def lose_journal(files: FaultFiles) -> None:
    files.delete_file(f"{DIRECTORY}/journal")


def lose_votes(files: FaultFiles) -> None:
    files.delete_file(f"{DIRECTORY}/votes")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (damage_journal, "/data/controller/journal is damaged at byte"),
        (damage_snapshot, "snapshot-00000000000000000015 is damaged: its checksum"),
        (shorten_snapshot, "snapshot-00000000000000000015 is damaged"),
        (rename_snapshot, "snapshot-00000000000000000016 is damaged: it holds the state after entry 15"),
        (lose_snapshot, "journal begins at 12, without snapshot"),
        (go_back_to_an_old_snapshot, "journal begins at 12, after"),
        (lose_journal, "journal is missing, but votes is there"),
        (lose_votes, "votes is missing, but there is a log"),
    ],
)
def test_start_is_refused_with_what_to_do_when_something_is_damaged_or_missing(
    files: FaultFiles, harm: Callable[[FaultFiles], None], says: str
) -> None:
    store = filled(files)
    write_snapshot(files, DIRECTORY, info(15), b"state")
    store.use_snapshot(info(15), keep_entries=3, keep_bytes=1 << 20)
    store.close()
    harm(files)
    with pytest.raises(TailraceError) as raised:
        opened(files)
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    assert says in str(raised.value)
    assert "start this one with an empty directory" in str(raised.value)
    assert files.open_handles == 0
    # Nothing was made worse: the same is said again.
    with pytest.raises(TailraceError):
        opened(files)


def test_few_entries_stay_when_they_are_large(files: FaultFiles) -> None:
    store = filled(files)
    store.journal.append(Entry(b"\x00" + bytes(2000), 21, 2))
    store.journal.append(Entry(b"\x00" + bytes(2000), 22, 2))
    store.journal.sync()
    write_snapshot(files, DIRECTORY, info(22), b"state")
    store.use_snapshot(info(22), keep_entries=10, keep_bytes=3000)
    # The first entry is only there to be compared with; one large entry follows it.
    assert indexes(store) == (21, 22)


def test_older_snapshot_is_not_used_when_a_newer_one_arrived_while_it_was_made(files: FaultFiles) -> None:
    store = filled(files)
    write_snapshot(files, DIRECTORY, info(40, 3), b"other")
    store.use_snapshot(info(40, 3), keep_entries=3, keep_bytes=1 << 20)
    write_snapshot(files, DIRECTORY, info(15), b"state")
    store.use_snapshot(info(15), keep_entries=3, keep_bytes=1 << 20)
    assert store.snapshot == info(40, 3)
    assert indexes(store) == (40, 40)
    assert not files.exists(snapshot_path(DIRECTORY, 15))


def test_incoming_snapshot_is_forgotten_when_its_bytes_are_not_what_was_announced(files: FaultFiles) -> None:
    opened(files)
    data = bytearray(encode_snapshot(info(40), b"other"))
    data[-1] ^= 1
    incoming = IncomingSnapshot(files, DIRECTORY, 40, 2, len(data))
    incoming.add(0, bytes(data[:10]))
    incoming.add(50, b"out of order")
    incoming.add(0, bytes(data[:10]))
    assert (incoming.received, incoming.complete) == (10, False)
    incoming.add(10, bytes(data[10:]))
    assert incoming.complete
    problem = incoming.finish()
    assert isinstance(problem, str)
    assert "checksum" in problem
    assert not any("snapshot" in entry.name for entry in files.list(DIRECTORY))
