"""The producers of one partition: idempotence, open transactions, and what is stable.

A leader calls `check` (or `check_marker`), appends the batch, and calls `apply`; followers and recovery call
`apply` alone, in the order of the log, because the leader that accepted the batch has decided. So the states
are a function of the log and equal on every replica, but for two memories that only make a replica more or
less patient: when a producer was last seen, and which idle producers have been forgotten.

Invariants:
- Within an epoch of a producer, accepted batches follow each other without gap or overlap, modulo 2**31. The
  first one of an epoch has sequence 0.
- At most one transaction of a producer is open, and transactions open in the order of their first offsets.
- Every transaction has a producer epoch of its own (the coordinator bumps it each time, KIP-890), so a marker
  with a producer epoch that has ended a transaction already never ends another one. Markers are to carry the
  bumped epoch, that of the next transaction: a late batch of the one they ended is then of an older epoch,
  and refused.

After a truncation the states cannot be wound back: the log decodes a snapshot and applies what follows it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from tailrace.cluster.common.batch import BatchHeader
from tailrace.cluster.common.control import Marker
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.producer_snapshot import (
    NO_OFFSET,
    SEQUENCE_MASK,
    ProducerState,
    decode_snapshot,
    encode_snapshot,
)

_HALF_OF_SEQUENCES = 2**30


class Duplicate(NamedTuple):
    """Where the original of a batch that was sent again is, to be answered like the original was."""

    base_offset: int
    last_offset: int
    timestamp: int
    """The original's append timestamp; -1 when the records' own timestamps count."""


class ProducerDescription(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int
    """The first offset of the open transaction, -1 without one."""


class ProducerStates:
    """What one partition knows of its producers. Not safe for several threads; its log's owner calls it."""

    __slots__ = ("_end_offset", "_ended", "_log_start", "_open", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, ProducerState] = {}
        # Producer id to the first offset of its open transaction. Transactions open at ever larger offsets,
        # so the first item is the oldest; an OrderedDict reaches it at once however many have been removed.
        self._open: OrderedDict[int, int] = OrderedDict()
        # (marker offset, first offset) of transactions that have ended, while the marker may still be above
        # the high watermark. One that ends no later than another and begins no earlier decides nothing and is
        # left out, so both numbers grow strictly and the first item with an uncommitted marker is the oldest.
        self._ended: deque[tuple[int, int]] = deque()
        self._log_start = 0
        # No batch below this offset may be applied any more: it would count twice.
        self._end_offset = 0

    def __len__(self) -> int:
        return len(self._producers)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._producers

    # Checks, by the leader, before it appends.

    def check(self, header: BatchHeader, *, now_ms: int) -> Duplicate | None:
        """Whether a producer's batch may be appended; a Duplicate if it was, an error if it must not be.

        Unlike Kafka since KIP-360, a producer of which nothing is known must begin at sequence 0. Kafka
        takes any sequence then, and two things go wrong silently. With several requests in flight to a new
        partition, the second may arrive while the first is being retried: taken, it would stand before it,
        and the first would be lost as out of order. And a batch whose answer was lost, sent again after the
        state had expired, would stand twice. UNKNOWN_PRODUCER_ID loses nothing: the producer sends its
        batches again in order, from a new epoch if none of them is in doubt. (Sequence 0 itself could only
        be doubled by a retry later than the expiration, which is far beyond any delivery timeout.)
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        state = self._producers.get(producer_id)
        if (
            state is not None
            and header.base_sequence == state.next_sequence
            and header.producer_epoch == state.epoch
        ):
            if producer_id in self._open and not header.is_transactional:
                raise _refused(
                    ErrorCode.INVALID_TRANSACTION_STATE,
                    header,
                    f"it is no part of the transaction that is open since offset {self._open[producer_id]}",
                )
            return None
        return self._check_unexpected(header, state, now_ms)

    def _check_unexpected(
        self, header: BatchHeader, state: ProducerState | None, now_ms: int
    ) -> Duplicate | None:
        """Everything but the next batch of a known producer's current epoch."""
        base, epoch = header.base_sequence, header.producer_epoch
        if base < 0 or epoch < 0:
            raise _refused(ErrorCode.INVALID_RECORD, header, "with a producer id, neither may be negative")
        if state is None:
            if base != 0:
                raise _refused(
                    ErrorCode.UNKNOWN_PRODUCER_ID,
                    header,
                    "nothing is known of this producer here, so its first batch must have sequence 0",
                )
            return None
        if epoch < state.epoch:
            raise _refused(ErrorCode.INVALID_PRODUCER_EPOCH, header, f"epoch {state.epoch} has been seen")
        if epoch > state.epoch:
            first = self._open.get(header.producer_id)
            if first is not None:
                # Its marker raises the epoch. Records taken before that would slip into a transaction that
                # has been decided without them.
                raise _refused(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    header,
                    f"the transaction of epoch {state.epoch} is open since offset {first}",
                )
            if base != 0:
                raise _refused(ErrorCode.OUT_OF_ORDER_SEQUENCE, header, "a new epoch starts at sequence 0")
            return None
        last = header.last_sequence
        original = state.find(base, last)
        if original is not None:
            # A duplicate is not applied, so this is where its producer is seen to be alive.
            state.last_seen_ms = max(state.last_seen_ms, now_ms)
            return Duplicate(*original)
        expected = state.next_sequence
        if not state.batches or (base - expected) & SEQUENCE_MASK < _HALF_OF_SEQUENCES:
            raise _refused(ErrorCode.OUT_OF_ORDER_SEQUENCE, header, f"sequence {expected} comes next")
        oldest = state.batches[0]
        if (oldest - 1 - last) & SEQUENCE_MASK < _HALF_OF_SEQUENCES:
            raise _refused(
                ErrorCode.DUPLICATE_SEQUENCE,
                header,
                f"it has been appended, but its offset is not remembered (the oldest that is has {oldest})",
            )
        raise _refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE,
            header,
            f"it overlaps batches that have been appended, and equals none; sequence {expected} comes next",
        )

    def check_marker(self, marker: Marker) -> None:
        """Whether a coordinator may end this producer's transaction here."""
        state = self._producers.get(marker.producer_id)
        if state is None:
            return
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise TailraceError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker for producer {marker.producer_id} by coordinator epoch {marker.coordinator_epoch}: "
                f"coordinator epoch {state.coordinator_epoch} has written one already",
            )
        if marker.producer_epoch < state.epoch:
            raise TailraceError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker for producer {marker.producer_id}, epoch {marker.producer_epoch}: "
                f"epoch {state.epoch} has been seen",
            )
        if marker.producer_epoch <= state.marker_epoch and marker.producer_id in self._open:
            # A delayed copy of the marker that ended the transaction before: it must not decide this one.
            raise TailraceError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker for producer {marker.producer_id}, epoch {marker.producer_epoch}: it has ended an "
                f"earlier transaction, and a later one is open since offset {self._open[marker.producer_id]}",
            )

    # The log, batch by batch.

    def apply(
        self, header: BatchHeader, *, now_ms: int, markers: Iterable[Marker] = ()
    ) -> list[AbortedTransaction]:
        """Takes in a batch of the log; `markers` are those that a control batch holds.

        Returns what the segment's index of aborted transactions must list. `now_ms` is when the producer
        was seen alive; the records' timestamps say nothing of that (they may be years old in a backfill).
        """
        base_offset = header.base_offset
        if base_offset < self._end_offset:
            raise ValueError(
                f"the batch at offset {base_offset} lies below {self._end_offset}, which has been applied"
            )
        last_offset = header.last_offset
        self._end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return self._end_transactions(last_offset, markers, now_ms) if header.is_control else []
        epoch = header.producer_epoch
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = ProducerState(epoch)
        elif epoch != state.epoch:
            state.begin_epoch(epoch)
        state.remember(
            header.base_sequence, header.last_sequence, base_offset, last_offset, header.append_timestamp
        )
        state.last_timestamp = header.largest_timestamp
        state.last_seen_ms = now_ms
        if header.is_transactional and producer_id not in self._open:
            self._open[producer_id] = base_offset
        return []

    def _end_transactions(
        self, marker_offset: int, markers: Iterable[Marker], now_ms: int
    ) -> list[AbortedTransaction]:
        aborted = []
        for marker in markers:
            producer_id = marker.producer_id
            state = self._producers.get(producer_id)
            if state is None:
                # Remembered even though it wrote nothing here: a late batch of its old epoch must be refused.
                state = self._producers[producer_id] = ProducerState(marker.producer_epoch)
            elif marker.producer_epoch > state.epoch:
                state.begin_epoch(marker.producer_epoch)
            state.coordinator_epoch = max(state.coordinator_epoch, marker.coordinator_epoch)
            state.marker_epoch = max(state.marker_epoch, marker.producer_epoch)
            state.marker_offset = marker_offset
            state.last_seen_ms = now_ms
            first = self._open.pop(producer_id, None)
            if first is None:
                continue
            while self._ended and self._ended[-1][1] > first:
                self._ended.pop()
            if not self._ended or self._ended[-1][0] < marker_offset:
                self._ended.append((marker_offset, first))
            if not marker.commit:
                stable = next(iter(self._open.values()), marker_offset + 1)
                aborted.append(AbortedTransaction(producer_id, first, marker_offset, stable))
        return aborted

    # Transactions and stability.

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction."""
        return self._open.get(producer_id)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset whose transaction is open, or ended by a marker that is not committed itself."""
        first = next(iter(self._open.values()), None)
        for marker_offset, ended_first in self._ended:
            if marker_offset >= high_watermark:
                if first is None or ended_first < first:
                    first = ended_first
                break
        return None if first is None else max(first, self._log_start)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where `read_committed` must stop: everything below is committed and decided."""
        first = self.first_unstable_offset(high_watermark)
        return high_watermark if first is None else min(first, high_watermark)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forgets the ended transactions whose markers are committed now."""
        while self._ended and self._ended[0][0] < high_watermark:
            self._ended.popleft()

    # Housekeeping.

    def expire(self, now_ms: int, expiration_ms: int) -> list[int]:
        """Forgets the producers that have been idle for so long, and returns their ids.

        A producer with an open transaction stays, whatever its age: its marker is still to come.
        """
        expired = [
            producer_id
            for producer_id, state in self._producers.items()
            if now_ms - state.last_seen_ms >= expiration_ms and producer_id not in self._open
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return expired

    def drop_below(self, log_start: int) -> None:
        """The log now starts at `log_start`; to be called after decoding a snapshot, too.

        No producer is forgotten, even if all its batches are gone: the retry of a batch that retention has
        removed is still a duplicate. Only expiry forgets. An open transaction that began in what is gone
        holds back readers from the new start on.
        """
        self._log_start = max(self._log_start, log_start)
        while self._ended and self._ended[0][0] < log_start:
            self._ended.popleft()

    def last_batch_offsets(self) -> dict[int, int]:
        """For each producer the last offset of the batch that the cleaner must keep.

        That is its newest batch, which tells its epoch and sequence to whoever rebuilds the states from the
        log, or, when a marker has raised the epoch since, the control batch with that marker.
        """
        return {producer_id: state.last_offset for producer_id, state in self._producers.items()}

    def describe(self) -> list[ProducerDescription]:
        return [
            ProducerDescription(
                producer_id,
                state.epoch,
                state.last_sequence,
                state.last_timestamp,
                state.coordinator_epoch,
                self._open.get(producer_id, NO_OFFSET),
            )
            for producer_id, state in self._producers.items()
        ]

    def copy(self) -> ProducerStates:
        other = ProducerStates()
        other._producers = {producer_id: state.copy() for producer_id, state in self._producers.items()}
        other._open = self._open.copy()
        other._ended = self._ended.copy()
        other._log_start = self._log_start
        other._end_offset = self._end_offset
        return other

    def encode(self, map_end_offset: int) -> bytes:
        """A snapshot that stands for the log below `map_end_offset`."""
        if map_end_offset < self._end_offset:
            raise ValueError(f"a snapshot at {map_end_offset} would lack batches up to {self._end_offset}")
        return encode_snapshot(self._producers, self._open, self._ended, map_end_offset)

    @classmethod
    def decode(cls, data: Bytes) -> tuple[ProducerStates, int]:
        """The states of a snapshot, and the offset from which the log must be applied to them."""
        snapshot = decode_snapshot(data)
        states = cls()
        states._producers = snapshot.producers
        states._open = OrderedDict(snapshot.open_transactions)
        states._ended = deque(snapshot.ended_transactions)
        states._end_offset = snapshot.map_end_offset
        return states, snapshot.map_end_offset


def _refused(code: ErrorCode, header: BatchHeader, why: str) -> TailraceError:
    return TailraceError(
        code,
        f"batch of producer {header.producer_id}, epoch {header.producer_epoch}, "
        f"sequence {header.base_sequence}: {why}",
    )
