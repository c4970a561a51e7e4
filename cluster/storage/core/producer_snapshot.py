"""What a partition remembers of one producer, and the `.producers` snapshot file that keeps it.

A snapshot is derived data: it saves replaying the log from its start. It is decoded whole or not at all;
damage is STORAGE_CORRUPT, upon which the caller takes an older snapshot and replays more. Only
`ProducerStates` calls this module.

Layout, little-endian: magic "TRPS", version u16, two zero bytes, CRC-32C u32 of all that follows; map end
offset i64 (the snapshot covers the log below it), producers u32, batches u32, ended transactions u32; then
columns, each with one element per producer, per remembered batch (the producers' batches one after the
other), or per ended transaction. Columns keep 10,000 producers within milliseconds.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Bytes

REMEMBERED_BATCHES = 5
"""As many as a producer may have in flight, so that the retry of any of them finds its original offset."""

SEQUENCE_MASK = 2**31 - 1
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1

# Of a remembered batch: base sequence, last sequence, base offset, last offset, append timestamp.
_FIELDS = 5

_MAGIC = b"TRPS"
_VERSION = 1
_PREFIX = struct.Struct("<4sHHI")
_HEAD = struct.Struct("<qIII")
_PRODUCER_COLUMNS = ("<i8", "<i4", "<i4", "<i4", "<i8", "<i8", "<i8", "<i8", "<u1")
_BATCH_COLUMNS = ("<i4", "<u4", "<i8", "<i8")
_ENDED_COLUMNS = ("<i8", "<i8")


class ProducerState:
    """One producer in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "last_timestamp",
        "marker_epoch",
        "marker_offset",
        "next_sequence",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        # The last batches of `epoch`, oldest first, at most REMEMBERED_BATCHES of them. Their numbers stand
        # one after the other, _FIELDS for each: with thousands of producers, an object for each batch would
        # cost several times the memory, and most of the time that a snapshot takes.
        self.batches: list[int] = []
        # Follows the last batch; 0 while `batches` is empty, since every epoch starts there.
        self.next_sequence = 0
        # The largest timestamp of the last batch, for people who ask.
        self.last_timestamp = NO_TIMESTAMP
        # This broker's clock when the producer last wrote; decides about expiry.
        self.last_seen_ms = 0
        # Of the markers seen for this producer: the coordinator's and the producer's epoch, and the offset of
        # the last one.
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.marker_epoch = NO_PRODUCER_EPOCH
        self.marker_offset = NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-4] if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The last offset of its last batch or, when a marker has begun the epoch since, of that."""
        return self.batches[-2] if self.batches else self.marker_offset

    def find(self, base_sequence: int, last_sequence: int) -> tuple[int, int, int] | None:
        """Base offset, last offset and append timestamp of the batch with exactly these sequences."""
        batches = self.batches
        for at in range(0, len(batches), _FIELDS):
            if batches[at] == base_sequence and batches[at + 1] == last_sequence:
                return batches[at + 2], batches[at + 3], batches[at + 4]
        return None

    def remember(
        self,
        base_sequence: int,
        last_sequence: int,
        base_offset: int,
        last_offset: int,
        append_timestamp: int,
    ) -> None:
        batches = self.batches
        if len(batches) == REMEMBERED_BATCHES * _FIELDS:
            del batches[:_FIELDS]
        batches += (base_sequence, last_sequence, base_offset, last_offset, append_timestamp)
        self.next_sequence = (last_sequence + 1) & SEQUENCE_MASK

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches = []
        self.next_sequence = 0

    def copy(self) -> ProducerState:
        other = ProducerState(self.epoch)
        other.batches = self.batches.copy()
        other.next_sequence = self.next_sequence
        other.last_timestamp = self.last_timestamp
        other.last_seen_ms = self.last_seen_ms
        other.coordinator_epoch = self.coordinator_epoch
        other.marker_epoch = self.marker_epoch
        other.marker_offset = self.marker_offset
        return other


class Snapshot(NamedTuple):
    map_end_offset: int
    producers: dict[int, ProducerState]
    open_transactions: dict[int, int]
    """Producer id to first offset, in the order of the offsets."""
    ended_transactions: list[tuple[int, int]]
    """(marker offset, first offset), both strictly growing."""


def encode_snapshot(
    producers: Mapping[int, ProducerState],
    open_transactions: Mapping[int, int],
    ended_transactions: Iterable[tuple[int, int]],
    map_end_offset: int,
) -> bytes:
    states = list(producers.values())
    batches = _table(chain.from_iterable(state.batches for state in states), _FIELDS)
    ended = _table(chain.from_iterable(ended_transactions), 2)
    columns = [
        *_encoded(
            _PRODUCER_COLUMNS,
            [
                list(producers),
                [state.epoch for state in states],
                [state.coordinator_epoch for state in states],
                [state.marker_epoch for state in states],
                [state.marker_offset for state in states],
                [open_transactions.get(producer_id, NO_OFFSET) for producer_id in producers],
                [state.last_timestamp for state in states],
                [state.last_seen_ms for state in states],
                [len(state.batches) // _FIELDS for state in states],
            ],
        ),
        # The last sequence and the last offset lie equally far from their bases: one number says both.
        *_encoded(
            _BATCH_COLUMNS, [batches[:, 0], batches[:, 3] - batches[:, 2], batches[:, 2], batches[:, 4]]
        ),
        *_encoded(_ENDED_COLUMNS, [ended[:, 0], ended[:, 1]]),
    ]
    body = b"".join([_HEAD.pack(map_end_offset, len(states), len(batches), len(ended)), *columns])
    return _PREFIX.pack(_MAGIC, _VERSION, 0, google_crc32c.value(body)) + body


def decode_snapshot(data: Bytes) -> Snapshot:
    if len(data) < _PREFIX.size + _HEAD.size:
        raise _corrupt(f"it has only {len(data)} bytes")
    magic, version, _, crc = _PREFIX.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise _corrupt(
            f"it begins with {magic!r}, version {version}, instead of {_MAGIC!r}, version {_VERSION}"
        )
    body = bytes(memoryview(data)[_PREFIX.size :])
    if google_crc32c.value(body) != crc:
        raise _corrupt("its checksum is wrong")
    map_end, producer_count, batch_count, ended_count = _HEAD.unpack_from(body)
    counted = (
        (_PRODUCER_COLUMNS, producer_count),
        (_BATCH_COLUMNS, batch_count),
        (_ENDED_COLUMNS, ended_count),
    )
    expected = _HEAD.size + sum(np.dtype(kind).itemsize * count for kinds, count in counted for kind in kinds)
    if len(body) != expected:
        raise _corrupt(f"its content has {len(body)} bytes instead of {expected}")
    columns: list[NDArray[Any]] = []
    at = _HEAD.size
    for kinds, count in counted:
        for kind in kinds:
            columns.append(np.frombuffer(body, kind, count, at))
            at += columns[-1].nbytes
    return _build(map_end, columns)


def _build(map_end: int, columns: list[NDArray[Any]]) -> Snapshot:
    ids, epochs, coordinator_epochs, marker_epochs, marker_offsets, firsts, _, _, sizes = columns[:9]
    base_sequences, spans, base_offsets, append_times = columns[9:13]
    marker_ends, ended_firsts = columns[13:]
    if not (
        map_end >= 0
        and len(np.unique(ids)) == len(ids)
        and _within(ids, 0, None)
        and _within(epochs, 0, None)
        and _within(coordinator_epochs, NO_COORDINATOR_EPOCH, None)
        and _within(marker_epochs, NO_PRODUCER_EPOCH, None)
        and _within(marker_offsets, NO_OFFSET, map_end)
        and _within(firsts, NO_OFFSET, map_end)
        and _within(sizes, 0, REMEMBERED_BATCHES + 1)
        and int(sizes.sum(dtype=np.int64)) == len(base_sequences)
        and _within(base_sequences, 0, None)
        and _within(base_offsets, 0, map_end)
        and _within(map_end - base_offsets - spans.astype(np.int64), 1, None)
        and _within(ended_firsts, 0, map_end)
        and _within(marker_ends, 0, map_end)
        and _within(marker_ends - ended_firsts, 1, None)
        and bool((np.diff(marker_ends) > 0).all())
        and bool((np.diff(ended_firsts) > 0).all())
    ):
        raise _corrupt("its numbers contradict each other")
    batches = np.empty((len(spans), _FIELDS), np.int64)
    batches[:, 0] = base_sequences
    batches[:, 1] = (base_sequences.astype(np.int64) + spans) & SEQUENCE_MASK
    batches[:, 2] = base_offsets
    batches[:, 3] = base_offsets + spans.astype(np.int64)
    batches[:, 4] = append_times
    numbers: list[int] = batches.ravel().tolist()
    producers: dict[int, ProducerState] = {}
    at = 0
    rows = zip(*(column.tolist() for column in columns[:9]), strict=True)
    for producer_id, epoch, coordinator, marker_epoch, marker_offset, _, timestamp, seen_ms, size in rows:
        state = producers[producer_id] = ProducerState(epoch)
        state.coordinator_epoch = coordinator
        state.marker_epoch = marker_epoch
        state.marker_offset = marker_offset
        state.last_timestamp = timestamp
        state.last_seen_ms = seen_ms
        if size:
            state.batches = numbers[at : at + size * _FIELDS]
            state.next_sequence = (state.last_sequence + 1) & SEQUENCE_MASK
            at += size * _FIELDS
    opened = np.flatnonzero(firsts >= 0)
    opened = opened[np.argsort(firsts[opened], kind="stable")]
    return Snapshot(
        map_end,
        producers,
        dict(zip(ids[opened].tolist(), firsts[opened].tolist(), strict=True)),
        list(zip(marker_ends.tolist(), ended_firsts.tolist(), strict=True)),
    )


def _table(numbers: Iterable[int], width: int) -> NDArray[np.int64]:
    flat = array("q", numbers)
    return np.frombuffer(flat, np.int64).reshape(-1, width) if flat else np.empty((0, width), np.int64)


def _encoded(kinds: tuple[str, ...], columns: list[Any]) -> list[bytes]:
    return [
        np.asarray(column, np.int64).astype(kind).tobytes()
        for kind, column in zip(kinds, columns, strict=True)
    ]


def _within(column: NDArray[Any], low: int, end: int | None) -> bool:
    return not len(column) or (int(column.min()) >= low and (end is None or int(column.max()) < end))


def _corrupt(found: str) -> TailraceError:
    return TailraceError(
        ErrorCode.STORAGE_CORRUPT,
        f"a snapshot of producer states is damaged: {found}; an older one, or the log, is read instead",
    )
