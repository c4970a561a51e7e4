"""Looking into log directories from outside: what is there, and every batch that can still be found.

For tools that run beside a node, after it, or on a copy: nothing is opened for writing, no lock is taken,
and no state of the engine is used. The directory may be in use, closed or crashed, and any file may be
damaged; `walk` says where, and goes on behind the damage. In a directory that is in use, files change while
they are looked at, so what is said of the end of a log may be out of date.

`clients/cli` shows what comes out; `verify` judges it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader, check_batch, parse_header
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.checkpoint import CHECKPOINT_FILE
from tailrace.cluster.storage.core.index import SparseIndex, decode_index
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.core.recovery import find_proof
from tailrace.cluster.storage.directory import DIRECTORY_FILE
from tailrace.cluster.storage.files import TEMPORARY_SUFFIX, Entry, File, Files, parent_of
from tailrace.cluster.storage.logfiles import PARTITION_FILE
from tailrace.cluster.storage.opening import CORRUPT_SUFFIX, DELETE_SUFFIX
from tailrace.cluster.storage.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PRODUCERS_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_name,
)
from tailrace.cluster.storage.swap import CLEANED_SUFFIX, SWAP_SUFFIX, SwapGroup, plan_swap

WINDOW_BYTES = 1 << 20
# Nobody writes so many offsets into one log behind a damaged place; larger numbers are other data.
_PLAUSIBLE_OFFSETS = 2**40
_VERSION_AT = 36
_WORD = 8
_NUMBERED = re.compile(r"(\d{20})(\.[a-z]+)", re.ASCII)
_SEGMENT_COPY = re.compile(r"(\d{20})(-\d{20})?\.log(\..+)?", re.ASCII)
_SWAP_FILE = re.compile(r"(\d{20})-(\d{20})\.log\.swap", re.ASCII)
_AT_BYTE = re.compile(r"the batch at byte \d+")


class Kind(Enum):
    DIRECTORY = "log directory"
    PARTITION = "partition"
    SEGMENT = "segment"


class Target(NamedTuple):
    """What a path turned out to be. `directory` is the log directory that it is (in), if there is one."""

    kind: Kind
    path: str
    directory: str | None
    partitions: list[str]
    """Paths of the partitions' directories, by name; one for a partition, none for a segment."""
    set_aside: list[str]
    """Names in a log directory that stand for no log: deleted ones, damaged ones, unfinished ones."""


class SegmentFile(NamedTuple):
    base_offset: int
    path: str
    size: int
    index_path: str | None
    txn_index_path: str | None


class PartitionFiles(NamedTuple):
    """What a partition's directory holds, as the next start will see it."""

    path: str
    segments: list[SegmentFile]
    snapshots: list[int]
    leftovers: list[str]
    """Names that the next start removes."""
    swaps: list[SwapGroup]
    """Swaps of cleaned segments which the next start finishes; `segments` shows them as done."""


class FoundBatch(NamedTuple):
    """A batch whose first 32 bytes are right; the rest can be believed if it is `intact`."""

    position: int
    header: BatchHeader
    data: bytes
    intact: bool
    problem: str | None
    """What is wrong with it: damage, or an offset that does not follow."""


class Damage(NamedTuple):
    """Bytes from `position` to `end` that are no batch; `end` is where the next one was found, or the end."""

    position: int
    end: int
    problem: str


# What is there.


def find(files: Files, path: str) -> Target:
    """What `path` is; LOG_DIR_NOT_FOUND, saying what would have done, if it is nothing of a log."""
    if not path:
        raise _not_found("the path is empty")
    path = path.rstrip("/") or "/"
    try:
        entries = files.list(path)
    except FileNotFoundError:
        raise _not_found(f"{path} does not exist") from None
    except NotADirectoryError:
        return _find_segment(files, path)
    names = {entry.name for entry in entries}
    if PARTITION_FILE in names or _has_segments(entries):
        parent = parent_of(path)
        return Target(Kind.PARTITION, path, parent if _is_log_directory(files, parent) else None, [path], [])
    partitions: list[str] = []
    set_aside: list[str] = []
    for entry in sorted(entries):
        if not entry.is_dir or entry.name == "lost+found":
            continue
        if entry.name.endswith((DELETE_SUFFIX, CORRUPT_SUFFIX)):
            set_aside.append(entry.name)
            continue
        inside: list[Entry] = []
        with contextlib.suppress(FileNotFoundError):
            inside = files.list(f"{path}/{entry.name}")
        is_partition = any(one.name == PARTITION_FILE for one in inside) or _has_segments(inside)
        (partitions if is_partition else set_aside).append(
            f"{path}/{entry.name}" if is_partition else entry.name
        )
    if not partitions and not names & {DIRECTORY_FILE, CHECKPOINT_FILE}:
        raise _not_found(f"{path} is a directory, but holds no log")
    return Target(Kind.DIRECTORY, path, path, partitions, set_aside)


