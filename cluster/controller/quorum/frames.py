"""The bytes of the Raft journal: a header, then a frame for each entry.

    header  magic, crc, salt, sealed end
    frame   crc, length, synced, index, term, command, zeros to a multiple of 8

- A file comes into being as a whole: it is written beside, synced and renamed. The header's `sealed end` is
  its size at that moment, so whatever is broken before it was whole once, and is damage.
- A frame's `synced` is how much of the file was durable when the frame was written. If a frame is broken
  and a later whole one says that its place was durable, that is damage; if none says so, the broken frame
  belongs to the last writes, which were not synced and hence not acknowledged: a torn tail.
- The checksum covers the salt and the frame's position, so nothing that a command contains can pass for a
  frame.
- Space is filled with zeros ahead of the frames, so zeros after the last frame are a clean end.

Pure: bytes in, entries out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import google_crc32c

MAGIC = b"TRRAFTJ1"
SALT_BYTES = 16
ALIGNMENT = 8
_HEADER = struct.Struct("<8sI4x16sQ")  # magic, crc, salt, sealed end
_HEADER_CHECKED = struct.Struct("<16sQ")
_FRAME = struct.Struct("<IIQQQ")  # crc, length, synced, index, term
_CHECKED_FROM = 4

HEADER_SIZE = _HEADER.size
assert HEADER_SIZE % ALIGNMENT == 0


class Entry(NamedTuple):
    """An entry of the Raft log; pysyncobj reads it as a plain tuple."""

    command: bytes
    index: int  # type: ignore[assignment]  # Nobody needs `tuple.index` of an entry.
    term: int


class Header(NamedTuple):
    salt: bytes
    sealed_end: int


class Scan(NamedTuple):
    """What a journal file holds. `problem` is "" if it can be used after cutting it at `end`."""

    entries: list[Entry]
    offsets: list[int]
    end: int
    torn_bytes: int
    problem: str


def frame_size(entry: Entry) -> int:
    return _FRAME.size + -(-len(entry.command) // ALIGNMENT) * ALIGNMENT


def encode_header(header: Header) -> bytes:
    crc = google_crc32c.value(MAGIC + _HEADER_CHECKED.pack(*header))
    return _HEADER.pack(MAGIC, crc, *header)


def decode_header(data: bytes) -> Header | None:
    """None if the file does not begin with a whole header."""
    if len(data) < HEADER_SIZE:
        return None
    header = Header(*_HEADER.unpack_from(data)[2:])
    return header if encode_header(header) == data[:HEADER_SIZE] else None


def encode_frame(entry: Entry, salt: bytes, position: int, synced: int) -> bytes:
    command, index, term = entry
    checked = _FRAME.pack(0, len(command), synced, index, term)[_CHECKED_FROM:]
    crc = _checksum(salt, position, checked, command)
    padding = bytes(-len(command) % ALIGNMENT)
    return b"".join((crc.to_bytes(4, "little"), checked, command, padding))


def encode_file(entries: Iterable[Entry], salt: bytes) -> tuple[bytes, list[int]]:
    """A whole file that holds just these entries, and where each of their frames begins."""
    chosen = list(entries)
    end = HEADER_SIZE + sum(map(frame_size, chosen))
    parts = [encode_header(Header(salt, end))]
    offsets = []
    position = HEADER_SIZE
    for entry in chosen:
        parts.append(encode_frame(entry, salt, position, end))
        offsets.append(position)
        position += len(parts[-1])
    return b"".join(parts), offsets


def scan(data: bytes, header: Header) -> Scan:
    entries: list[Entry] = []
    offsets: list[int] = []
    position = HEADER_SIZE
    while (frame := _read_frame(data, header.salt, position)) is not None:
        entry, _ = frame
        if entries and not _follows(entries[-1], entry):
            problem = f"entry {entry.index} of term {entry.term} stands after entry {entries[-1].index} of "
            return Scan(entries, offsets, position, 0, f"{problem}term {entries[-1].term}")
        entries.append(entry)
        offsets.append(position)
        position += frame_size(entry)
    rest = data[position:]
    torn = len(rest.rstrip(b"\0"))
    problem = ""
    if position < header.sealed_end:
        problem = f"the entry is broken, although the file was whole up to byte {header.sealed_end}"
    elif torn:
        last = entries[-1] if entries else Entry(b"", 0, 0)
        witness = _later_witness(data, header.salt, position, last)
        if witness is not None:
            problem = f"the entry is broken, although entry {witness.index} was written after it was durable"
    return Scan(entries, offsets, position, torn, problem)


def _follows(before: Entry, entry: Entry) -> bool:
    return entry.index == before.index + 1 and entry.term >= before.term


def _later_witness(data: bytes, salt: bytes, broken_at: int, last: Entry) -> Entry | None:
    """A whole frame after `broken_at` that was written when that place was durable already."""
    for position in range(broken_at + ALIGNMENT, len(data) - _FRAME.size + 1, ALIGNMENT):
        _, _, synced, index, term = _FRAME.unpack_from(data, position)
        if broken_at < synced <= position and index > last.index and term >= last.term:
            frame = _read_frame(data, salt, position)
            if frame is not None:
                return frame[0]
    return None


def _read_frame(data: bytes, salt: bytes, position: int) -> tuple[Entry, int] | None:
    if position + _FRAME.size > len(data):
        return None
    crc, length, synced, index, term = _FRAME.unpack_from(data, position)
    start = position + _FRAME.size
    if not length or start + length > len(data):
        return None
    command = data[start : start + length]
    checked = data[position + _CHECKED_FROM : start]
    if _checksum(salt, position, checked, command) != crc:
        return None
    return Entry(command, index, term), synced


def _checksum(salt: bytes, position: int, checked: bytes, command: bytes) -> int:
    crc = google_crc32c.value(salt + position.to_bytes(8, "little") + checked)
    return int(google_crc32c.extend(crc, command))
