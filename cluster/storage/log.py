"""A partition's log: the ordered batches of one replica, and what is known about them.

Owns the segments, the epoch history, the producer states and the offsets of one replica. Everything here
runs on the owner thread; bytes and file changes go to the directory's writer in order (ADR 2).

Invariants
- log_start_offset <= high_watermark <= end_offset, durable_end <= end_offset, synced_end <= durable_end.
- Offsets only grow, except through `truncate_to` and `reset_to`, which are explicit.
- `segments` is never empty; the last one is active, the only one that grows.
- A batch is checked wholly before anything is changed: a refused batch leaves no trace.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import Bytes, TopicPartition
from tailrace.cluster.runtime.blocking import Blocking, Job
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage import appending, cutting, reading
from tailrace.cluster.storage.appending import Appended
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.journal import LogKey
from tailrace.cluster.storage.logfiles import LogFiles, truncated_waiter
from tailrace.cluster.storage.reading import ReadResult, TimestampOffset
from tailrace.cluster.storage.segment import Place, Segment
from tailrace.cluster.storage.writer import DirectoryWriter, Write

events = get_logger(__name__)

DurableCallback = Callable[[TailraceError | None], None]


class LogHome(Protocol):
    """The log directory, as its logs see it."""

    files: Files
    handles: HandleCache
    writer: DirectoryWriter
    blocking: Blocking
    pending_max_bytes: int
    secret: bytes
    # Logs with something that a checkpoint would save.
    touched: set[Log]

    def check_online(self) -> None:
        """Raise STORAGE_ERROR when the directory has failed."""

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None: ...


class LogState(NamedTuple):
    """What opening or recovering a log found out about it."""

    segments: list[Segment]
    log_start_offset: int
    high_watermark: int
    epochs: EpochHistory
    producers: Callable[[], ProducerStates]
    snapshots: list[int]
    incarnation: bytes
    cleaned_to: int = 0
    next_horizon_ms: int | None = None
    rewrites: int = 0


class Log:
    def __init__(
        self,
        *,
        home: LogHome,
        topic_partition: TopicPartition,
        topic_id: bytes,
        directory: str,
        config: TopicConfig,
        state: LogState,
    ) -> None:
        self.home = home
        self.topic_partition = topic_partition
        self.key = LogKey(topic_id, topic_partition.partition)
        self.marks = SyncMarks(home.secret, topic_id, topic_partition.partition)
        self.directory = directory
        self.config = config
        self.segments = state.segments
        self.bases = [segment.base_offset for segment in self.segments]
        self.epochs = state.epochs
        self.log_start_offset = state.log_start_offset
        self.high_watermark = state.high_watermark
        self.end_offset = self.active.next_offset
        self.durable_end = self.end_offset
        self.synced_end = self.end_offset
        self.truncations = 0
        # Compaction: everything below was part of a cleaning; when tombstones wait to be dropped next.
        self.cleaned_to = state.cleaned_to
        self.next_horizon_ms = state.next_horizon_ms
        # Cleaned segments whose files are not in place yet; the next cleaning has to wait for them.
        self.swaps_waiting = 0
        self.incarnation = state.incarnation
        self.failure: TailraceError | None = None
        self.appended_bytes = 0
        self.files = LogFiles(self, state.snapshots, state.rewrites)
        self._load_producers = state.producers
        self._producers: ProducerStates | None = None
        self._waiters: list[tuple[int, int, DurableCallback]] = []
        self._waiters_ever = 0
        # Who waits for a cut or a moved log start to be durable, in the order of asking.
        self._changes: dict[int, DurableCallback] = {}

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def producers(self) -> ProducerStates:
        if self._producers is None:
            self._producers = self._load_producers()
        return self._producers

    @producers.setter
    def producers(self, states: ProducerStates) -> None:
        self._producers = states

    @property
    def producers_loaded(self) -> bool:
        """A log that nobody writes to does not read its producers' states from the disk."""
        return self._producers is not None

    @property
    def last_stable_offset(self) -> int:
        return self.producers.last_stable_offset(self.high_watermark)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending.

    def append_as_leader(
        self, batch: Bytes, *, leader_epoch: int, now_ms: int, internal: bool = False
    ) -> Appended:
        """Give a producer's batch its offsets, and queue it to be written."""
        return appending.append_as_leader(
            self, batch, leader_epoch=leader_epoch, now_ms=now_ms, internal=internal
        )

    def append_as_follower(self, chunk: Bytes, *, now_ms: int) -> int:
        """Take over batches as the leader numbered them, all or none; returns the new end offset."""
        return appending.append_as_follower(self, chunk, now_ms=now_ms)

    def begin_epoch(self, leader_epoch: int) -> None:
        """This replica leads from here on: what it appends belongs to `leader_epoch`."""
        appending.check_epoch(self, leader_epoch)
        if self.epochs.assign(leader_epoch, self.end_offset):
            self.home.touched.add(self)

    def check_online(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.home.check_online()

    def reconfigure(self, config: TopicConfig) -> None:
        """Take over changed topic settings; those about writing count from the next batch on."""
        changed = config.flush != self.config.flush
        if changed and config.flush == "commit":
            self.files.checkpoint()  # Under the old policy: it syncs all that was not synced.
        self.config = config
        if changed:
            self.files.save_state()
        for segment in self.segments:
            segment.index_interval = config.index_interval_bytes

    def roll(self, *, now_ms: int, at: int | None = None) -> None:
        """Close the active segment and begin a new one at the end of the log (or `at`, beyond it)."""
        base = self.end_offset if at is None else at
        self.files.roll(base, now_ms)

    # Reading.

    def read(self, offset: int, *, max_bytes: int, end_offset: int | None = None) -> ReadResult:
        """Whole batches from the one that holds `offset`, up to `end_offset` (the end of the log)."""
        self.check_online()
        end_offset = self.end_offset if end_offset is None else end_offset
        return reading.read(self, offset, max_bytes=max_bytes, end_offset=end_offset)

    def batches(self, offset: int | None = None, end_offset: int | None = None) -> Iterator[Batch]:
        self.check_online()
        start = self.log_start_offset if offset is None else offset
        return reading.batches(self, start, end_offset=self.end_offset if end_offset is None else end_offset)

    def largest_timestamp(self, *, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record with the largest timestamp (ListOffsets: max timestamp)."""
        self.check_online()
        end_offset = self.end_offset if end_offset is None else end_offset
        return reading.largest_timestamp(self, end_offset=end_offset)

    def offset_for_timestamp(
        self, timestamp: int, *, end_offset: int | None = None
    ) -> TimestampOffset | None:
        self.check_online()
        end_offset = self.end_offset if end_offset is None else end_offset
        return reading.offset_for_timestamp(self, timestamp, end_offset=end_offset)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        self.check_online()
        return reading.aborted_transactions(self, start, end)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that wrote here, and where its records end."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # Cutting.

    def truncate_to(self, offset: int, *, now_ms: int, done: DurableCallback | None = None) -> int:
        """Drop the batch that holds `offset` and all after it; returns the new end.

        Like those of `reset_to` and `delete_records`, `done` is called once the change is durable, or with
        the error if the directory fails or the log is closed before.
        """
        self.check_online()
        if offset >= self.end_offset:
            if self.epochs.truncate_end(offset):
                # An epoch that began here but wrote nothing is not the leader's, and must not outlive it.
                self.home.touched.add(self)
            if done is not None:
                self.home.writer.queue_call(_nothing, self._when_changed(done))
            return self.end_offset
        if offset <= self.log_start_offset:
            return self.reset_to(self.log_start_offset, now_ms=now_ms, done=done)
        if offset <= self.bases[0]:
            return self.reset_to(offset, now_ms=now_ms, done=done)
        segment = reading.segment_holding(self, offset)
        place = segment.place_of(offset)
        if place.offset < self.log_start_offset:
            # The cut takes all that had not been deleted; the records before the log start stay deleted.
            return self.reset_to(self.log_start_offset, now_ms=now_ms, done=done)
        if place.offset > offset:
            place = Place(
                offset, place.position
            )  # In a gap that cleaning left: the end is where it was asked.
        self.truncations += 1
        try:
            cutting.truncate(self, segment, place, now_ms, self._when_changed(done))
        except Exception as error:
            # Cut half: nothing has reached the files, so opening the log again starts from before.
            why = f"{self.topic_partition} could not be truncated: {error}. Restart the node to try again"
            self.fail(TailraceError(ErrorCode.STORAGE_ERROR, why))
            raise
        self.drop_waiters_beyond(self.end_offset, truncated_waiter(self))
        return self.end_offset

    def reset_to(self, offset: int, *, now_ms: int, done: DurableCallback | None = None) -> int:
        """Drop everything and go on at `offset`: for a follower that lags behind its leader's log start."""
        self.check_online()
        self.truncations += 1
        cutting.reset(self, offset, log_start=offset, now_ms=now_ms, done=self._when_changed(done))
        self.drop_waiters_beyond(-1, truncated_waiter(self))
        return offset

    def delete_records(self, offset: int, done: DurableCallback | None = None) -> int:
        """Move the log start up to `offset` (at most the high watermark); `done` when that is durable."""
        self.check_online()
        if not 0 <= offset <= self.high_watermark:
            raise TailraceError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: records can be deleted up to the high watermark "
                f"{self.high_watermark}, not up to {offset}",
            )
        self.log_start_offset = max(self.log_start_offset, offset)
        self.epochs.truncate_start(self.log_start_offset)
        self.files.save_log_start(self.log_start_offset, self._when_changed(done))
        return self.log_start_offset

    # Watermarks.

    def advance_high_watermark(self, offset: int) -> None:
        """Only grows, never past the end; the owner of the replica decides it."""
        offset = min(offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)

    def when_durable(self, offset: int, callback: DurableCallback) -> None:
        """Call back once everything below `offset` may be acknowledged, or with what went wrong."""
        if self.failure is not None:
            callback(self.failure)
        elif offset <= self.durable_end:
            callback(None)
        else:
            self._waiters_ever += 1
            heapq.heappush(self._waiters, (offset, self._waiters_ever, callback))

    def on_written(self, write: Write, *, synced: bool) -> None:
        if write.truncations != self.truncations or self.failure is not None:
            return
        segment = self.segments[bisect_right(self.bases, write.segment_base) - 1]
        if segment.base_offset == write.segment_base:
            segment.written = write.position + write.size
            while segment.in_flight and segment.in_flight[0].end <= segment.written:
                segment.in_flight.popleft()
        self.durable_end = write.end_offset
        if synced:
            self.synced_end = write.end_offset
        self._wake(None)

    def on_cut(self, segment: Segment, place: Place, truncations: int) -> None:
        """A truncation is durable: so is everything that it left, which was written before it."""
        if truncations != self.truncations or self.failure is not None:
            return
        for earlier in self.segments[: bisect_left(self.bases, segment.base_offset)]:
            earlier.written = earlier.size
            earlier.in_flight.clear()
        segment.written = max(segment.written, place.position)
        while segment.in_flight and segment.in_flight[0].end <= segment.written:
            segment.in_flight.popleft()
        self.durable_end = max(self.durable_end, place.offset)
        if self.config.flush == "commit":
            self.synced_end = max(self.synced_end, place.offset)
        self._wake(None)

    def _when_changed(self, done: DurableCallback | None) -> Job | None:
        if done is None:
            return None
        self._waiters_ever += 1
        number = self._waiters_ever
        self._changes[number] = done

        def changed() -> None:
            waiter = self._changes.pop(number, None)
            if waiter is not None:
                _tell(waiter, None)

        return changed

    def _wake(self, error: TailraceError | None) -> None:
        waiters = self._waiters
        while waiters and (error is not None or waiters[0][0] <= self.durable_end):
            _tell(heapq.heappop(waiters)[2], error)

    def drop_waiters_beyond(self, offset: int, error: TailraceError) -> None:
        dropped = sorted(waiter for waiter in self._waiters if waiter[0] > offset)
        self._waiters = [waiter for waiter in self._waiters if waiter[0] <= offset]
        heapq.heapify(self._waiters)
        for _, _, callback in dropped:
            _tell(callback, error)

    def fail(self, error: TailraceError) -> None:
        """The directory has failed or the log is closed: nothing more is accepted or promised."""
        if self.failure is None:
            self.failure = error
            self._wake(error)
            changes, self._changes = self._changes, {}
            for waiter in changes.values():
                _tell(waiter, error)


def _tell(callback: DurableCallback, error: TailraceError | None) -> None:
    """One waiter's mistake must not keep the news from the others."""
    try:
        callback(error)
    except Exception:
        events.exception("durable_callback_failed")


def _nothing() -> None:
    """An ordered call that only waits for what was queued before it."""
