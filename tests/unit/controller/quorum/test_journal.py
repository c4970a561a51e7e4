"""The journal: what was synced survives, torn tails are cut, and damage stops the start with what to do."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.frames import HEADER_SIZE, SALT_BYTES, frame_size
from tailrace.cluster.controller.quorum.journal import FIRST_ENTRY, Entry, Journal
from tests.support.fault_files import FaultFiles, PowerLost

PATH = "/journal"
SALT = bytes(range(SALT_BYTES))


def entry(index: int, term: int = 1, command: bytes = b"") -> Entry:
    return Entry(command or b"\x00command %d" % index, index, term)


def entries_of(journal: Journal) -> list[Entry]:
    found = journal[:]
    assert isinstance(found, list)
    return found


def new_journal(files: FaultFiles, *entries: Entry) -> Journal:
    journal = Journal.create(files, PATH, [FIRST_ENTRY], SALT)
    for one in entries:
        journal.append(one)
    journal.sync()
    return journal


def reopened(files: FaultFiles) -> list[Entry]:
    journal = Journal.open(files, PATH)
    try:
        return entries_of(journal)
    finally:
        journal.close()


@pytest.fixture
def files() -> FaultFiles:
    return FaultFiles(Random(5))


def test_journal_holds_its_entries_when_opened_again(files: FaultFiles) -> None:
    added = [entry(index, term=index // 3, command=bytes(index) + b"!") for index in range(2, 40)]
    new_journal(files, *added).close()
    assert reopened(files) == [FIRST_ENTRY, *added]
    assert Journal.read(files, PATH) == [FIRST_ENTRY, *added]


def test_sync_costs_one_datasync_when_many_entries_were_added(files: FaultFiles) -> None:
    journal = new_journal(files)
    before = files.datasyncs[PATH]
    for index in range(2, 102):
        journal.append(entry(index))
    assert not journal.durable
    journal.sync()
    journal.sync()
    assert files.datasyncs[PATH] == before + 1
    assert journal.durable


def test_append_refuses_when_the_entry_does_not_follow(files: FaultFiles) -> None:
    journal = new_journal(files, entry(2, term=4))
    for wrong in (entry(2, term=4), entry(4, term=4), entry(3, term=3)):
        with pytest.raises(ValueError, match="cannot follow"):
            journal.append(wrong)


def test_cut_removes_the_tail_durably_when_entries_contradict(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 10)))
    journal.append(entry(10))
    journal.cut_from(6)
    journal.append(entry(6, term=2))
    journal.sync()
    expected = [FIRST_ENTRY, *map(entry, range(2, 6)), entry(6, term=2)]
    assert entries_of(journal) == expected
    for seed in range(20):
        assert reopened(files.crash(Random(seed))) == expected


def test_cut_refuses_when_asked_for_the_first_entry(files: FaultFiles) -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        new_journal(files, entry(2)).cut_from(1)


def test_trim_keeps_the_rest_when_entries_are_forgotten(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 30)))
    journal.trim_before(20)
    assert (journal.first_index, journal.last_index, journal.term_at(20)) == (20, 29, 1)
    journal.append(entry(30))
    journal.sync()
    assert reopened(files.crash()) == list(map(entry, range(20, 31)))


def test_restart_forgets_everything_when_a_snapshot_replaces_it(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 30)))
    journal.restart_at(100, 7)
    assert (journal.first_index, journal.last_index, journal.last_term) == (100, 100, 7)
    journal.append(entry(101, term=7))
    journal.sync()
    assert [one.index for one in reopened(files.crash())] == [100, 101]


def test_reads_find_entries_by_index_when_the_log_was_trimmed(files: FaultFiles) -> None:
    journal = new_journal(files, *(entry(index, term=1 + index // 10) for index in range(2, 40)))
    journal.trim_before(15)
    assert journal.holds(22, 3)
    assert not journal.holds(22, 2)
    assert not journal.holds(14, 2)
    assert not journal.holds(40, 4)
    assert [one.index for one in journal.entries_from(20, 30)] == [20, 21, 22]
    assert len(journal.entries_from(20, 1)) == 1
    assert journal.first_of_term(28, not_before=1) == 20
    assert journal.first_of_term(28, not_before=25) == 25
    assert journal.first_of_term(18, not_before=1) == 15
    assert journal.bytes_after(38) == frame_size(entry(39))
    assert journal.bytes_after(39) == 0
    with pytest.raises(IndexError):
        journal.term_at(14)


def test_torn_tail_is_cut_when_the_power_went_during_a_write(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 6)))
    for index in range(6, 12):
        journal.append(entry(index, command=bytes([index]) * 700))
    files.crash_after(files.steps + 1)
    with pytest.raises(PowerLost):
        journal.sync()
    for seed in range(40):
        survivor = files.crash(Random(seed))
        found = reopened(survivor)
        assert found[:5] == [FIRST_ENTRY, *map(entry, range(2, 6))]
        assert [one.index for one in found] == list(range(1, len(found) + 1))
        assert reopened(survivor) == found


def test_journal_goes_on_after_the_cut_when_its_tail_was_torn(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 6)))
    end = journal.size_bytes
    journal.append(entry(6))
    journal.append(entry(7))
    journal.sync()
    journal.close()
    files.flip_bit(PATH, end + frame_size(entry(6)) + 40)
    again = Journal.open(files, PATH)
    assert again.last_index == 6
    again.append(entry(7, term=3))
    again.sync()
    assert reopened(files.crash()) == [FIRST_ENTRY, *map(entry, range(2, 7)), entry(7, term=3)]


def written_in_three_syncs(files: FaultFiles) -> list[int]:
    """Entries 2..7, two to a sync; returns where each frame begins."""
    journal = new_journal(files)
    starts, position = [], journal.size_bytes
    for first in (2, 4, 6):
        for index in (first, first + 1):
            journal.append(entry(index))
            starts.append(position)
            position = journal.size_bytes
        journal.sync()
    journal.close()
    return starts


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("inside", [0, 5, 9, 20, 30, 35])
def test_start_is_refused_when_an_entry_that_was_synced_is_damaged(
    files: FaultFiles, number: int, inside: int
) -> None:
    starts = written_in_three_syncs(files)
    files.flip_bit(PATH, starts[number] + inside)
    with pytest.raises(TailraceError) as raised:
        Journal.open(files, PATH)
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    text = str(raised.value)
    assert f"{PATH} is damaged at byte {starts[number]}" in text
    assert "start this one with an empty directory" in text


def test_start_is_refused_when_a_trimmed_file_is_damaged_in_its_last_entry(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 9)))
    journal.trim_before(5)
    last = journal.size_bytes - frame_size(entry(8))
    journal.close()
    files.flip_bit(PATH, last + 33)
    with pytest.raises(TailraceError, match=f"damaged at byte {last}"):
        Journal.open(files, PATH)


@pytest.mark.parametrize("position", [0, 9, 17, 33])
def test_start_is_refused_when_the_header_is_damaged(files: FaultFiles, position: int) -> None:
    new_journal(files, entry(2)).close()
    files.flip_bit(PATH, position)
    with pytest.raises(TailraceError, match="does not begin with the header"):
        Journal.open(files, PATH)


def test_start_is_refused_when_the_file_was_cut_short_by_somebody(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 9)))
    journal.trim_before(3)
    journal.close()
    files.open(PATH, write=True).truncate(HEADER_SIZE + 50)
    with pytest.raises(TailraceError, match="is damaged at byte"):
        Journal.open(files, PATH)


def test_command_cannot_pass_for_an_entry_when_it_holds_a_copy_of_the_journal(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 9)))
    journal.close()
    copy = files.read(PATH)
    journal = Journal.open(files, PATH)
    before = journal.size_bytes
    journal.append(entry(9, command=copy))
    journal.sync()
    journal.close()
    # The frame is broken and its command is not: frames inside it must not look like later ones.
    files.flip_bit(PATH, before)
    assert reopened(files)[-1].index == 8


@pytest.mark.parametrize("call", ["write", "datasync"])
def test_nothing_is_written_any_more_when_the_disk_failed_once(files: FaultFiles, call: str) -> None:
    journal = new_journal(files, entry(2))
    files.fail(errno.EIO, lambda made, path: made == call and path == PATH)
    journal.append(entry(3))
    with pytest.raises(TailraceError, match=r"writing the Raft journal failed at /journal.*disk failed"):
        journal.sync()
    steps = files.steps
    for attempt in (journal.sync, lambda: journal.cut_from(3), lambda: journal.trim_before(2)):
        with pytest.raises(TailraceError, match="writing the Raft journal"):
            attempt()
    assert files.steps == steps


def test_synced_entries_survive_when_the_power_goes_at_any_step() -> None:
    """Appending, cutting, trimming and starting anew, with a loss of power inside every step of them."""

    def run(files: FaultFiles, durable: list[list[Entry]]) -> None:
        """Notes in `durable` what must survive, and what may be there instead."""
        journal = Journal.create(files, PATH, [FIRST_ENTRY], SALT)
        durable[:] = [entries_of(journal)]

        def change(what: str, *arguments: object) -> None:
            before = entries_of(journal)
            durable[:] = [before, *([] if what == "append" else [_after(before, what, arguments)])]
            if what == "append":
                for argument in arguments:
                    assert isinstance(argument, Entry)
                    journal.append(argument)
                journal.sync()
            else:
                getattr(journal, what)(*arguments)
            durable[:] = [entries_of(journal)]

        change("append", *(entry(index, command=bytes([index]) * 400) for index in range(2, 7)))
        change("append", entry(7), entry(8))
        change("cut_from", 6)
        change("append", entry(6, term=2), entry(7, term=2))
        change("trim_before", 4)
        change("append", entry(8, term=3))
        change("cut_from", 6)
        change("append", entry(6, term=4))
        change("restart_at", 20, 5)
        change("append", entry(21, term=5))

    reference = FaultFiles(Random(1))
    run(reference, [])
    for step in range(1, reference.steps + 1):
        files = FaultFiles(Random(step))
        files.crash_after(step)
        durable: list[list[Entry]] = []
        with suppress(PowerLost):
            run(files, durable)
        for seed in range(8):
            survivor = files.crash(Random(seed))
            if not durable:
                continue
            found = reopened(survivor)
            # Entries that were appended but not synced may be there, too.
            assert any(found[: len(kept)] == kept for kept in durable), (step, seed)


def _after(before: list[Entry], what: str, arguments: tuple[object, ...]) -> list[Entry]:
    index = arguments[0]
    assert isinstance(index, int)
    match what:
        case "cut_from":
            return [one for one in before if one.index < index]
        case "trim_before":
            return [one for one in before if one.index >= index]
    return [Entry(FIRST_ENTRY.command, index, 5)]


def test_torn_tail_of_a_failed_start_is_not_damage_when_the_machine_crashes_again() -> None:
    files = FaultFiles(Random(3))
    journal = new_journal(files, *map(entry, range(2, 6)))
    for index in range(6, 9):
        journal.append(entry(index, command=bytes([index]) * 900))
    files.crash_after(files.steps + 1)
    with pytest.raises(PowerLost):
        journal.sync()
    for seed in range(30):
        survivor = files.crash(Random(seed))
        survivor.crash_after(survivor.steps + 1)
        with suppress(PowerLost):
            reopened(survivor)
        assert reopened(survivor.crash(Random(seed)))[:5] == [FIRST_ENTRY, *map(entry, range(2, 6))]


def test_handles_are_closed_when_opening_or_replacing_fails(files: FaultFiles) -> None:
    journal = new_journal(files, *map(entry, range(2, 6)))
    journal.trim_before(3)
    journal.close()
    assert files.open_handles == 0
    written_in_three_syncs(files)
    files.flip_bit(PATH, HEADER_SIZE + 60)
    with pytest.raises(TailraceError):
        Journal.open(files, PATH)
    assert files.open_handles == 0