def _find_segment(files: Files, path: str) -> Target:
    directory, name = parent_of(path), path.rpartition("/")[2]
    if _SEGMENT_COPY.fullmatch(name) is None:
        raise _not_found(f"{path} is a file, but not a segment")
    above = parent_of(directory)
    return Target(Kind.SEGMENT, path, above if _is_log_directory(files, above) else None, [], [])


def _has_segments(entries: Sequence[Entry]) -> bool:
    return any(
        match is not None and match[2] == LOG_SUFFIX
        for match in (_NUMBERED.fullmatch(entry.name) for entry in entries)
    )


def _is_log_directory(files: Files, path: str) -> bool:
    return files.exists(f"{path}/{DIRECTORY_FILE}") or files.exists(f"{path}/{CHECKPOINT_FILE}")


def _not_found(what: str) -> TailraceError:
    return TailraceError(
        ErrorCode.LOG_DIR_NOT_FOUND,
        f"{what}. Give a log directory (log.dirs of a node; it holds {DIRECTORY_FILE}), the directory of one "
        f"partition in it, such as orders-0 (it holds {PARTITION_FILE}), or a segment file in that, such as "
        f"{offset_name(0)}{LOG_SUFFIX}.",
    )


def list_partition(files: Files, directory: str) -> PartitionFiles:
    sizes = {entry.name: entry.size for entry in files.list(directory) if not entry.is_dir}
    swaps = sorted(
        SwapGroup(int(match[1]), int(match[2])) for match in map(_SWAP_FILE.fullmatch, sizes) if match
    )
    actual = {name: name for name in sizes}
    for group in swaps:
        for step in plan_swap(set(actual), group):
            for source, target in step:
                actual[target] = actual.pop(source)
    numbers: dict[str, list[int]] = {}
    for name in actual:
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            numbers.setdefault(match[2], []).append(int(match[1]))

    def side(base: int, suffix: str) -> str | None:
        name = actual.get(offset_name(base) + suffix)
        return None if name is None else f"{directory}/{name}"

    segments = []
    for base in sorted(numbers.get(LOG_SUFFIX, [])):
        name = actual[offset_name(base) + LOG_SUFFIX]
        sides = side(base, INDEX_SUFFIX), side(base, TXN_INDEX_SUFFIX)
        segments.append(SegmentFile(base, f"{directory}/{name}", sizes[name], *sides))
    leaving = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
    leftovers = sorted(name for name in actual if name.endswith(leaving))
    return PartitionFiles(directory, segments, sorted(numbers.get(PRODUCERS_SUFFIX, [])), leftovers, swaps)


def lone_segment(files: Files, path: str) -> SegmentFile:
    """The segment file at `path`, whatever suffix follows its name, with the indexes of that name."""
    directory, name = parent_of(path), path.rpartition("/")[2]
    base, size = int(name[:20]), _size_of(files, path)
    sides = [f"{directory}/{offset_name(base)}{suffix}" for suffix in (INDEX_SUFFIX, TXN_INDEX_SUFFIX)]
    found = [
        side if name == offset_name(base) + LOG_SUFFIX and files.exists(side) else None for side in sides
    ]
    return SegmentFile(base, path, size, *found)


def _size_of(files: Files, path: str) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()


# Bytes.


class Source:
    """The bytes of one file, read in windows, with those laid over it that a redo would write back."""

    def __init__(self, file: File, patches: Sequence[tuple[int, Bytes]] = ()) -> None:
        self._file = file
        self._patches = patches
        self.size = max([file.size(), *(position + len(data) for position, data in patches)])
        self._start = 0
        self._window = b""

    def read(self, position: int, size: int) -> bytes:
        """Fewer bytes than asked for only where the file ends."""
        at = position - self._start
        if at < 0 or at + size > len(self._window):
            self._window = self._pread(max(size, WINDOW_BYTES), position)
            self._start, at = position, 0
        return self._window[at : at + size]

    def _pread(self, size: int, position: int) -> bytes:
        data = self._file.pread(size, position)
        stop = position + size
        touching = [(at, patch) for at, patch in self._patches if at < stop and at + len(patch) > position]
        if not touching:
            return data
        end = min(stop, self.size)
        patched = bytearray(data.ljust(end - position, b"\0"))
        for at, patch in touching:
            first, last = max(at, position), min(at + len(patch), end)
            patched[first - position : last - position] = patch[first - at : last - at]
        return bytes(patched)


