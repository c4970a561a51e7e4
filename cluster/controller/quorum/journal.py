"""The Raft log of one controller: all entries in memory, and on disk in one file.

Invariants
- The first entry stands for everything before it: it is applied and part of a snapshot (or the entry with
  which every log begins), and is only there to be compared with. There is always a first entry.
- Indexes are consecutive and terms do not fall.
- `append` touches memory only. What was appended is durable after `sync`, and the caller sends no
  acknowledgement before that. Cutting and replacing are durable when they return.
- After an error of the disk nothing is written any more: what the file holds then is for the next start to
  find out, not for this process to guess.

Used by the Raft thread alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.frames import (
    HEADER_SIZE,
    SALT_BYTES,
    Entry,
    Header,
    Scan,
    decode_header,
    encode_file,
    encode_frame,
    scan,
)
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.files import File, Files, storage_error, write_atomic

__all__ = ["FIRST_ENTRY", "NO_OP", "Entry", "Journal"]

# Pysyncobj's command that does nothing; the entry with which every new log begins.
NO_OP = b"\x01"
FIRST_ENTRY = Entry(NO_OP, 1, 0)

# Growing a file makes the next sync several times as slow, so it grows by this much at a time.
FILL_BYTES = 256 << 10

_REMEDY = (
    "Do not remove the file alone. If a majority of the other controllers is healthy, start this one with an "
    "empty directory: they will fill it. Otherwise restore the whole directory from a backup."
)

log = get_logger(__name__)


class Journal:
    def __init__(self, files: Files, path: str, salt: bytes) -> None:
        """Use `create` or `open`."""
        self._files = files
        self._path = path
        self._salt = salt
        self._file: File = files.open(path, write=True)
        self._entries: list[Entry] = []
        self._offsets: list[int] = []
        self._end = HEADER_SIZE
        self._unwritten: list[bytes] = []
        self._written_end = HEADER_SIZE
        self._synced_end = HEADER_SIZE
        self._filled_end = HEADER_SIZE
        self._sealed_end = HEADER_SIZE
        self._failure: TailraceError | None = None

    @classmethod
    def create(cls, files: Files, path: str, entries: Sequence[Entry], salt: bytes) -> Journal:
        """A new file with these entries, durable; it replaces one that is there."""
        if not entries or len(salt) != SALT_BYTES:
            raise ValueError(f"a journal needs a first entry and {SALT_BYTES} bytes of salt")
        data, offsets = encode_file(entries, salt)
        write_atomic(files, path, data)
        journal = cls(files, path, salt)
        journal._hold(list(entries), offsets, len(data))
        journal._sealed_end = len(data)
        return journal

    @classmethod
    def open(cls, files: Files, path: str) -> Journal:
        """Read the file; cuts a torn tail. TailraceError if it is damaged elsewhere."""
        header, found = _load(files, path)
        journal = cls(files, path, header.salt)
        try:
            if found.torn_bytes:
                journal._file.truncate(found.end)
                journal._file.datasync()
                log.warning(
                    "raft_journal_tail_cut",
                    path=path,
                    position=found.end,
                    torn_bytes=found.torn_bytes,
                    last_index=found.entries[-1].index,
                )
            journal._hold(found.entries, found.offsets, found.end)
            journal._sealed_end = header.sealed_end
            journal._filled_end = max(found.end, journal._file.size())
        except BaseException:
            journal.close()
            raise
        return journal

    @staticmethod
    def read(files: Files, path: str) -> list[Entry]:
        """The entries of a file that stays as it is. TailraceError if it is damaged, but for its tail."""
        return _load(files, path)[1].entries

    # What is in it.

    @property
    def first_index(self) -> int:
        return self._entries[0].index

    @property
    def last_index(self) -> int:
        return self._entries[-1].index

    @property
    def last_term(self) -> int:
        return self._entries[-1].term

    @property
    def size_bytes(self) -> int:
        return self._end

    @property
    def durable(self) -> bool:
        return self._synced_end == self._end

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, position: int | slice) -> Entry | list[Entry]:
        """By position, as pysyncobj counts: 0 is the first entry that is there."""
        return self._entries[position]

    def term_at(self, index: int) -> int:
        return self._entries[self._position(index)].term

    def holds(self, index: int, term: int) -> bool:
        return self.first_index <= index <= self.last_index and self.term_at(index) == term

    def entries_from(self, index: int, max_bytes: int) -> tuple[Entry, ...]:
        """Entries from `index` on: at least one, and no more after `max_bytes` are reached."""
        first = self._position(index)
        last, size = first, 0
        while last < len(self._entries) and size < max_bytes:
            size += len(self._entries[last].command)
            last += 1
        return tuple(self._entries[first:last])

    def bytes_after(self, index: int) -> int:
        """How much of the file belongs to the entries after `index`."""
        if index >= self.last_index:
            return 0
        return self._end - self._offsets[max(0, index + 1 - self.first_index)]

    def first_of_term(self, index: int, not_before: int) -> int:
        """The first index of the run of equal terms that `index` belongs to, but not below `not_before`."""
        term = self.term_at(index)
        while index > max(not_before, self.first_index) and self.term_at(index - 1) == term:
            index -= 1
        return index

    def _position(self, index: int) -> int:
        position = index - self._entries[0].index
        if not 0 <= position < len(self._entries):
            raise IndexError(f"entry {index} is not among {self.first_index}..{self.last_index}")
        return position

    # How it changes.

    def append(self, entry: Entry) -> None:
        if entry.index != self.last_index + 1 or entry.term < self.last_term:
            raise ValueError(
                f"entry {entry.index} of term {entry.term} cannot follow {self.last_index}"
                f" of term {self.last_term}"
            )
        frame = encode_frame(entry, self._salt, self._end, self._synced_end)
        self._entries.append(entry)
        self._offsets.append(self._end)
        self._unwritten.append(frame)
        self._end += len(frame)

    def sync(self) -> None:
        """Make everything that was appended durable; one write and one sync for all of it."""
        if self.durable:
            return
        self._attempt("writing the Raft journal", self._write_and_sync)

    def cut_from(self, index: int) -> None:
        """Remove `index` and everything after it; never the first entry."""
        position = self._position(index)
        if not position:
            raise ValueError(f"entry {index} is the first and cannot be cut")
        if self._offsets[position] < self._sealed_end:
            # The header vouches for what is to be cut.
            self._replace(self._entries[:position])
            return
        # Synced at once: a tail of new frames over a half-removed old one could not be told from damage.
        self._attempt("writing the Raft journal", self._write_and_sync)
        self._attempt("cutting the Raft journal", lambda: self._cut_at(position))

    def trim_before(self, index: int) -> None:
        """Forget the entries before `index`, which becomes the first one."""
        self._replace(self._entries[self._position(index) :])

    def restart_at(self, index: int, term: int) -> None:
        """Forget everything: the log goes on after a snapshot that ends with this entry."""
        self._replace([Entry(NO_OP, index, term)])

    def close(self) -> None:
        """Release the file. What was not synced is not written: nobody was promised it."""
        self._file.close()

    def _write_and_sync(self) -> None:
        if self._unwritten:
            if self._end > self._filled_end:
                filled_end = self._end + FILL_BYTES
                self._unwritten.append(bytes(filled_end - self._end))
                self._filled_end = filled_end
            self._file.pwritev(self._unwritten, self._written_end)
            self._unwritten = []
            self._written_end = self._end
        self._file.datasync()
        self._synced_end = self._end

    def _cut_at(self, position: int) -> None:
        end = self._offsets[position]
        self._file.truncate(end)
        self._file.datasync()
        del self._entries[position:]
        del self._offsets[position:]
        self._end = self._written_end = self._synced_end = self._filled_end = end

    def _replace(self, entries: list[Entry]) -> None:
        self._attempt("replacing the Raft journal", lambda: self._write_anew(entries))

    def _write_anew(self, entries: list[Entry]) -> None:
        data, offsets = encode_file(entries, self._salt)
        write_atomic(self._files, self._path, data)
        file = self._files.open(self._path, write=True)
        self._file.close()
        self._file = file
        self._hold(entries, offsets, len(data))
        self._sealed_end = len(data)

    def _hold(self, entries: list[Entry], offsets: list[int], end: int) -> None:
        """These entries are in the file, durably, and end there."""
        self._entries, self._offsets = entries, offsets
        self._unwritten = []
        self._end = self._written_end = self._synced_end = self._filled_end = end

    def _attempt(self, doing: str, action: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            action()
        except OSError as error:
            self._fail(storage_error(doing, error, self._path), error)

    def _fail(self, failure: TailraceError, cause: OSError) -> NoReturn:
        self._failure = failure
        raise failure from cause


def _load(files: Files, path: str) -> tuple[Header, Scan]:
    data = files.read(path)
    header = decode_header(data)
    if header is None:
        raise _corrupt(path, 0, "the file does not begin with the header of a Raft journal")
    found = scan(data, header)
    if found.problem or not found.entries:
        raise _corrupt(path, found.end, found.problem or "there is no entry at all")
    return header, found


def _corrupt(path: str, position: int, problem: str) -> TailraceError:
    return TailraceError(
        ErrorCode.STORAGE_CORRUPT, f"{path} is damaged at byte {position}: {problem}. {_REMEDY}"
    )
