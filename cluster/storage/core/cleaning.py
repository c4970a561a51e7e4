"""What stays of each batch when a log is compacted.

The cleaner gives the dirty batches to `note_keys`, then every batch from the log's start to a `BatchFilter`,
both in the order of offsets. Which log is cleaned, and how far, is decided in `cleaning_plan`.

What holds after any number of cleanings, compared with the log as it was written:

- Whoever reads the whole log ends with the same value for every key; offsets and order do not change, and
  nothing at or above the end of the range (which is at most the last stable offset) is touched.
- The last record of each key stays. A tombstone stays until its batch's delete horizon, `now +
  delete.retention.ms` stamped by the first cleaning that met it (KIP-534), so a reader that began before
  that cleaning has this long to see the deletion.
- Records of aborted transactions go. A marker stays while any batch of its transaction was met before it
  in the same pass, even one that is empty or goes in this pass; after that it gets a delete horizon like
  a tombstone. So no reader, and no replay of the producers' state, ever meets half a transaction.
- The batches in `pinned` (each producer's last one) stay, if need be without records: their headers tell
  epochs and sequences to whoever rebuilds the producers' state from the log.
- A batch of which everything stays is kept byte for byte.

A batch that is whole by its checksum but cannot be decoded (an unknown codec, a column block that does not
decompress) is kept as it is, and named. Its keys are unknown. Records before and after it stand or fall by
the keys that are known, which is safe: a record only ever goes because a newer one of its key stays. The one
thing that could go wrong is a tombstone that hides a value inside such a batch: once dropped, the value would
rise again for a reader that can decode it. So tombstones after such a batch are held past their horizon.

A record without a key can only come from before the topic was compacted. It is dropped, as Kafka does: it is
nobody's last value, and would otherwise stay for ever. `Decision.keyless` counts them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailrace.cluster.common.batch import BatchHeader
from tailrace.cluster.common.control import decode_markers
from tailrace.cluster.common.directory import VALUE_SIZES, VALUE_VALIDITY
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.keymap import KeyMap

NO_HORIZON = -1


class AbortedRanges:
    """The aborted transactions of a log by producer.

    A producer's transactions follow each other, so the one that a batch belongs to is found by its offset
    alone, wherever a pass begins.
    """

    __slots__ = ("_by_producer",)

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for transaction in sorted(aborted, key=lambda entry: entry.first_offset):
            firsts, lasts = self._by_producer.setdefault(transaction.producer_id, ([], []))
            firsts.append(transaction.first_offset)
            lasts.append(transaction.last_offset)

    def covers(self, header: BatchHeader) -> bool:
        """Whether this data batch belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        ranges = self._by_producer.get(header.producer_id)
        if ranges is None:
            return False
        firsts, lasts = ranges
        place = bisect_right(firsts, header.base_offset) - 1
        return place >= 0 and header.base_offset <= lasts[place]


class Verdict(Enum):
    KEEP = "keep"
    DROP = "drop"
    REWRITE = "rewrite"


class Decision(NamedTuple):
    verdict: Verdict
    # The new batch, for REWRITE only.
    data: bytes | None = None
    kept: int = 0
    dropped: int = 0
    # How many of those dropped had no key.
    keyless: int = 0


class Undecodable(NamedTuple):
    base_offset: int
    reason: str


def decode(header: BatchHeader, data: Bytes, position: int) -> tuple[Batch, list[bytes | None]]:
    """A batch and its keys; TailraceError if any part of it is more than its readers could decode.

    A batch with good keys and broken values must not count as the last value of those keys.
    """
    batch = Batch(data, header, position)
    keys = batch.keys()
    batch.offsets()
    batch.values()
    batch.timestamps()
    batch.headers()
    return batch, keys


def note_keys(
    keymap: KeyMap, header: BatchHeader, data: Bytes, position: int, aborted: AbortedRanges
) -> None:
    """The first pass: enter the keys of the batch at `position`, unless it holds none that count.

    An aborted record replaces nothing, and an undecodable batch names no keys.
    """
    if header.is_control or header.record_count == 0 or aborted.covers(header):
        return
    try:
        batch, keys = decode(header, data, position)
    except TailraceError:
        return
    keymap.put_batch(keys, batch.offsets())


