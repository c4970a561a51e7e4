"""The journal by itself: frames, turns, overflow, voids, and what a redo makes of damage and forgeries."""

from __future__ import annotations

from random import Random

import pytest

from tailrace.cluster.storage.journal import (
    FILE_NAMES,
    FRAME_ALIGNMENT,
    Journal,
    JournalWrite,
    LogKey,
    read_redo,
)
from tests.support.driving import LosesUnsynced, rewrite
from tests.support.fault_files import FaultFiles

A = LogKey(b"a" * 16, 0)
B = LogKey(b"b" * 16, 3)
PAGE = FRAME_ALIGNMENT
SECRET = b"only this directory knows it"
SECRET = b"s" * 32


def started(
    capacity: int = 4 * PAGE, generation: int = 1, secret: bytes = SECRET
) -> tuple[FaultFiles, Journal]:
    files = FaultFiles(Random(0))
    files.make_dirs("/d")
    files.sync_dir("/")
    return files, Journal.start(files, "/d", generation=generation, capacity=capacity, secret=secret)


def write(journal: Journal, log: LogKey, data: bytes, *, base: int = 0, position: int = 0) -> bool:
    """One frame as a group commit makes it; False when there was no room."""
    entry = JournalWrite(log, base, position, [data[:3], memoryview(data)[3:]], len(data))
    if not journal.room_for([entry]):
        return False
    journal.write([entry], [f"/{log.partition}/{base}"])
    journal.sync()
    return True


def redone(files: FaultFiles) -> list[tuple[LogKey, int, int, bytes]]:
    return [
        (one.log, one.segment_base, one.position, bytes(one.data))
        for one in read_redo(files, "/d", SECRET).writes
    ]


def release(journal: Journal) -> None:
    due = journal.to_release()
    assert due is not None
    journal.release(due[0])


def test_redo_repeats_every_synced_write_in_order_when_power_is_lost() -> None:
    files, journal = started(capacity=64 * PAGE)
    expected = []
    for number in range(10):
        log, data = (A, B)[number % 2], b"%d" % number * (number + 1)
        assert write(journal, log, data, base=number, position=7 * number)
        expected.append((log, number, 7 * number, data))
    survivor = files.crash(LosesUnsynced())
    assert redone(survivor) == expected
    redo = read_redo(survivor, "/d", SECRET)
    assert (redo.damaged_frames, redo.next_generation) == (0, 2)


def test_redo_holds_several_logs_when_they_shared_a_frame() -> None:
    files, journal = started()
    entries = [
        JournalWrite(A, 5, 1, [b"xy", b"z"], 3),
        JournalWrite(B, 6, 2, [b""], 0),
        JournalWrite(A, 9, 0, [b"w"], 1),
    ]
    assert journal.room_for(entries)
    journal.write(entries, ["/p", "/q"])
    journal.sync()
    assert redone(files) == [(A, 5, 1, b"xyz"), (B, 6, 2, b""), (A, 9, 0, b"w")]
    assert journal.covered_paths == {"/p", "/q"}


def test_frame_counts_only_after_its_sync_when_power_is_lost() -> None:
    for draw in range(40):
        files, journal = started()
        assert write(journal, A, b"synced" * 200)
        entry = JournalWrite(A, 0, 1200, [b"unsynced" * 600], 4800)
        assert journal.room_for([entry])
        journal.write([entry], ["/p"])
        found = redone(files.crash(Random(draw)))
        assert found[0] == (A, 0, 0, b"synced" * 200)
        assert found[1:] in ([], [(A, 0, 1200, b"unsynced" * 600)])


def test_journal_takes_turns_when_a_file_is_full_and_the_other_is_free() -> None:
    files, journal = started(capacity=4 * PAGE)
    generations = []
    for number in range(20):
        assert write(journal, A, b"%d" % number, position=number)
        generations.append(journal.generation)
        if journal.to_release() is not None:
            release(journal)
    assert generations[0] == 1
    assert sorted(set(generations)) == list(range(1, generations[-1] + 1))
    assert all(len(files.read(f"/d/{name}")) <= 4 * PAGE for name in FILE_NAMES)
    # The last turn may still be needed, whatever came before it is not.
    positions = [position for _, _, position, _ in redone(files)]
    assert positions == list(range(positions[0], 20))
    assert len(positions) <= 8


def test_journal_outgrows_its_size_for_a_while_when_the_other_file_is_not_free() -> None:
    files, journal = started(capacity=4 * PAGE)
    written = 0
    while write(journal, A, b"x", position=written):
        written += 1
        assert written < 100
    # A first turn of three (its first frame says where it begins), then four times the capacity.
    assert written == 3 + 16
    assert [position for _, _, position, _ in redone(files)] == list(range(written))
    release(journal)
    assert write(journal, A, b"x", position=written)
    assert journal.generation == 3


def test_journal_has_no_room_when_a_group_is_larger_than_a_file() -> None:
    files, journal = started(capacity=4 * PAGE)
    assert not write(journal, A, b"x" * (5 * PAGE))
    assert journal.generation == 1
    assert write(journal, A, b"y")
    assert redone(files) == [(A, 0, 0, b"y")]


def test_released_writes_are_history_when_the_next_frame_says_so() -> None:
    files, journal = started(capacity=2 * PAGE)
    assert write(journal, A, b"old")
    assert write(journal, A, b"turn", position=3)
    assert [data for *_, data in redone(files)] == [b"old", b"turn"]
    release(journal)
    # Until a frame tells the disk, a redo still repeats the old one, so it still has to be voided.
    assert journal.needs_void(A)
    assert write(journal, B, b"new")
    assert [data for *_, data in redone(files)] == [b"turn", b"new"]


