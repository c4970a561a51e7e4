"""The batches that a few producers and a transaction coordinator send next, drawn at random.

Producers 1 and 2 are idempotent, 11 and 12 write in transactions only; they go on where the log says that
they are. The markers of producer 11 carry its next epoch (KIP-890); producer 12 raises its epoch by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import encode_marker
from tailrace.cluster.storage.log import Log

IDEMPOTENT = (1, 2)
TRANSACTIONAL = (11, 12)
BUMPED_BY_MARKERS = (11,)
KEYS = 4
# The last is written to its segment directly, beside the journal.
SIZES = (5, 40, 40, 150, 300, 1200)


@dataclass
class Known:
    """How a log sees a producer."""

    epoch: int = 0
    next_sequence: int = 0
    in_transaction: bool = False


class Senders:
    """For one append, or for one chunk of a leader's log: `next_batch` supposes that all before is stored."""

    def __init__(self, rng: Random, log: Log, *, now_ms: int, serial: int) -> None:
        self._rng = rng
        self._log = log
        self._now_ms = now_ms
        self.serial = serial
        self._all: dict[int, Known] | None = None

    def next_batch(self, base: int, epoch: int) -> bytes:
        kind = self._rng.choices(("plain", "idempotent", "transactional", "marker"), (45, 20, 20, 15))[0]
        if kind == "plain":
            return self.records(base, epoch)
        if kind == "idempotent":
            return self.idempotent(base, epoch)
        waiting = [one for one in TRANSACTIONAL if self._known(one).in_transaction]
        if kind == "marker" and waiting:
            return self._marker(base, epoch, waiting)
        return self._in_transaction(base, epoch)

    def records(
        self, base: int, epoch: int, count: int | None = None, producer: int = -1, transactional: bool = False
    ) -> bytes:
        count = self._rng.randint(1, 3) if count is None else count
        known = self._known(producer) if producer >= 0 else Known(-1, -1)
        batch = encode_batch(
            values=[self._value() for _ in range(count)],
            keys=[self._key() for _ in range(count)] if self._log.config.compacted else None,
            timestamps=self._now_ms,
            base_offset=base,
            leader_epoch=epoch,
            producer_id=producer,
            producer_epoch=known.epoch,
            base_sequence=known.next_sequence,
            transactional=transactional,
        )
        known.next_sequence += count
        return batch

    def idempotent(self, base: int, epoch: int) -> bytes:
        return self.records(base, epoch, producer=self._rng.choice(IDEMPOTENT))

    def _in_transaction(self, base: int, epoch: int) -> bytes:
        producer = self._rng.choice(TRANSACTIONAL)
        known = self._known(producer)
        if not known.in_transaction and (known.next_sequence or producer not in BUMPED_BY_MARKERS):
            known.epoch, known.next_sequence = known.epoch + 1, 0
        known.in_transaction = True
        return self.records(base, epoch, producer=producer, transactional=True)

    def _marker(self, base: int, epoch: int, waiting: Iterable[int]) -> bytes:
        ended = [one for one in waiting if self._rng.random() < 0.7] or list(waiting)[:1]
        pairs: list[tuple[int, int]] = []
        for producer in ended:
            known = self._known(producer)
            known.in_transaction = False
            if producer in BUMPED_BY_MARKERS:
                known.epoch, known.next_sequence = known.epoch + 1, 0
            pairs.append((producer, known.epoch))
        return encode_marker(
            commit=self._rng.random() < 0.5,
            producers=pairs,
            coordinator_epoch=0,
            timestamp=self._now_ms,
            base_offset=base,
            leader_epoch=epoch,
        )

    def _known(self, producer: int) -> Known:
        if self._all is None:
            # Only when a batch asks for it: a log that nobody asks loads its producers with the append.
            self._all = {
                one.producer_id: Known(
                    one.producer_epoch, one.last_sequence + 1, one.transaction_start_offset >= 0
                )
                for one in self._log.producers.describe()
            }
        return self._all.setdefault(producer, Known())

    def _value(self) -> bytes | None:
        self.serial += 1
        if self._log.config.compacted and self._rng.random() < 0.2:
            return None
        return b"%d:" % self.serial + self._rng.randbytes(self._rng.choice(SIZES))

    def _key(self) -> bytes:
        return b"k%d" % self._rng.randrange(KEYS)
