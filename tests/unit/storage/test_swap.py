"""Swapping cleaned segments in: the power may go at every step, and the log is the old or the new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, combinations
from random import Random

import pytest

from tailrace.cluster.storage.cleaner import CleanResult, clean
from tailrace.cluster.storage.swap import Rename, SwapGroup, plan_swap, recover_swaps, swap, swap_name
from tests.support.fault_files import FaultFiles, PowerLost
from tests.unit.storage.compaction_model import DIRECTORY, SmallLog, final_state, name, no_limit


def prepared() -> tuple[SmallLog, CleanResult]:
    """A log with transactions in every segment, cleaned into two groups that are not yet in place."""
    log = SmallLog()
    for n in range(4):
        log.append([(b"a", b"%d" % n), (b"only-%d" % n, b"x" * 100)])
        log.append([(b"a", b"aborted"), (b"z", b"aborted")], producer_id=n, transactional=True)
        log.end_transaction(n, commit=False)
        log.roll()
    log.append([(b"a", b"active")])
    for path in log.files.files_below(DIRECTORY):
        file = log.files.open(path, write=True)
        file.datasync()
        file.close()
    log.files.sync_dir(DIRECTORY)
    log.files.sync_dir("/data")
    log.files.sync_dir("/")
    result = clean(log.job(segment_bytes=2 * log.segments[0].size), log.files, no_limit())
    assert result is not None
    assert [segment.replaces for segment in result.segments] == [(0, 5), (10, 15)]
    return log, result


def content_of(files: FaultFiles, group: SwapGroup) -> dict[str, bytes]:
    """The final files of the segments in a group's range."""
    return {
        path: data
        for path, data in files.files_below(DIRECTORY).items()
        if path.endswith((".log", ".index", ".txnindex"))
        and group.base <= int(path.removeprefix(f"{DIRECTORY}/")[:20]) < group.next
    }


def names(files: FaultFiles) -> set[str]:
    return {entry.name for entry in files.list(DIRECTORY)}


@pytest.mark.parametrize("seed", range(6))
def test_swap_leaves_old_or_new_log_when_power_goes_at_any_step(seed: int) -> None:
    outcomes = interrupt_everywhere(lambda files, step: files.crash(Random(seed * 1_000 + step)))
    assert outcomes == {(False, False), (True, False), (True, True)}


def test_swap_leaves_old_or_new_log_when_process_dies_at_any_step() -> None:
    outcomes = interrupt_everywhere(lambda files, _: files.kill())
    # What the process had done is done, so even its first rename decides the first group.
    assert outcomes == {(True, False), (True, True)}


def interrupt_everywhere(interrupt: Callable[[FaultFiles, int], FaultFiles]) -> set[tuple[bool, ...]]:
    """Swap once for each step, interrupted there; returns which groups were the new ones afterwards."""
    log, result = prepared()
    groups = result.groups
    old = [content_of(log.files, group) for group in groups]
    first = log.files.steps
    swap(log.files, DIRECTORY, groups)
    total = log.files.steps - first
    new = [content_of(log.files, group) for group in groups]
    log.take_in(result)
    expected = log.read_committed()
    outcomes = set()
    for step in range(1, total + 1):
        log, result = prepared()
        log.files.crash_after(log.files.steps + step)
        with suppress(PowerLost):
            swap(log.files, DIRECTORY, groups)
        log.reopen(interrupt(log.files, step))
        after = [content_of(log.files, group) for group in groups]
        # Each group is wholly the old one or wholly the new one, its indexes included.
        assert all(found in (was, now) for found, was, now in zip(after, old, new, strict=True))
        outcomes.add(tuple(found == now for found, now in zip(after, new, strict=True)))
        assert not [name for name in names(log.files) if name.endswith((".cleaned", ".swap", ".deleted"))]
        readable = log.read_committed()
        assert set(expected) <= set(readable)
        assert final_state(readable) == final_state(expected)
    return outcomes


def test_recovery_finishes_when_it_is_itself_interrupted_at_any_step() -> None:
    log, result = prepared()
    swap(log.files, DIRECTORY, result.groups)
    whole = {path: data for path, data in log.files.files_below(DIRECTORY).items() if ".deleted" not in path}
    for interrupted_at in range(1, 12):
        log, result = prepared()
        log.files.crash_after(log.files.steps + interrupted_at)
        with suppress(PowerLost):
            swap(log.files, DIRECTORY, result.groups[:1])
        found = log.files.crash(Random(interrupted_at))
        decided = swap_name(result.groups[0]) in names(found) or name(5)[-24:] not in names(found)
        for step in range(1, 20):
            found.crash_after(found.steps + step)
            with suppress(PowerLost):
                recover_swaps(found, DIRECTORY)
            found = found.crash(Random(step))
        recover_swaps(found, DIRECTORY)
        after = found.files_below(DIRECTORY)
        first_group = {name(0), name(0, ".index"), name(0, ".txnindex")}
        if decided:
            assert name(5) not in after
            assert {path: after[path] for path in first_group} == {path: whole[path] for path in first_group}
        else:
            assert name(5) in after
        assert not [path for path in after if path.endswith((".cleaned", ".swap", ".deleted"))]


def test_swap_returns_old_files_under_deleted_names_when_done() -> None:
    log, result = prepared()
    before = log.files.files_below(DIRECTORY)
    deleted = swap(log.files, DIRECTORY, result.groups)
    after = log.files.files_below(DIRECTORY)
    assert len(deleted) == 12
    for path in deleted:
        assert after[path] == before[path.removesuffix(".deleted")]
    log.take_in(result)
    log.check()