@pytest.mark.parametrize("capacity", [2, 3, 4, 64])
def test_void_keeps_earlier_writes_of_that_log_away_when_redone(capacity: int) -> None:
    files, journal = started(capacity=capacity * PAGE)
    write(journal, A, b"a1")
    write(journal, B, b"b1")
    assert journal.needs_void(A)
    journal.void(A)
    assert not journal.needs_void(A)
    survivor = files.crash(LosesUnsynced())
    assert [(log, data) for log, _, _, data in redone(survivor)] == [(B, b"b1")]


def test_void_leaves_later_writes_alone_when_redone() -> None:
    files, journal = started(capacity=64 * PAGE)
    write(journal, A, b"a1")
    journal.void(A)
    write(journal, A, b"a2")
    assert journal.needs_void(A)
    assert [data for *_, data in redone(files)] == [b"a2"]


def test_void_goes_in_when_the_journal_is_full_in_every_way() -> None:
    files, journal = started(capacity=4 * PAGE)
    while write(journal, A, b"x" * PAGE):
        pass
    journal.void(A)
    assert redone(files) == []


def test_void_is_not_needed_when_log_was_never_in_the_journal() -> None:
    _, journal = started()
    assert not journal.needs_void(A)
    write(journal, B, b"b")
    assert not journal.needs_void(A)


def test_new_life_makes_all_before_it_history_when_it_starts() -> None:
    files, journal = started()
    write(journal, A, b"old")
    generation = read_redo(files, "/d", SECRET).next_generation
    assert generation == 2
    Journal.start(files, "/d", generation=generation, capacity=4 * PAGE, secret=SECRET)
    survivor = files.crash(LosesUnsynced())
    assert redone(survivor) == []
    assert read_redo(survivor, "/d", SECRET).next_generation == 3


@pytest.mark.parametrize("content", [b"", b"\0" * 9000, b"TRJ1" * 4000, Random(5).randbytes(20_000)])
def test_redo_is_empty_when_files_hold_anything_else(content: bytes) -> None:
    files = FaultFiles(Random(0))
    files.make_dirs("/d")
    for name in FILE_NAMES:
        file = files.open(f"/d/{name}", create=True)
        file.pwritev([content], 0)
    assert read_redo(files, "/d", SECRET).writes == []


def test_redo_loses_one_frame_and_says_so_when_any_byte_of_it_is_flipped() -> None:
    files, journal = started(capacity=64 * PAGE)
    for number in range(4):
        write(journal, A, b"%d" % number * 10, position=10 * number)
    whole = redone(files)
    # The frame of the second write: frame 0 is the start of the generation.
    for position in range(2 * PAGE, 2 * PAGE + 40 + 37 + 10):
        files.flip_bit("/d/journal-1", position, position % 8)
        redo = read_redo(files, "/d", SECRET)
        assert [bytes(one.data) for one in redo.writes] == [b"0" * 10, b"2" * 10, b"3" * 10], position
        assert redo.damaged_frames == 1
        files.flip_bit("/d/journal-1", position, position % 8)
    assert redone(files) == whole


def test_redo_ignores_a_frame_inside_a_payload_when_the_frame_around_it_is_torn() -> None:
    """Whoever can write records must not be able to write journal frames."""
    forged_files, forger = started(capacity=64 * PAGE, generation=900, secret=b"guessed")
    write(forger, B, b"forged")
    page = forged_files.read("/d/journal-0")[PAGE : PAGE + 200]
    files, journal = started(capacity=64 * PAGE)
    write(journal, A, b"acknowledged")
    # A record value whose content stands at a page boundary of the journal file.
    room = PAGE - (40 + 37)
    value = b"x" * room + page.ljust(PAGE, b"\0")
    write(journal, A, value, position=12)
    files.flip_bit("/d/journal-1", 2 * PAGE + 5)
    assert redone(files) == [(A, 0, 0, b"acknowledged")]


def test_redo_ignores_a_frame_left_in_an_old_payload_when_the_file_is_used_again() -> None:
    forged_files, forger = started(capacity=64 * PAGE, generation=900, secret=b"guessed")
    write(forger, B, b"forged")
    page = forged_files.read("/d/journal-0")[PAGE : PAGE + 200]
    files, journal = started(capacity=4 * PAGE)
    room = PAGE - (40 + 37)
    write(journal, A, b"x" * room + page.ljust(PAGE, b"\0"))
    write(journal, A, b"1", position=1)
    assert journal.generation == 1
    write(journal, A, b"2", position=2)
    release(journal)
    # Two frames of the third turn cover the head of the old one, whose tail holds the forgery.
    for number in range(3, 8):
        write(journal, A, b"%d" % number, position=number)
    assert journal.generation == 3
    assert [data for *_, data in redone(files)] == [b"2", b"3", b"4", b"5", b"6", b"7"]


def test_redo_ignores_frames_of_another_directory_when_its_files_were_copied_here() -> None:
    files, journal = started(secret=b"that directory's")
    write(journal, A, b"elsewhere")
    assert read_redo(files, "/d", SECRET).writes == []
    assert len(read_redo(files, "/d", b"that directory's").writes) == 1


def test_redo_ignores_a_frame_when_it_stands_at_another_position_than_it_was_written_to() -> None:
    files, journal = started(capacity=64 * PAGE)
    write(journal, A, b"first")
    write(journal, A, b"second", position=5)
    content = files.read("/d/journal-1")
    moved = content.ljust(3 * PAGE, b"\0") + content[PAGE : 2 * PAGE]
    rewrite(files, "/d/journal-1", moved)
    assert [data for *_, data in redone(files)] == [b"first", b"second"]
