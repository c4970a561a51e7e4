"""A log beside its books: everything promised is there, and nothing else is wrong.

`check_found` judges a log that was opened after a crash, which may be any version that the books know of, cut
short where nothing was promised. `check_live` judges one in use, which is the latest version, whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.cluster.common.batch import BatchHeader
from tailrace.cluster.storage.core.epochs import EpochEntry, EpochHistory
from tailrace.cluster.storage.core.producers import ProducerDescription
from tailrace.cluster.storage.log import Log
from tests.support.books import Books, Outcome, Stored, Version
from tests.support.driving import check_invariants

Record = tuple[bytes | None, bytes | None]


def check_found(log: Log, books: Books, *, power_lost: bool, now_ms: int, where: str) -> Version:
    """The version that was found."""
    check_invariants(log)
    contents = Contents.of(log)
    problems: list[str] = []
    for version in reversed(books.versions):
        promised = version.promised(power_lost=power_lost)
        problem = Comparison(log, contents, version, promised, now_ms).problem()
        if problem is None:
            return version
        problems.append(f"{problem} (promised up to {promised})")
    raise AssertionError(f"{where}: {_describe(log)}: {'; or '.join(problems)}")


def check_live(log: Log, books: Books, *, now_ms: int, where: str) -> None:
    check_invariants(log)
    problem = Comparison(log, Contents.of(log), books.latest, log.end_offset, now_ms).problem()
    assert problem is None, f"{where}: {_describe(log)}: {problem}"


def _describe(log: Log) -> str:
    return f"{log.topic_partition} from {log.log_start_offset} to {log.end_offset}, segments at {log.bases}"


@dataclass(frozen=True)
class Contents:
    """All that a reader finds in a log, from its start on."""

    headers: dict[int, BatchHeader]
    records: dict[int, Record]

    @classmethod
    def of(cls, log: Log) -> Contents:
        headers: dict[int, BatchHeader] = {}
        records: dict[int, Record] = {}
        last = -1
        for batch in log.batches():
            assert batch.header.base_offset > last, f"offset {batch.header.base_offset} follows {last}"
            last = batch.header.last_offset
            headers[batch.header.base_offset] = batch.header
            pairs = zip(batch.keys(), batch.values(), strict=True)
            records.update(zip(batch.offsets(), pairs, strict=True))
        return cls(headers, records)


def epochs_from(epochs: EpochHistory, start: int) -> list[EpochEntry]:
    """The first batch may reach below the log start, and its epoch with it, or not any more."""
    epochs = epochs.copy()
    epochs.truncate_start(start)
    return epochs.entries()


class Comparison:
    """One log and one version that it may be."""

    def __init__(self, log: Log, contents: Contents, version: Version, promised: int, now_ms: int) -> None:
        self.log = log
        self.found = contents
        self.version = version
        self.promised = promised
        self.now_ms = now_ms
        self.start = min(log.log_start_offset, version.start_asked)
        self.outcomes = version.outcomes(log.end_offset)

    def problem(self) -> str | None:
        """The first thing that is wrong; None if the log can be this version."""
        return (
            self._start()
            or self._foreign()
            or self._missing()
            or self._table()
            or self._transactions()
            or self._epochs()
            or self._producers()
        )

    def _start(self) -> str | None:
        if self.log.log_start_offset < self.version.start_promised:
            return f"it starts at {self.log.log_start_offset}, {self.version.start_promised} was promised"
        return None

    def _foreign(self) -> str | None:
        """What is there was appended there."""
        stored = {batch.base: batch for batch in self.version.batches}
        appended = {
            offset: (key, value) for batch in self.version.batches for offset, key, value in batch.records()
        }
        for base, header in self.found.headers.items():
            if base not in stored or _origin(header) != _origin(stored[base].header):
                return f"the batch at offset {base} was never appended there"
        for offset, record in self.found.records.items():
            if appended.get(offset) != record:
                return f"offset {offset} holds what was never appended there"
        return None

    def _missing(self) -> str | None:
        """What was promised is there, and up to the end all the rest, but for what cleaning may remove."""
        end = self.log.end_offset
        last = self._last_visible()
        for batch in self.version.batches:
            for offset, key, value in batch.records():
                if not self.start <= offset < max(self.promised, end) or offset in self.found.records:
                    continue
                if offset >= end or not self.log.config.compacted:
                    return f"offset {offset} is missing, the log ends at {end}"
                if not (
                    batch.header.is_control
                    or self._aborted(batch)
                    or last.get(key, (-1, None))[0] > offset
                    or (value is None and self._is_old_tombstone(batch))
                ):
                    return f"offset {offset} is missing though nothing replaces {key!r} below {end}"
        return None

    def _aborted(self, batch: Stored) -> bool:
        decided = self.outcomes.get(batch.base)
        return decided is not None and decided.outcome is Outcome.ABORTED

    def _is_visible(self, base: int) -> bool:
        """Whether `read_committed` shows the data batch, all being committed."""
        decided = self.outcomes.get(base)
        return decided is None or decided.outcome is Outcome.COMMITTED

    def _is_old_tombstone(self, batch: Stored) -> bool:
        return self.now_ms - batch.appended_ms >= self.log.config.delete_retention_ms

    def _last_visible(self) -> dict[bytes | None, tuple[int, bytes | None]]:
        return {
            key: (offset, value)
            for batch in self.version.below(self.log.end_offset)
            if not batch.header.is_control and self._is_visible(batch.base)
            for offset, key, value in batch.records()
            if offset >= self.start
        }

    def _table(self) -> str | None:
        """Whoever reads a compacted log as a table finds what the records said last."""
        if not self.log.config.compacted:
            return None
        table: dict[bytes | None, bytes | None] = {}
        for header in self.found.headers.values():
            if header.is_control or not self._is_visible(header.base_offset):
                continue
            for offset in range(max(header.base_offset, self.start), header.next_offset):
                if offset in self.found.records:
                    key, value = self.found.records[offset]
                    table[key] = value
        for key, (offset, value) in self._last_visible().items():
            if table.get(key) != value:
                return f"{key!r} is {table.get(key)!r} for readers, and was {value!r} at offset {offset}"
        return None

    def _transactions(self) -> str | None:
        """Exactly the batches of aborted transactions are listed as such, and none is left undecided."""
        start, end = self.log.log_start_offset, self.log.end_offset
        listed = self.log.aborted_transactions(start, end)
        for base, header in self.found.headers.items():
            if header.is_control or not header.is_transactional:
                continue
            outcome, marker = self.outcomes[base]
            covered = any(
                one.producer_id == header.producer_id and one.first_offset <= base <= one.last_offset
                for one in listed
            )
            if header.record_count and covered != (outcome is Outcome.ABORTED):
                return f"the batch at offset {base} is {outcome.value}, the aborted are {listed}"
            if marker >= 0 and marker not in self.found.headers:
                return f"the marker at offset {marker} is missing, the batch at {base} waits for it"
        return None

    def _epochs(self) -> str | None:
        """An epoch without records, at the end, may be known or not."""
        start = self.log.log_start_offset
        end = max((batch.header.next_offset for batch in self.version.below(self.log.end_offset)), default=0)
        known, wanted = (
            [entry for entry in epochs_from(epochs, start) if entry.start_offset < end]
            for epochs in (self.log.epochs, self.version.epochs)
        )
        return None if known == wanted else f"its epochs are {known}, and should be {wanted} up to {end}"

    def _producers(self) -> str | None:
        """The producers are those that the batches tell of.

        One whose last batch went with a segment may be remembered, by way of a snapshot, or forgotten.
        """
        states = self.version.producers(self.log.end_offset)
        wanted = {one.producer_id: one for one in states.describe()}
        known = {one.producer_id: one for one in self.log.producers.describe()}
        first = self.log.segments[0].base_offset
        last_batches = states.last_batch_offsets()
        for producer in wanted.keys() | known.keys():
            if producer not in wanted:
                return f"producer {producer} never wrote: {known[producer]}"
            last = last_batches[producer]
            if last < first or self._lost_to_cleaning(producer, last):
                continue
            if producer not in known:
                return f"producer {producer} is forgotten"
            problem = _compare_producers(known[producer], wanted[producer], first)
            if problem is not None:
                return problem
        return None

    def _lost_to_cleaning(self, producer: int, last: int) -> bool:
        """The batch that ends at `last` was not the producer's last one when it was cleaned away."""
        stored = (header.last_offset for header in self.found.headers.values())
        return producer in self.version.cut_producers and self.log.config.compacted and last not in stored


def _origin(header: BatchHeader) -> tuple[int, ...]:
    """What stays of a batch's header, whatever is cleaned out of the batch."""
    return (
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
    )


def _compare_producers(known: ProducerDescription, wanted: ProducerDescription, first: int) -> str | None:
    began, opened = wanted.transaction_start_offset, known.transaction_start_offset
    # Where the transaction's first batches went with a segment, it may seem to begin later.
    same_transaction = opened == began or (0 <= began < min(first, opened))
    same_sequence = (known.producer_epoch, known.last_sequence) == (
        wanted.producer_epoch,
        wanted.last_sequence,
    )
    return None if same_transaction and same_sequence else f"{known} should be {wanted}"