class BatchFilter:
    """The second pass: what stays of each batch. It must see all batches from the log's start, in order.

    From `map_end` on (where the key map ended, being full) batches are kept as they are, because a newer
    record of their keys may be unknown; the next cleaning begins there.
    """

    def __init__(
        self,
        *,
        keymap: KeyMap,
        map_end: int,
        aborted: AbortedRanges,
        pinned: AbstractSet[int],
        delete_retention_ms: int,
        now_ms: int,
        codec: int | None = None,
    ) -> None:
        self.undecodable: list[Undecodable] = []
        # Aborted transactions of which no batch is left, as (producer id, marker's offset): the transaction
        # index need not name them any more.
        self.forgotten: set[tuple[int, int]] = set()
        # When the next tombstone or marker may go; None when none waits.
        self.next_horizon_ms: int | None = None
        self._keymap = keymap
        self._map_end = map_end
        self._aborted = aborted
        self._pinned = pinned
        self._new_horizon = now_ms + delete_retention_ms
        self._now_ms = now_ms
        self._codec = codec
        # Producers of which a transactional batch was met since their last marker.
        self._open: set[int] = set()
        self._tombstones_held = False

    def retain(self, header: BatchHeader, data: Bytes, position: int) -> Decision:
        """What stays of the batch at `position`, whose checksum the caller has verified."""
        if header.is_control:
            return self._retain_markers(header, data, position)
        if header.is_transactional:
            self._open.add(header.producer_id)
        if header.last_offset >= self._map_end:
            return Decision(Verdict.KEEP, kept=header.record_count)
        if self._aborted.covers(header) or header.record_count == 0:
            return self._without_records(header, data, position)
        try:
            batch, keys = decode(header, data, position)
        except TailraceError as error:
            self._tombstones_held = True
            return self._keep_undecodable(header, error)
        return self._retain_records(header, batch, keys)

    def _retain_records(self, header: BatchHeader, batch: Batch, keys: list[bytes | None]) -> Decision:
        keep = self._keymap.last_offsets(keys) <= batch.offset_array()
        keyless = 0
        if not header.all_keys_present:
            has_key = np.fromiter((key is not None for key in keys), np.bool_, len(keys))
            keyless = int(len(keys) - np.count_nonzero(has_key))
            keep &= has_key
        horizon = header.delete_horizon
        tombstones = _tombstones_among(batch, keep)
        if tombstones is not None and horizon != NO_HORIZON and horizon <= self._now_ms:
            if not self._tombstones_held:
                keep &= ~tombstones
            tombstones = None
        kept = int(np.count_nonzero(keep))
        count = header.record_count
        if kept == 0:
            return self._without_records(header, batch.data, 0, keyless)
        if tombstones is not None:
            stamped = self._new_horizon if horizon == NO_HORIZON else horizon
            self._await(stamped)
        else:
            stamped = horizon
        if kept == count and stamped == horizon:
            return Decision(Verdict.KEEP, kept=count)
        rewritten = batch.select(keep, delete_horizon=stamped, codec=self._codec)
        return Decision(Verdict.REWRITE, rewritten, kept, count - kept, keyless)

    def _without_records(self, header: BatchHeader, data: Bytes, position: int, keyless: int = 0) -> Decision:
        count = header.record_count
        if not (header.has_producer and header.last_offset in self._pinned):
            return Decision(Verdict.DROP, dropped=count, keyless=keyless)
        if count == 0:
            return Decision(Verdict.KEEP)
        try:
            batch = Batch(data, header, position)
            empty = batch.select(np.zeros(count, np.bool_), delete_horizon=NO_HORIZON)
        except TailraceError as error:
            # Its records are aborted, so nobody misses what it may hide, and tombstones need not wait for it.
            return self._keep_undecodable(header, error)
        return Decision(Verdict.REWRITE, empty, 0, count, keyless)

    def _retain_markers(self, header: BatchHeader, data: Bytes, position: int) -> Decision:
        count = header.record_count
        try:
            batch = Batch(data, header, position)
            markers = decode_markers(batch)
        except TailraceError as error:
            return self._keep_undecodable(header, error)
        finished = True
        beyond = header.last_offset >= self._map_end
        for marker in markers:
            if marker.producer_id in self._open:
                self._open.discard(marker.producer_id)
                finished = False
            elif not beyond:
                self.forgotten.add((marker.producer_id, header.last_offset))
        if beyond or not finished or header.last_offset in self._pinned:
            return Decision(Verdict.KEEP, kept=count)
        if header.delete_horizon == NO_HORIZON:
            self._await(self._new_horizon)
            stamped = batch.select(np.ones(count, np.bool_), delete_horizon=self._new_horizon)
            return Decision(Verdict.REWRITE, stamped, count)
        if header.delete_horizon <= self._now_ms:
            return Decision(Verdict.DROP, dropped=count)
        self._await(header.delete_horizon)
        return Decision(Verdict.KEEP, kept=count)

    def _keep_undecodable(self, header: BatchHeader, error: TailraceError) -> Decision:
        self.undecodable.append(Undecodable(header.base_offset, str(error)))
        return Decision(Verdict.KEEP, kept=header.record_count)

    def _await(self, horizon: int) -> None:
        if self.next_horizon_ms is None or horizon < self.next_horizon_ms:
            self.next_horizon_ms = horizon


def _tombstones_among(batch: Batch, keep: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
    """Which of the records that stay have no value; None when there are none."""
    if VALUE_SIZES not in batch.directory:
        tombstones = keep.copy()
    elif VALUE_VALIDITY not in batch.directory:
        return None
    else:
        tombstones = ~batch.valid_array(VALUE_VALIDITY, len(keep)) & keep
    return tombstones if tombstones.any() else None
