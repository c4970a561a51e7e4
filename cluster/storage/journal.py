"""The journal of a log directory: makes many small appends durable with one sync.

A frame holds the appends of one group commit: a table of (log, segment, position, length) and the
bytes. The same bytes are also written to the segments, unsynced, so the journal is only read after a
crash: `redo` writes what it holds back to where it belongs.

Invariants
- Frames are written one at a time and synced before the next, so only the last can be torn.
- Two files take turns, each up to its capacity (four times that while the other is not free). A file is
  reused only after every segment that it covers has been synced; each frame says which generations are
  still needed (`live_from`), and redo ignores older ones.
- Redo repeats physical writes, so it must never see a write that a later change of the same file has
  made void. Whoever truncates a log or replaces its segments calls `void` first.

- A frame's checksum covers the directory's secret and the frame's position, so that no record value, wherever
  it comes to lie in the file, can pass for a frame.

One writer job at a time calls `write`, `sync`, `void`; `release` may come from another thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import google_crc32c

from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.files import File, Files

FRAME_ALIGNMENT = 4096
OVERFLOW_FACTOR = 4
FILL_BYTES = 4 << 20
MAGIC = b"TRJ1"
_FRAME = struct.Struct("<4sIQQQII")  # magic, crc, generation, sequence, live_from, entries, payload bytes
_CHECKED_FROM = 8
_ENTRY = struct.Struct("<B16sIQII")  # kind, topic id, partition, segment base, position, length
_WRITE, _VOID = 1, 2

FILE_NAMES = ("journal-0", "journal-1")


class LogKey(NamedTuple):
    """Which log a frame speaks of: by topic id, so that a topic created anew is another log."""

    topic_id: bytes
    partition: int


class JournalWrite(NamedTuple):
    log: LogKey
    segment_base: int
    position: int
    buffers: Sequence[Bytes]
    size: int


class RedoWrite(NamedTuple):
    log: LogKey
    segment_base: int
    position: int
    data: memoryview


class Redo(NamedTuple):
    """What a crash left to be repeated, in order; `damaged_frames` are holes in the sequence."""

    writes: list[RedoWrite]
    next_generation: int
    damaged_frames: int


class Journal:
    def __init__(
        self, files: Files, directory: str, *, generation: int, capacity: int, secret: bytes
    ) -> None:
        self._handles: list[File] = [
            files.open(f"{directory}/{name}", write=True, create=True) for name in FILE_NAMES
        ]
        files.sync_dir(directory)
        self._capacity = capacity
        self._secret = secret
        self.generation = generation
        self._live_from = generation
        self._written_live_from = 0
        self._durable_live_from = 0
        self._sequence = 0
        self._position = 0
        # How far each file has been written: a sync that makes a file grow costs several times as much.
        self._filled = [handle.size() for handle in self._handles]
        self._covered: dict[int, set[str]] = {generation: set()}
        self._last_written: dict[LogKey, int] = {}

    @classmethod
    def start(cls, files: Files, directory: str, *, generation: int, capacity: int, secret: bytes) -> Journal:
        """A journal whose first frame, already synced, makes all older generations history."""
        journal = cls(files, directory, generation=generation, capacity=capacity, secret=secret)
        journal._write_frame([], [])
        journal.sync()
        return journal

    def room_for(self, writes: Sequence[JournalWrite]) -> bool:
        """Whether a frame of `writes` fits now, taking the other file into use if need be."""
        needed = _frame_size(len(writes), sum(write.size for write in writes))
        if self._position + needed <= self._capacity:
            return True
        if self._live_from < self.generation:
            # The other file still waits for its segments: rather outgrow this one for a while than sync
            # every log by itself, which costs most when there is most to do.
            return self._position + needed <= self._capacity * OVERFLOW_FACTOR
        if needed > self._capacity:
            return False
        if self._durable_live_from < self.generation:
            # The other file's frames must be history on the disk, too, before they are written over.
            self._write_frame([], [])
            self.sync()
        self.generation += 1
        self._position = 0
        self._covered[self.generation] = set()
        return True

    def write(self, writes: Sequence[JournalWrite], covered_paths: Iterable[str]) -> None:
        """Write one frame; it counts only after `sync`. The caller has asked `room_for` before."""
        table: list[bytes] = []
        payload: list[Bytes] = []
        for log, base, position, buffers, size in writes:
            table.append(_ENTRY.pack(_WRITE, log.topic_id, log.partition, base, position, size))
            payload.extend(buffers)
            self._last_written[log] = self.generation
        self._write_frame(table, payload)
        self._covered[self.generation].update(covered_paths)

    def sync(self) -> None:
        self._handles[self.generation % 2].datasync()
        self._durable_live_from = self._written_live_from

    def needs_void(self, log: LogKey) -> bool:
        """Whether a redo, as the disk stands now, could still repeat writes to `log`."""
        return self._last_written.get(log, -1) >= self._durable_live_from

    def void(self, log: LogKey) -> None:
        """Make every earlier write to `log` void, durably. The log's files must be synced before."""
        self.room_for([])  # Takes the other file into use when this one is full; a void always goes in.
        self._write_frame([_ENTRY.pack(_VOID, log.topic_id, log.partition, 0, 0, 0)], [])
        self.sync()
        self._last_written.pop(log, None)

    def to_release(self) -> tuple[int, set[str]] | None:
        """The full generation that waits for its segments to be synced, if there is one."""
        if self._live_from == self.generation:
            return None
        return self._live_from, self._covered[self._live_from]

    def release(self, generation: int) -> None:
        """All segments that `generation` covers are synced: its file may be reused."""
        self._live_from = generation + 1
        self._covered.pop(generation, None)

    def forget_path(self, path: str) -> None:
        """The file at `path` was synced with all that it holds, or is gone: no need to sync it again."""
        for paths in list(self._covered.values()):
            paths.discard(path)

    @property
    def covered_paths(self) -> set[str]:
        return set().union(*list(self._covered.values()))

    def close(self) -> None:
        for handle in self._handles:
            handle.close()

    def _write_frame(self, table: list[bytes], payload: list[Bytes]) -> None:
        payload_size = sum(map(len, payload))
        # A release in another thread must not make the frame and our memory of it differ.
        self._written_live_from = self._live_from
        header = _FRAME.pack(
            MAGIC, 0, self.generation, self._sequence, self._written_live_from, len(table), payload_size
        )
        crc = _seed(self._secret, self._position)
        crc = google_crc32c.extend(crc, header[_CHECKED_FROM:] + b"".join(table))
        for buffer in payload:
            crc = google_crc32c.extend(crc, buffer if isinstance(buffer, bytes) else bytes(buffer))
        frame = MAGIC + crc.to_bytes(4, "little") + header[_CHECKED_FROM:]
        self._fill(self._position + _frame_size(len(table), payload_size))
        self._handles[self.generation % 2].pwritev([frame, *table, *payload], self._position)
        self._position += _frame_size(len(table), payload_size)
        self._sequence += 1

    def _fill(self, end: int) -> None:
        """Let the file grow by a few MiB of zeros at a time, so that most syncs find its size unchanged."""
        number = self.generation % 2
        filled = self._filled[number]
        if end > filled:
            step = min(FILL_BYTES, self._capacity)
            size = max(end - filled, step)
            self._handles[number].pwritev([bytes(size)], filled)
            self._filled[number] = filled + size


