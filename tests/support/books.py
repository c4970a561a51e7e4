"""What a log was given, and what it has promised: the other side of every check after a crash.

`Books` know, at every moment, what may be found of a log if it were opened now: every record that was
acknowledged, nothing that was never appended, and after a cut either the old or the new log until the cut is
durable. They keep each batch for good, also those that retention and cleaning have removed since, because
the states of producers and the reasons why a record may be gone follow from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from tailrace.cluster.common.batch import BatchHeader, check_batch
from tailrace.cluster.common.control import Marker, decode_markers
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.log import Log

_NEVER_CUT = 2**62


class Outcome(Enum):
    """What became of a transaction's batch."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Decided(NamedTuple):
    outcome: Outcome
    # The base offset of the control batch that decided, -1 while it is open.
    marker: int


class Stored(NamedTuple):
    """A batch as it was appended."""

    header: BatchHeader
    keys: tuple[bytes | None, ...]
    values: tuple[bytes | None, ...]
    markers: tuple[Marker, ...]
    appended_ms: int

    @classmethod
    def of(cls, data: bytes, now_ms: int) -> Stored:
        header = check_batch(data)
        batch = Batch(data, header)
        markers = decode_markers(batch) if header.is_control else ()
        return cls(header, tuple(batch.keys()), tuple(batch.values()), markers, now_ms)

    @property
    def base(self) -> int:
        return self.header.base_offset

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        yield from zip(range(self.base, self.header.next_offset), self.keys, self.values, strict=True)


@dataclass(eq=False)
class Version:
    """A log between two cuts."""

    batches: list[Stored] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=EpochHistory)
    # The log start lies between what was promised and what was asked for.
    start_promised: int = 0
    start_asked: int = 0
    # The end of what was acknowledged; the part of it that not even a loss of power may take; and where
    # a cut, which may or may not be found, has ended every promise.
    acked: int = 0
    synced: int = 0
    kept: int = _NEVER_CUT
    # Those whose last batch went with a cut. Cleaning relied on that batch to tell of them, and may have
    # removed the one before, which is the last now.
    cut_producers: set[int] = field(default_factory=set)

    def promised(self, *, power_lost: bool) -> int:
        return min(self.kept, self.synced if power_lost else self.acked)

    def cut(self, end: int) -> None:
        """Forget everything from `end` on."""
        for batch in self.batches:
            if batch.header.next_offset > end:
                self.cut_producers.add(batch.header.producer_id)
                self.cut_producers.update(marker.producer_id for marker in batch.markers)
        self.batches = self.below(end)

    def below(self, end: int) -> list[Stored]:
        return [batch for batch in self.batches if batch.header.next_offset <= end]

    def producers(self, end: int) -> ProducerStates:
        states = ProducerStates()
        for batch in self.below(end):
            states.apply(batch.header, now_ms=0, markers=batch.markers)
        return states

    def outcomes(self, end: int) -> dict[int, Decided]:
        """By base offset, what became of each transactional batch if the log ends at `end`."""
        found: dict[int, Decided] = {}
        undecided: dict[int, list[int]] = {}
        for batch in self.below(end):
            for marker in batch.markers:
                outcome = Outcome.COMMITTED if marker.commit else Outcome.ABORTED
                for base in undecided.pop(marker.producer_id, []):
                    found[base] = Decided(outcome, batch.base)
            if batch.header.is_transactional and not batch.header.is_control:
                undecided.setdefault(batch.header.producer_id, []).append(batch.base)
                found[batch.base] = Decided(Outcome.OPEN, -1)
        return found


@dataclass(eq=False)
class Books:
    """One log from its creation on."""

    topic_partition: TopicPartition
    topic_id: UUID
    incarnation: bytes
    versions: list[Version]
    # A record in it was acknowledged, so that the log itself must be found.
    exists: bool = False
    # Its deletion is durable, so that it must not be found.
    gone: bool = False
    # How far it was ever known to be committed: cleaning has worked below, so a cut stays above.
    committed: int = 0

    @property
    def latest(self) -> Version:
        return self.versions[-1]

    def appended(self, data: bytes, now_ms: int) -> Version:
        version, batch = self.latest, Stored.of(data, now_ms)
        version.batches.append(batch)
        version.epochs.assign(batch.header.leader_epoch, batch.base)
        return version

    def acknowledged(self, version: Version, end: int, *, synced: bool) -> None:
        """Everything queued before a write is done when the write is: earlier versions are history."""
        self.settled(version)
        self.exists = True
        for one in self.versions:
            one.acked = max(one.acked, end)
            if synced:
                one.synced = max(one.synced, end)

    def settled(self, version: Version) -> None:
        """The cut that made `version` is durable."""
        if version in self.versions:
            del self.versions[: self.versions.index(version)]

    def truncated(self, end: int, start: int) -> Version:
        """Cut at `end`; a log that starts at `start`, the same offset, remembers no epoch."""
        old = self.latest
        for version in self.versions:
            version.kept = min(version.kept, end)
        epochs = old.epochs.copy() if end > start else EpochHistory()
        epochs.truncate_end(end)
        new = replace(
            old,
            batches=list(old.batches),
            epochs=epochs,
            kept=_NEVER_CUT,
            cut_producers=set(old.cut_producers),
        )
        new.cut(end)
        new.acked, new.synced = min(old.acked, end), min(old.synced, end)
        self.versions.append(new)
        return new

    def emptied(self, start: int | None) -> Version:
        """All goes; the log starts anew at `start`, or (None) where it started before."""
        old = self.latest
        for version in self.versions:
            version.kept = 0
        new = Version(start_promised=old.start_promised, start_asked=old.start_asked)
        if start is not None:
            new.start_promised = new.start_asked = start
        self.versions.append(new)
        return new

    def start_moved(self, start: int) -> Version:
        """The log has been asked to start at `start`, at least."""
        version = self.latest
        version.start_asked = max(version.start_asked, start)
        return version

    def start_promised(self, version: Version, start: int) -> None:
        self.settled(version)
        for one in self.versions:
            one.start_promised = max(one.start_promised, start)

    def called_synced(self, end: int) -> None:
        """What the log itself calls synced, acknowledged or not, survives a loss of power."""
        self.latest.synced = max(self.latest.synced, end)

    def opened(self, log: Log, version: Version) -> None:
        """The log was found as `version`, or the beginning of it; all that is there now stays."""
        end = log.end_offset
        version.cut(end)
        version.epochs = log.epochs.copy()
        version.acked = version.synced = end
        version.kept = _NEVER_CUT
        version.start_promised = version.start_asked = log.log_start_offset
        self.versions = [version]
        self.exists = True
        self.committed = min(self.committed, end)
