"""The messages between voters, and their bytes.

Owns the exact shapes that may travel and a codec that is total: `encode` takes these types and nothing
else, `decode` gives one of them or raises `MalformedMessageError`, whatever the bytes are. No object is ever
rebuilt from a description in the message, as pickle does it.

A message is one byte for its kind and fixed little-endian fields; entries and chunks follow with lengths.
Numbers that are not plausible (beyond `LARGEST`) are malformed, so that sums of them stay small integers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tailrace.cluster.controller.quorum.frames import Entry
from tailrace.cluster.controller.quorum.votes import Phase

LARGEST = 2**62


class MalformedMessageError(Exception):
    pass


class PreVoteRequest(NamedTuple):
    """Would you vote for me in `next_term`? Changes no term and no vote at either side.

    `phase`, here and elsewhere, is the sender's (`votes.Phase`).
    """

    next_term: int
    last_index: int
    last_term: int
    phase: int


class PreVoteResponse(NamedTuple):
    """`term` is the responder's own; `next_term` says which question is answered."""

    term: int
    next_term: int
    granted: bool
    phase: int


class VoteRequest(NamedTuple):
    term: int
    last_index: int
    last_term: int
    phase: int


class VoteGranted(NamedTuple):
    term: int


class AppendEntries(NamedTuple):
    """`entries` follow the entry at `prev_index`; without any it is a heartbeat.

    `founding`: as far as the leader knows, the cluster is being founded just now.
    """

    term: int
    commit_index: int
    prev_index: int
    prev_term: int
    founding: bool
    entries: tuple[Entry, ...]


class AppendResult(NamedTuple):
    """Success: my log is durable and equal to yours before `next_index`. Otherwise: try again from there."""

    term: int
    next_index: int
    success: bool
    caught_up: bool


class SnapshotChunk(NamedTuple):
    """A part of the file of the snapshot that ends with this entry. Without data it is a heartbeat."""

    term: int
    commit_index: int
    snapshot_index: int
    snapshot_term: int
    size: int
    offset: int
    data: bytes


class SnapshotProgress(NamedTuple):
    """I have the first `offset` bytes of the snapshot that ends with this entry."""

    term: int
    snapshot_index: int
    offset: int


class HandOver(NamedTuple):
    """From a leader that stops to the follower that is to be elected next."""

    term: int


class StaleTerm(NamedTuple):
    """The answer to a leader of an older term: this is the term I have seen."""

    term: int


Message = (
    PreVoteRequest
    | PreVoteResponse
    | VoteRequest
    | VoteGranted
    | AppendEntries
    | AppendResult
    | SnapshotChunk
    | SnapshotProgress
    | HandOver
    | StaleTerm
)

_FIXED: dict[int, tuple[type[Message], struct.Struct]] = {
    1: (PreVoteRequest, struct.Struct("<BQQQB")),
    2: (PreVoteResponse, struct.Struct("<BQQ?B")),
    3: (VoteRequest, struct.Struct("<BQQQB")),
    4: (VoteGranted, struct.Struct("<BQ")),
    6: (AppendResult, struct.Struct("<BQQ??")),
    8: (SnapshotProgress, struct.Struct("<BQQQ")),
    9: (HandOver, struct.Struct("<BQ")),
    10: (StaleTerm, struct.Struct("<BQ")),
}
_KINDS = {cls: (kind, layout) for kind, (cls, layout) in _FIXED.items()}
_APPEND_KIND, _CHUNK_KIND = 5, 7
_APPEND = struct.Struct("<BQQQQ?I")  # kind, term, commit, previous index, previous term, founding, entries
_ENTRY = struct.Struct("<QI")  # term, length; the command follows
_CHUNK = struct.Struct("<BQQQQQQI")  # kind, term, commit, index, its term, size, offset, length


def encode(message: Message) -> bytes:
    if isinstance(message, AppendEntries):
        return _encode_append(message)
    if isinstance(message, SnapshotChunk):
        *fields, data = message
        return _CHUNK.pack(_CHUNK_KIND, *fields, len(data)) + data
    kind, layout = _KINDS[type(message)]
    return layout.pack(kind, *message)


def decode(data: bytes) -> Message:
    kind = data[0] if data else 0
    try:
        if kind == _APPEND_KIND:
            return _decode_append(data)
        if kind == _CHUNK_KIND:
            return _decode_chunk(data)
        if kind in _FIXED:
            return _decode_fixed(data, kind)
    except struct.error as error:
        raise MalformedMessageError(f"kind {kind} with {len(data)} bytes: {error}") from None
    raise MalformedMessageError(f"unknown kind {kind}")


def _decode_fixed(data: bytes, kind: int) -> Message:
    cls, layout = _FIXED[kind]
    _, *fields = layout.unpack(data)
    _check_range(fields)
    message: Message = cls(*fields)
    if isinstance(message, PreVoteRequest | PreVoteResponse | VoteRequest) and message.phase > max(Phase):
        raise MalformedMessageError(f"no phase {message.phase}")
    if layout.pack(kind, *message) != data:
        raise MalformedMessageError(f"kind {kind}: a flag is neither 0 nor 1")
    return message


def _encode_append(message: AppendEntries) -> bytes:
    *fields, entries = message
    prev_index = message.prev_index
    parts = [_APPEND.pack(_APPEND_KIND, *fields, len(entries))]
    for number, (command, index, entry_term) in enumerate(entries, 1):
        if index != prev_index + number:
            raise ValueError(f"entry {index} does not follow {prev_index + number - 1}")
        parts.append(_ENTRY.pack(entry_term, len(command)))
        parts.append(command)
    return b"".join(parts)


def _decode_append(data: bytes) -> AppendEntries:
    _, term, commit, prev_index, prev_term, founding, count = _APPEND.unpack_from(data)
    _check_range((term, commit, prev_index, prev_term))
    if prev_term > term:
        raise MalformedMessageError(f"an entry of term {prev_term} before a message of term {term}")
    entries = []
    position, last_term = _APPEND.size, prev_term
    for index in range(prev_index + 1, prev_index + 1 + count):
        entry_term, length = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        command = data[position : position + length]
        position += length
        if position > len(data) or not command:
            raise MalformedMessageError("an entry is cut off or empty")
        if not last_term <= entry_term <= term:
            raise MalformedMessageError(
                f"the terms of entries go from {last_term} to {entry_term} in term {term}"
            )
        last_term = entry_term
        entries.append(Entry(command, index, entry_term))
    _check_end(data, position)
    return AppendEntries(term, commit, prev_index, prev_term, founding, tuple(entries))


def _decode_chunk(data: bytes) -> SnapshotChunk:
    _, term, commit, index, index_term, size, offset, length = _CHUNK.unpack_from(data)
    _check_range((term, commit, index, index_term, size, offset))
    _check_end(data, _CHUNK.size + length)
    return SnapshotChunk(term, commit, index, index_term, size, offset, data[_CHUNK.size :])


def _check_range(fields: list[int] | tuple[int, ...]) -> None:
    if any(field > LARGEST for field in fields):
        raise MalformedMessageError("a number is too large to be true")


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise MalformedMessageError(f"{len(data)} bytes instead of {position}")
