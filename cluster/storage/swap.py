"""Putting cleaned segments in the place of those that they replace, safe against a crash at every step.

The cleaner leaves `<base>.log.cleaned`, `<base>.index.cleaned` and, if transactions aborted,
`<base>.txnindex.cleaned`, all synced. A swap puts one such group in the place of every segment with a base
offset from `base` up to (not including) `next`:

1. `<base>.log.cleaned` becomes `<base>-<next>.log.swap`. Once this name is durable the group is decided:
   before, an interrupted swap is undone, after, it is finished. The name says what is replaced, so that
   finishing it needs no other knowledge, even where cleaning left nothing of the last segments.
2. The old indexes get a `.deleted` name; then the old logs do.
3. The new indexes get their final names; then the log does.

The directory is synced after each of these renames or groups of renames, so the names that a crash leaves
tell how far the swap was: while `<base>.log` is there beside the `.swap`, the indexes of that name are the
old ones; once it is gone, they are the new ones. That matters because a lost transaction index would make
aborted records visible; a lost offset index would only cost time.

`swap` runs as an ordered call of the directory's writer, after the log has voided its journal entries.
The caller forgets its open handles of all names involved, and removes the returned `.deleted` files later.
Groups are swapped in ascending order: a tombstone must not go before the values that it hides.
`recover_swaps` runs when a log is opened, before its segments are listed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_SIDE_SUFFIXES = (INDEX_SUFFIX, TXN_INDEX_SUFFIX)
_SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.txnindex)", re.ASCII)
_SWAP_FILE = re.compile(r"(\d{20})-(\d{20})\.log\.swap", re.ASCII)


class SwapGroup(NamedTuple):
    """What a group replaces: the segments with `base <= base offset < next`."""

    base: int
    next: int


class Rename(NamedTuple):
    source: str
    target: str


class SwapRecovery(NamedTuple):
    """What `recover_swaps` found: swaps that it finished, and names that it removed."""

    finished: tuple[SwapGroup, ...]
    removed: tuple[str, ...]


def cleaned_name(base: int, suffix: str) -> str:
    return offset_name(base) + suffix + CLEANED_SUFFIX


def swap_name(group: SwapGroup) -> str:
    return f"{offset_name(group.base)}-{offset_name(group.next)}{LOG_SUFFIX}{SWAP_SUFFIX}"


def plan_swap(names: Collection[str], group: SwapGroup) -> list[list[Rename]]:
    """The renames that are still to be done, given the names in the directory.

    Each inner list may reach the disk in any order; the directory is synced before the next one begins.
    Planning again from the names left by a crash gives the rest of the same plan.
    """
    swap_file = swap_name(group)
    log_cleaned = cleaned_name(group.base, LOG_SUFFIX)
    commit = [Rename(log_cleaned, swap_file)] if swap_file not in names else []
    old_logs: list[Rename] = []
    old_sides: list[Rename] = []
    base_is_old = offset_name(group.base) + LOG_SUFFIX in names
    taken = set(names)
    for name in sorted(names):
        match = _SEGMENT_FILE.fullmatch(name)
        if match is None or not group.base <= int(match[1]) < group.next:
            continue
        if match[2] == LOG_SUFFIX:
            old_logs.append(Rename(name, _deleted_name(name, taken)))
        elif int(match[1]) != group.base or base_is_old:
            old_sides.append(Rename(name, _deleted_name(name, taken)))
    new_sides = [
        Rename(cleaned_name(group.base, suffix), offset_name(group.base) + suffix)
        for suffix in _SIDE_SUFFIXES
        if cleaned_name(group.base, suffix) in names
    ]
    new_log = [Rename(swap_file, offset_name(group.base) + LOG_SUFFIX)]
    return [step for step in (commit, old_sides, old_logs, new_sides, new_log) if step]


def swap(files: Files, directory: str, groups: Iterable[SwapGroup]) -> list[str]:
    """Put the cleaned groups in place; returns the paths of the old files, now `.deleted`.

    Raises OSError like any write to the directory; the log must then be opened anew, which finishes or
    undoes what was begun.
    """
    deleted: list[str] = []
    for group in sorted(groups):
        names = {entry.name for entry in files.list(directory)}
        if cleaned_name(group.base, LOG_SUFFIX) not in names:
            raise FileNotFoundError(
                f"{directory}/{cleaned_name(group.base, LOG_SUFFIX)} is gone: the segments from offset "
                f"{group.base} stay as they are until the next cleaning"
            )
        deleted += _carry_out(files, directory, plan_swap(names, group))
    return deleted


def recover_swaps(files: Files, directory: str) -> SwapRecovery:
    """Finish the swaps that were decided before a crash, and remove what an interrupted cleaning left.

    Old files with a `.deleted` name, from this or an earlier life, are removed too: nobody reads them now.
    """
    names = {entry.name for entry in files.list(directory) if not entry.is_dir}
    groups = sorted(
        SwapGroup(int(match[1]), int(match[2])) for match in map(_SWAP_FILE.fullmatch, names) if match
    )
    for group in groups:
        _carry_out(files, directory, plan_swap(names, group))
        names = {entry.name for entry in files.list(directory) if not entry.is_dir}
    leftover = sorted(
        name for name in names if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)) and _is_segment_name(name)
    )
    for name in leftover:
        files.remove(f"{directory}/{name}")
    if leftover:
        files.sync_dir(directory)
    return SwapRecovery(tuple(groups), tuple(leftover))


def _carry_out(files: Files, directory: str, plan: Sequence[Sequence[Rename]]) -> list[str]:
    deleted = []
    for step in plan:
        for source, target in step:
            files.rename(f"{directory}/{source}", f"{directory}/{target}")
            if target.endswith(DELETED_SUFFIX):
                deleted.append(f"{directory}/{target}")
        files.sync_dir(directory)
    return deleted


def _deleted_name(name: str, taken: set[str]) -> str:
    """A free name: the previous holder of this one may still wait for its removal, with readers on it."""
    candidate = name + DELETED_SUFFIX
    count = 1
    while candidate in taken:
        candidate = f"{name}.{count}{DELETED_SUFFIX}"
        count += 1
    taken.add(candidate)
    return candidate


def _is_segment_name(name: str) -> bool:
    return _SEGMENT_FILE.match(name) is not None