def walk(source: Source, *, start: int = 0, expected_offset: int = 0) -> Iterator[FoundBatch | Damage]:
    """Everything from `start` to the end of the file: batches, and what is damaged between them.

    `expected_offset` is the least that the first batch may have; later ones must follow those before them.
    Behind damage, the walk goes on at the next batch header that can be found.
    """
    position, expected, end = start, expected_offset, source.size
    while position < end:
        try:
            header = parse_header(source.read(position, HEADER_SIZE))
        except TailraceError as error:
            left = end - position
            problem = reason(error) if left >= HEADER_SIZE else f"{left} bytes are too few for a batch"
            following = _find_header(source, position, end, expected)
            yield Damage(position, following, problem)
            position = following
            continue
        data = source.read(position, min(header.size, end - position))
        if len(data) < header.size:
            following = _find_header(source, position, end, expected)
            yield Damage(position, following, f"{len(data)} of the batch's {header.size} bytes are there")
            position = following
            continue
        found = _judge(position, header, data, expected)
        yield found
        expected = max(expected, header.base_offset if found.problem is not None else header.next_offset)
        position += header.size


def _judge(position: int, header: BatchHeader, data: bytes, expected: int) -> FoundBatch:
    try:
        check_batch(data)
    except TailraceError as error:
        return FoundBatch(position, header, data, False, reason(error))
    if header.base_offset < expected:
        problem = f"offset {header.base_offset} where {expected} or more was due"
        return FoundBatch(position, header, data, True, problem)
    return FoundBatch(position, header, data, True, None)


def reason(error: TailraceError) -> str:
    """The message without the position in the window, which would mislead."""
    return _AT_BYTE.sub("the batch", str(error.args[0]), count=1)


def _find_header(source: Source, broken: int, end: int, least: int) -> int:
    """Where the next batch begins behind a broken one, or `end`.

    Where the broken one's own size points comes first: its content may hold what looks like batches.
    """
    own = source.read(broken, HEADER_SIZE)
    if len(own) == HEADER_SIZE:
        guess = broken + int.from_bytes(own[8:12], "little")
        if guess == end or (guess > broken and _header_at(source.read(guess, HEADER_SIZE), 0, least)):
            return guess
    position = broken + 1
    while position + HEADER_SIZE <= end:
        window = source.read(position, min(WINDOW_BYTES, end - position))
        for at in _candidates(window, least):
            if _header_at(window, at, least):
                return position + at
        if len(window) < WINDOW_BYTES:
            break
        position += WINDOW_BYTES - HEADER_SIZE + 1
    return end


def _header_at(window: bytes, at: int, least: int) -> bool:
    try:
        return parse_header(window, at).base_offset >= least
    except TailraceError:
        return False


def _candidates(window: bytes, least: int) -> list[int]:
    """Places that may begin a header: a plausible offset, and the version where it belongs."""
    if len(window) < HEADER_SIZE:
        return []
    octets = np.frombuffer(window, np.uint8)
    found: list[int] = []
    for shift in range(_WORD):
        words = np.frombuffer(window, "<i8", (len(window) - HEADER_SIZE - shift) // _WORD + 1, shift)
        hits = np.flatnonzero((words >= least) & (words < least + _PLAUSIBLE_OFFSETS)) * _WORD + shift
        hits = hits[hits + HEADER_SIZE <= len(window)]
        found.extend(hits[octets[hits + _VERSION_AT] == 1].tolist())
    return sorted(found)


def proof_behind(source: Source, position: int, beyond: int, marks: SyncMarks) -> BatchHeader | None:
    """A batch behind `position` which was written when offset `beyond` had been synced already (ADR 1)."""
    while position + HEADER_SIZE <= source.size:
        window = source.read(position, min(WINDOW_BYTES, source.size - position))
        proof = find_proof(window, beyond, marks)
        if proof is not None or len(window) < WINDOW_BYTES:
            return proof
        position += WINDOW_BYTES - HEADER_SIZE + 1
    return None


def is_zero_from(source: Source, position: int) -> bool:
    while position < source.size:
        window = source.read(position, min(WINDOW_BYTES, source.size - position))
        if not window or window.strip(b"\0"):
            return False
        position += len(window)
    return True


# Derived files.


def read_index(files: Files, segment: SegmentFile, redo_end: int = 0) -> tuple[SparseIndex, int, int]:
    """The index, how many of its file's bytes can be trusted, and how many there are.

    `redo_end` is how long the segment will be at least when the journal has been written back.
    """
    data = b""
    if segment.index_path is not None:
        with contextlib.suppress(FileNotFoundError):
            data = files.read(segment.index_path)
    size = redo_end
    if data:
        # Asked only now: in a directory in use, the segment has grown before its index did.
        with contextlib.suppress(FileNotFoundError):
            size = max(size, _size_of(files, segment.path))
    index, valid = decode_index(data, segment.base_offset, size)
    return index, valid, len(data)


def position_before(source: Source, index: SparseIndex, offset: int) -> int:
    """Where to start walking to see all of a segment from `offset` on; 0 if the index is of no help."""
    floor = index.floor_offset(offset)
    if floor is not None:
        with contextlib.suppress(TailraceError):
            if parse_header(source.read(floor[1], HEADER_SIZE)).base_offset == floor[0]:
                return floor[1]
    return 0
