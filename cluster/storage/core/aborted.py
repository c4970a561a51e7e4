"""The index of aborted transactions of one segment: what `read_committed` must leave out.

An entry belongs to the segment that holds the *marker*, so the entries of a log, segment by segment, are
ordered by the marker's offset. The transaction's records may lie in earlier segments: a reader of
[start, end) asks the segment of `start` and the ones after it, until one of them `settles(end)`.

The log appends what `ProducerStates.apply` returns, appends `encode_frame` to the `.txnindex` file, and reads
it back with `decode_aborted`. The file is derived data, but unlike the sparse index a missing entry would
show aborted records to readers: if fewer bytes are valid than the file has, or the segment lies past the
recovery point, the caller must rebuild the index by replaying the log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from struct import Struct, pack
from typing import NamedTuple

from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.core.index import pack_frame, read_frames

_ENTRY = Struct("<qqqq")
_PURPOSE = b"aborted transactions"


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    """The base offset of the transaction's first batch in this partition."""
    last_offset: int
    """The last offset of the control batch with the abort marker."""
    last_stable_offset: int
    """What the end of this transaction left as the first offset of the oldest one still open, or the offset
    after the marker. Every transaction that ends later begins at or after it."""


_last_offset = attrgetter("last_offset")


class AbortedIndex:
    """The aborted transactions whose markers one segment holds, in the order of the markers."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._entries)

    def append(self, transaction: AbortedTransaction) -> None:
        if not _follows(transaction, self._entries[-1] if self._entries else None):
            raise ValueError(f"{transaction} does not follow {self._entries[-1:] or 'an empty index'}")
        self._entries.append(transaction)

    def overlapping(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with an offset in [start, end), markers included."""
        first = bisect_left(self._entries, start, key=_last_offset)
        found = []
        for entry in self._entries[first:]:
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                break
        return found

    def settles(self, end: int) -> bool:
        """Whether no later segment can name a transaction that begins below `end`."""
        return bool(self._entries) and self._entries[-1].last_stable_offset >= end

    def truncate(self, offset: int) -> None:
        """Drops those whose marker is at or beyond an offset; a file that held any must be written anew."""
        del self._entries[bisect_left(self._entries, offset, key=_last_offset) :]

    def encode_frame(self, start_entry: int = 0) -> bytes:
        """The entries from that number on as one frame to append to the file; empty without entries."""
        entries = self._entries[start_entry:]
        payload = pack(f"<{4 * len(entries)}q", *chain.from_iterable(entries))
        return pack_frame(_PURPOSE, len(entries), payload)


def decode_aborted(data: Bytes) -> tuple[AbortedIndex, int]:
    """The index in the longest trustworthy prefix of a file, and that prefix's length. Never raises."""
    index = AbortedIndex()
    valid = 0
    for _, payload, end in read_frames(data, _PURPOSE, _ENTRY.size):
        entries = [AbortedTransaction._make(fields) for fields in _ENTRY.iter_unpack(payload)]
        previous = index._entries[-1] if index._entries else None
        for entry in entries:
            if not _follows(entry, previous):
                return index, valid
            previous = entry
        index._entries.extend(entries)
        valid = end
    return index, valid


def _follows(entry: AbortedTransaction, previous: AbortedTransaction | None) -> bool:
    """Whether an entry makes sense by itself and after the one before it.

    Markers of several producers share a control batch, so equal last offsets are in order.
    """
    if not (
        entry.producer_id >= 0
        and 0 <= entry.first_offset < entry.last_offset
        and 0 <= entry.last_stable_offset <= entry.last_offset + 1
    ):
        return False
    return previous is None or (
        entry.last_offset >= previous.last_offset
        and entry.last_stable_offset >= previous.last_stable_offset
        and entry.first_offset >= previous.last_stable_offset
    )