def _frame_size(entries: int, payload: int) -> int:
    size = _FRAME.size + entries * _ENTRY.size + payload
    return -(-size // FRAME_ALIGNMENT) * FRAME_ALIGNMENT


class _Frame(NamedTuple):
    generation: int
    sequence: int
    live_from: int
    entries: int
    payload_size: int
    body: memoryview


def _seed(secret: bytes, position: int) -> int:
    return int(google_crc32c.value(secret + position.to_bytes(8, "little")))


def read_redo(files: Files, directory: str, secret: bytes) -> Redo:
    """What the journal files of `directory` still hold. Total: damage gives fewer frames, never an error."""
    frames: list[_Frame] = []
    for name in FILE_NAMES:
        path = f"{directory}/{name}"
        if files.exists(path):
            frames.extend(_parse_frames(memoryview(files.read(path)), secret))
    if not frames:
        return Redo([], 1, 0)
    frames.sort(key=lambda frame: (frame.generation, frame.sequence))
    newest = frames[-1]
    live = [frame for frame in frames if frame.generation >= newest.live_from]
    damaged = newest.sequence - live[0].sequence + 1 - len(live)
    return Redo(_live_writes(live), newest.generation + 1, damaged)


def _parse_frames(data: memoryview, secret: bytes) -> Iterable[_Frame]:
    position = 0
    while position + _FRAME.size <= len(data):
        frame = _parse_frame(data, position, secret)
        if frame is None:
            position += FRAME_ALIGNMENT
        else:
            yield frame
            position += _frame_size(frame.entries, frame.payload_size)


def _parse_frame(data: memoryview, position: int, secret: bytes) -> _Frame | None:
    magic, crc, generation, sequence, live_from, entries, payload = _FRAME.unpack_from(data, position)
    if magic != MAGIC:
        return None
    end = position + _FRAME.size + entries * _ENTRY.size + payload
    if end > len(data):
        return None
    checked = bytes(data[position + _CHECKED_FROM : end])
    if google_crc32c.extend(_seed(secret, position), checked) != crc:
        return None
    return _Frame(generation, sequence, live_from, entries, payload, data[position + _FRAME.size : end])


def _live_writes(frames: Sequence[_Frame]) -> list[RedoWrite]:
    writes: list[RedoWrite] = []
    voided_at: dict[LogKey, int] = {}
    for frame in frames:
        payload = frame.entries * _ENTRY.size
        for number in range(frame.entries):
            kind, topic_id, partition, base, position, size = _ENTRY.unpack_from(
                frame.body, number * _ENTRY.size
            )
            log = LogKey(topic_id, partition)
            if kind == _VOID:
                voided_at[log] = len(writes)
            else:
                writes.append(RedoWrite(log, base, position, frame.body[payload : payload + size]))
            payload += size
    return [write for number, write in enumerate(writes) if number >= voided_at.get(write.log, 0)]
