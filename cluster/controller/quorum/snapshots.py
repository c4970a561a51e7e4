"""Snapshot files: the whole state of the machine after one entry of the log, in a file named by its index.

A file comes into being beside its name, is synced and renamed, and never changes afterwards; the one with
the highest index counts. So a snapshot that is being made here and one that arrives from a leader do not
meet, and whoever reads an older one goes on reading while its name is removed.

The file travels to followers as it is. Its checksum covers header and state; a snapshot is loaded only after
it was checked.
"""

from __future__ import annotations

import contextlib
import struct
from typing import NamedTuple

import google_crc32c

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.files import TEMPORARY_SUFFIX, File, Files, write_atomic

PREFIX = "snapshot-"
INCOMING = "incoming-snapshot" + TEMPORARY_SUFFIX
MAGIC = b"TRRAFTS1"
_HEADER = struct.Struct("<8sIQQQQQQ")  # magic, crc, index, term, version, epoch, created, state bytes
_CHECKED_FROM = 12

HEADER_SIZE = _HEADER.size

_REMEDY = (
    "If a majority of the other controllers is healthy, start this one with an empty directory: they will "
    "fill it. Otherwise restore the whole directory from a backup."
)


class SnapshotInfo(NamedTuple):
    """What a snapshot stands for: the log up to this entry."""

    last_index: int
    last_term: int
    version: int
    epoch: int
    created_ms: int
    state_bytes: int

    @property
    def file_bytes(self) -> int:
        return HEADER_SIZE + self.state_bytes


class Snapshot(NamedTuple):
    info: SnapshotInfo
    state: bytes


def snapshot_path(directory: str, index: int) -> str:
    return f"{directory}/{PREFIX}{index:020d}"


def snapshot_indexes(files: Files, directory: str) -> list[int]:
    """The indexes of the snapshots that are there, lowest first."""
    names = [entry.name for entry in files.list(directory) if not entry.is_dir]
    numbers = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
    return sorted(int(number) for number in numbers if number.isdecimal())


def encode_snapshot(info: SnapshotInfo, state: bytes) -> bytes:
    header = _HEADER.pack(MAGIC, 0, *info)
    crc = google_crc32c.extend(google_crc32c.value(header[_CHECKED_FROM:]), state)
    return b"".join((MAGIC, crc.to_bytes(4, "little"), header[_CHECKED_FROM:], state))


def decode_snapshot(data: bytes) -> Snapshot | str:
    """The snapshot, or what is wrong with these bytes."""
    if len(data) < HEADER_SIZE or not data.startswith(MAGIC):
        return "it does not begin with the header of a snapshot"
    _, crc, *fields = _HEADER.unpack_from(data)
    info = SnapshotInfo(*fields)
    if len(data) != info.file_bytes:
        return f"it has {len(data)} bytes, its header says {info.file_bytes}"
    actual = google_crc32c.value(data[_CHECKED_FROM:])
    if actual != crc:
        return f"its checksum is {actual:08x}, its header says {crc:08x}"
    return Snapshot(info, data[HEADER_SIZE:])


def write_snapshot(files: Files, directory: str, info: SnapshotInfo, state: bytes) -> None:
    """Durable when it returns."""
    write_atomic(files, snapshot_path(directory, info.last_index), encode_snapshot(info, state))


def read_snapshot(files: Files, directory: str, index: int) -> Snapshot:
    path = snapshot_path(directory, index)
    found = decode_snapshot(files.read(path))
    if isinstance(found, Snapshot) and found.info.last_index != index:
        found = f"it holds the state after entry {found.info.last_index}"
    if isinstance(found, str):
        raise TailraceError(ErrorCode.STORAGE_CORRUPT, f"{path} is damaged: {found}. {_REMEDY}")
    return found


def remove_snapshots_before(files: Files, directory: str, index: int) -> None:
    """Older snapshots only cost space, so a failure to remove one waits for the next time."""
    for older in snapshot_indexes(files, directory):
        if older < index:
            with contextlib.suppress(OSError):
                files.remove(snapshot_path(directory, older))


class IncomingSnapshot:
    """A snapshot on its way from a leader, collected in a file beside."""

    def __init__(self, files: Files, directory: str, index: int, term: int, size: int) -> None:
        self.index = index
        self.term = term
        self.size = size
        self.received = 0
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{INCOMING}"
        self._file: File = files.open(self._path, create=True)
        self._file.truncate(0)

    def is_of(self, index: int, term: int, size: int) -> bool:
        return (self.index, self.term, self.size) == (index, term, size)

    def add(self, offset: int, data: bytes) -> None:
        """Take a chunk if it is the next one; others are left to be sent again."""
        if offset == self.received and offset + len(data) <= self.size:
            self._file.pwritev([data], offset)
            self.received += len(data)

    @property
    def complete(self) -> bool:
        return self.received == self.size

    def finish(self) -> Snapshot | str:
        """Check the whole and give it its name, durably; or say what is wrong, and forget it."""
        found = decode_snapshot(self._file.pread(self.size, 0))
        if isinstance(found, Snapshot) and (found.info.last_index, found.info.last_term) != (
            self.index,
            self.term,
        ):
            found = f"it holds the state after entry {found.info.last_index} of term {found.info.last_term}"
        if isinstance(found, str):
            self.discard()
            return found
        self._file.datasync()
        self._file.close()
        self._files.rename(self._path, snapshot_path(self._directory, self.index))
        self._files.sync_dir(self._directory)
        return found

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        self.close()
        self._files.remove(self._path)
