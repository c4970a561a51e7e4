"""What happens to logs in a random history: appends of leaders and followers, cuts, upkeep, restarts.

Each operation draws what it does, does it to the engine, and enters it in the books of the log. `History`
adds the lives in which the operations happen, and the crashes between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from uuid import UUID

from tailrace.cluster.common.batch import check_batch
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.log import Log
from tests.support.books import Books, Version
from tests.support.engine import START_MS, Engine
from tests.support.fault_files import FaultFiles
from tests.support.kinds import KINDS
from tests.support.recovered import check_live
from tests.support.senders import Senders


@dataclass
class Replica:
    """What the cluster would know of a log beside its content."""

    books: Books
    leads: bool = True
    epoch: int = 0
    highest_epoch: int = 0

    def next_epoch(self) -> None:
        self.highest_epoch += 1
        self.epoch = self.highest_epoch


class Operations:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        kinds = self.rng.sample(sorted(KINDS), 3)
        self.topics = {kind: KINDS[kind] for kind in kinds}
        self.partitions = [TopicPartition(kind, 0) for kind in kinds] + [TopicPartition(kinds[0], 1)]
        self.replicas: dict[TopicPartition, Replica] = {}
        self.deleted: list[Books] = []
        self.now_ms = START_MS
        # What happened, for a person to read: the step of the file system, and what began there.
        self.trace: list[str] = []
        self._files: FaultFiles | None = None
        self._engine: Engine | None = None
        self._serial = 0
        self._ids = itertools.count(seed * 1_000_000 + 1)

    @property
    def engine(self) -> Engine:
        assert self._engine is not None
        return self._engine

    @property
    def files(self) -> FaultFiles:
        assert self._files is not None
        return self._files

    def new_id(self) -> UUID:
        return UUID(int=next(self._ids))

    def say(self, what: str) -> None:
        steps = 0 if self._files is None else self._files.steps
        self.trace.append(f"{steps:5} {what}")

    def operations(self) -> list[tuple[Callable[[], None], int]]:
        """What may happen, and how often."""
        return [
            (self.append, 42),
            (self.send_again, 3),
            (self.commit, 8),
            (self.run_jobs, 22),
            (self.tick, 10),
            (self.truncate, 4),
            (self.reset, 1),
            (self.delete_records, 3),
            (self.roll, 3),
            (self.checkpoint, 3),
            (self.change_leader, 4),
            (self.change_flush, 1),
            (self.delete, 2),
            (self.read, 2),
        ]

    def pick(self) -> tuple[Log, Replica]:
        partition = self.rng.choice(self.partitions)
        if partition not in self.replicas:
            before = [books.topic_id for books in self.deleted if books.topic_partition == partition]
            again = bool(before) and self.rng.random() < 0.5
            topic_id = before[-1] if again else self.new_id()
            start = self.rng.choice([0, 0, 0, 7])
            log = self.engine.manager.create(partition, topic_id, now_ms=self.now_ms, start_offset=start)
            version = Version(start_promised=start, start_asked=start)
            self.replicas[partition] = Replica(Books(partition, topic_id, log.incarnation, [version]))
            self.say(f"create {partition} at {start}, {'again' if again else 'new'}")
        found = self.engine.manager.get(partition)
        assert found is not None
        return found, self.replicas[partition]

    def append(self) -> None:
        log, replica = self.pick()
        senders = self._senders(log)
        if replica.leads:
            self._lead(log, replica, senders.next_batch(log.end_offset, replica.epoch))
        else:
            self._follow(log, replica, senders)
        self._serial = senders.serial

    def _senders(self, log: Log) -> Senders:
        return Senders(self.rng, log, now_ms=self.now_ms, serial=self._serial)

    def _lead(self, log: Log, replica: Replica, batch: bytes) -> None:
        epoch = replica.epoch
        appended = log.append_as_leader(batch, leader_epoch=epoch, now_ms=self.now_ms, internal=True)
        assert not appended.duplicate
        version = replica.books.appended(batch, self.now_ms)
        self.say(f"append {log.topic_partition} {appended.base_offset}..{appended.last_offset} epoch {epoch}")
        self._await(log, replica.books, version)

    def _follow(self, log: Log, replica: Replica, senders: Senders) -> None:
        base, batches = log.end_offset, []
        empty = len(log.segments) == 1 and not log.active.size
        inside = self.rng.randint(1, 2)
        if empty and log.log_start_offset == base >= inside and self.rng.random() < 0.5:
            # The log start lies inside the leader's first batch, which comes whole.
            replica.books.emptied(None)
            base -= inside
            batches.append(senders.records(base, replica.epoch, count=3))
            base += 3
        for _ in range(self.rng.randint(0 if batches else 1, 3)):
            # Any leader's log may have been cleaned once, whatever the settings are now.
            if self.rng.random() < (0.25 if log.config.compacted else 0.05):
                base += self.rng.randint(1, 5)
            batches.append(senders.next_batch(base, replica.epoch))
            base = check_batch(batches[-1]).next_offset
            if self.rng.random() < 0.05:
                replica.next_epoch()
        for batch in batches:
            version = replica.books.appended(batch, self.now_ms)
        end = log.append_as_follower(b"".join(batches), now_ms=self.now_ms)
        assert end == base
        self.say(f"follow {log.topic_partition} with {len(batches)} batches to {end}")
        self._await(log, replica.books, version)

    def _await(self, log: Log, books: Books, version: Version) -> None:
        end, synced = log.end_offset, log.config.flush == "commit"

        def told(error: TailraceError | None) -> None:
            if error is None:
                books.acknowledged(version, end, synced=synced)

        log.when_durable(end, told)
        if self.rng.random() < 0.5:
            self._commit(log, books)

    def send_again(self) -> None:
        """An idempotent producer sends a batch twice: the second must change nothing."""
        log, replica = self.pick()
        if not replica.leads:
            return
        senders = self._senders(log)
        batch = senders.idempotent(log.end_offset, replica.epoch)
        self._serial = senders.serial
        base = log.end_offset
        self._lead(log, replica, batch)
        again = log.append_as_leader(batch, leader_epoch=replica.epoch, now_ms=self.now_ms)
        assert (again.duplicate, again.base_offset) == (True, base)

    def commit(self) -> None:
        log, replica = self.pick()
        self._commit(log, replica.books)

    def _commit(self, log: Log, books: Books) -> None:
        log.advance_high_watermark(
            self.rng.randint(log.high_watermark, max(log.durable_end, log.high_watermark))
        )
        books.committed = max(books.committed, log.high_watermark)

    def run_jobs(self) -> None:
        if self.rng.random() < 0.4:
            self.say("run all jobs")
            self.engine.drain()
            for books in self.deleted:
                books.gone = True
        else:
            self.say("run some jobs")
            for _ in range(self.rng.randint(1, 5)):
                self.engine.blocking.run_one()

    def tick(self) -> None:
        self.now_ms += self.rng.choice([200, 1500, 3000, 6000])
        self.say(f"tick to {self.now_ms}")
        self.engine.now_ms = self.now_ms
        self.engine.manager.tick(self.now_ms)
        for partition, log in self.engine.manager.logs.items():
            replica = self.replicas.get(partition)
            if replica is not None:
                replica.books.start_moved(log.log_start_offset)

    def truncate(self) -> None:
        """A follower drops what its leader does not have; nobody may drop what cleaning has relied upon."""
        log, replica = self.pick()
        books = replica.books
        low = log.log_start_offset
        if log.config.compacted or self.rng.random() < 0.7:
            low = max(low, min(books.committed, log.end_offset))
        offset = self.rng.randint(low, log.end_offset)
        entries = log.epochs.entries()
        if entries and self.rng.random() < 0.5:
            _, offset = log.end_offset_for_epoch(self.rng.choice(entries).epoch)
            offset = max(offset, low)
        self._cut(log, replica, offset)

    def _cut(self, log: Log, replica: Replica, offset: int) -> None:
        books, end = replica.books, log.end_offset
        dropped = {
            one.header.leader_epoch for one in books.latest.batches if one.header.last_offset >= offset
        }
        start = log.log_start_offset
        empties = offset <= log.bases[0] or self._reaches_below_start(log, books, offset)
        cut: list[Version] = []
        new_end = log.truncate_to(offset, now_ms=self.now_ms, done=self._settling(books, cut))
        if offset >= end:
            books.latest.epochs.truncate_end(offset if end > start else 0)
        elif empties:
            books.emptied(log.log_start_offset)
        else:
            books.truncated(new_end, start)
        cut.append(books.latest)
        books.committed = min(books.committed, new_end)
        self.say(f"truncate {log.topic_partition} to {offset}, ends at {new_end}")
        replica.leads = self.rng.random() < 0.3
        latest = log.epochs.latest
        if latest < 0 or latest in dropped or self.rng.random() < 0.6:
            replica.next_epoch()
        else:
            replica.epoch = latest

    def _reaches_below_start(self, log: Log, books: Books, offset: int) -> bool:
        """Whether a cut at `offset` takes the batch in which the log starts."""
        start = log.log_start_offset
        holds = (one.base for one in books.latest.batches if one.header.last_offset >= offset)
        return offset <= start or next(holds, offset) < start

    def _settling(self, books: Books, cut: list[Version]) -> Callable[..., None]:
        def done(error: TailraceError | None = None) -> None:
            if error is None:
                for version in cut:
                    books.settled(version)

        return done

    def reset(self) -> None:
        """A follower has fallen behind its leader's log start, and goes on there."""
        log, replica = self.pick()
        offset = log.end_offset + self.rng.randint(0, 10)
        self.say(f"reset {log.topic_partition} to {offset}")
        version = replica.books.emptied(offset)
        replica.leads = False
        replica.next_epoch()
        log.reset_to(offset, now_ms=self.now_ms, done=self._settling(replica.books, [version]))

    def delete_records(self) -> None:
        log, replica = self.pick()
        books = replica.books
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        self.say(f"delete the records of {log.topic_partition} below {offset}")
        version = books.start_moved(offset)

        def done(error: TailraceError | None = None) -> None:
            if error is None:
                books.start_promised(version, offset)

        log.delete_records(offset, done)

    def roll(self) -> None:
        log, _ = self.pick()
        self.say(f"roll {log.topic_partition} at {log.end_offset}")
        log.roll(now_ms=self.now_ms)

    def checkpoint(self) -> None:
        log, _ = self.pick()
        self.say(f"checkpoint {log.topic_partition}")
        log.files.checkpoint()
        if self.rng.random() < 0.5:
            self.engine.manager.directories[0].save_checkpoint()

    def change_leader(self) -> None:
        log, replica = self.pick()
        replica.next_epoch()
        replica.leads = self.rng.random() < 0.6
        self.say(f"{log.topic_partition} {'leads' if replica.leads else 'follows'} in epoch {replica.epoch}")
        if replica.leads and self.rng.random() < 0.7:
            log.begin_epoch(replica.epoch)
            replica.books.latest.epochs.assign(replica.epoch, log.end_offset)

    def change_flush(self) -> None:
        topic = self.rng.choice(sorted(self.topics))
        config = self.topics[topic]
        self.topics[topic] = replace(config, flush="os" if config.flush == "commit" else "commit")
        self.say(f"flush of {topic} is {self.topics[topic].flush}")
        for partition, log in self.engine.manager.logs.items():
            if partition.topic == topic:
                log.reconfigure(self.topics[topic])

    def delete(self) -> None:
        partition = self.rng.choice(self.partitions)
        if partition in self.replicas:
            self.say(f"delete {partition}")
            self.engine.manager.delete(partition)
            self.deleted.append(self.replicas.pop(partition).books)

    def read(self) -> None:
        log, replica = self.pick()
        check_live(log, replica.books, now_ms=self.now_ms, where="in use")