def test_swap_keeps_earlier_deleted_file_when_it_still_waits_for_removal() -> None:
    log, result = prepared()
    swap(log.files, DIRECTORY, result.groups)
    log.take_in(result)
    log.append([(b"only-0", b"new"), (b"only-2", b"new")])
    log.roll()
    waiting = log.files.read(name(0, ".log.deleted"))
    again = clean(log.job(), log.files, no_limit())
    assert again is not None
    deleted = swap(log.files, DIRECTORY, again.groups)
    assert name(0, ".log.1.deleted") in deleted
    assert log.files.read(name(0, ".log.deleted")) == waiting
    log.take_in(again)
    log.check()


def test_swap_refuses_when_cleaned_log_is_gone() -> None:
    log, result = prepared()
    recover_swaps(log.files, DIRECTORY)
    before = log.files.files_below(DIRECTORY)
    with pytest.raises(FileNotFoundError, match="stay as they are"):
        swap(log.files, DIRECTORY, result.groups)
    assert log.files.files_below(DIRECTORY) == before


def test_recovery_removes_leftovers_and_nothing_else_when_no_swap_was_decided() -> None:
    log, _ = prepared()
    before = log.files.files_below(DIRECTORY)
    log._write_file(f"{DIRECTORY}/partition.json", b"{}")
    log._write_file(f"{DIRECTORY}/notes.cleaned", b"somebody else's")
    recovery = recover_swaps(log.files, DIRECTORY)
    assert recovery.finished == ()
    assert len(recovery.removed) == 6
    left = log.files.files_below(DIRECTORY)
    assert f"{DIRECTORY}/partition.json" in left
    assert f"{DIRECTORY}/notes.cleaned" in left
    assert {path for path in before if not path.endswith(".cleaned")} <= set(left)
    assert recover_swaps(log.files, DIRECTORY).removed == ()


def test_plan_moves_old_indexes_before_old_logs_and_new_log_last_when_group_replaces_two() -> None:
    present = {
        f"{base:020d}{suffix}" for base in (0, 5, 10) for suffix in (".log", ".index", ".txnindex")
    } | {f"{0:020d}{suffix}.cleaned" for suffix in (".log", ".index")}
    plan = plan_swap(present, SwapGroup(0, 10))
    zero, five = f"{0:020d}", f"{5:020d}"
    decided = f"{zero}-{10:020d}.log.swap"
    assert plan == [
        [Rename(f"{zero}.log.cleaned", decided)],
        [
            Rename(f"{base}{suffix}", f"{base}{suffix}.deleted")
            for base in (zero, five)
            for suffix in (".index", ".txnindex")
        ],
        [Rename(f"{base}.log", f"{base}.log.deleted") for base in (zero, five)],
        [Rename(f"{zero}.index.cleaned", f"{zero}.index")],
        [Rename(decided, f"{zero}.log")],
    ]


@pytest.mark.parametrize("new_has_aborted", [False, True])
@pytest.mark.parametrize("old_had_aborted", [False, True])
def test_plan_survives_when_renames_between_two_syncs_reach_the_disk_in_any_order(
    old_had_aborted: bool, new_has_aborted: bool
) -> None:
    """Stronger than the fault model, which keeps names in order: every subset of one step's renames."""
    group = SwapGroup(0, 10)
    disk = {f"{base:020d}{suffix}": f"old {suffix}" for base in (0, 5) for suffix in (".log", ".index")}
    disk |= {f"{0:020d}{suffix}.cleaned": f"new {suffix}" for suffix in (".log", ".index")}
    expected = {f"{0:020d}.log": "new .log", f"{0:020d}.index": "new .index"}
    if old_had_aborted:
        disk |= {f"{base:020d}.txnindex": "old .txnindex" for base in (0, 5)}
    if new_has_aborted:
        disk[f"{0:020d}.txnindex.cleaned"] = "new .txnindex"
        expected[f"{0:020d}.txnindex"] = "new .txnindex"
    tried = 0
    plan = plan_swap(disk, group)
    for done, step in enumerate(plan):
        for kept in chain.from_iterable(combinations(step, size) for size in range(len(step) + 1)):
            after = dict(disk)
            for renames in [*plan[:done], kept]:
                move(after, renames)
            if swap_name(group) not in after and f"{0:020d}.log.cleaned" in after:
                assert after == disk
                continue
            if swap_name(group) in after:
                for renames in plan_swap(after, group):
                    move(after, renames)
            tried += 1
            assert {name: data for name, data in after.items() if ".deleted" not in name} == expected
    assert tried >= 10


def move(disk: dict[str, str], renames: Iterable[Rename]) -> None:
    for source, target in renames:
        disk[target] = disk.pop(source)


def test_swap_syncs_directory_after_each_step_when_it_follows_its_plan() -> None:
    log, result = prepared()
    before = log.files.dir_syncs[DIRECTORY]
    plan = plan_swap(names(log.files), result.groups[0])
    swap(log.files, DIRECTORY, result.groups[:1])
    assert len(plan) == 5
    assert log.files.dir_syncs[DIRECTORY] - before == 5


def test_cleaned_files_are_durable_when_cleaning_returns() -> None:
    for seed in range(10):
        log, result = prepared()
        before = log.files.files_below(DIRECTORY)
        assert log.files.crash(Random(seed)).files_below(DIRECTORY) == before
        assert len(result.segments) == 2
