"""A small log for tests of compaction, which remembers everything that was ever written to it.

It keeps its files in a `FaultFiles`, closes segments when told to, and cleans itself the way the storage
engine does: assess, clean, swap, advance the checkpoint. `check` compares what is left with the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from google_crc32c import value as crc32c

from tailrace.cluster.common.batch import BatchHeader, check_batch
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import decode_markers, encode_marker
from tailrace.cluster.common.records import Batch, iterate_batches
from tailrace.cluster.storage.cleaner import CleanJob, CleanResult, Throttle, clean
from tailrace.cluster.storage.core.aborted import AbortedIndex, AbortedTransaction, decode_aborted
from tailrace.cluster.storage.core.cleaning import AbortedRanges
from tailrace.cluster.storage.core.cleaning_plan import assess
from tailrace.cluster.storage.core.index import decode_index
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.core.retention import SegmentFacts
from tailrace.cluster.storage.swap import recover_swaps, swap
from tests.support.fault_files import FaultFiles

DIRECTORY = "/data/topic-0"
DELETE_RETENTION_MS = 1_000
PLAIN, OPEN, COMMITTED, ABORTED = "plain", "open", "committed", "aborted"


def no_limit() -> Throttle:
    return Throttle(float("inf"), clock=lambda: 0.0, sleep=lambda _: None)


class Written(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass(slots=True)
class Producer:
    epoch: int = 0
    sequence: int = 0
    first_offset: int | None = None
    in_transaction: list[int] = field(default_factory=list)


def name(base: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base:020d}{suffix}"


def make_undecodable(batch: bytes) -> bytes:
    """The same batch with a codec that its column block is not compressed with; its checksum is right."""
    broken = bytearray(batch)
    broken[37] = broken[37] & 0xF0 | Codec.ZSTD
    broken[32:36] = crc32c(bytes(broken[36:])).to_bytes(4, "little")
    return bytes(broken)


class SmallLog:
    def __init__(self) -> None:
        self.files = FaultFiles(Random(1))
        self.files.make_dirs(DIRECTORY)
        self.now_ms = 10_000
        self.states = ProducerStates()
        self.history: dict[int, Written] = {}
        self.status: dict[int, str] = {}
        # When the first cleaning covered an offset: tombstones stay for DELETE_RETENTION_MS from then on.
        self.first_cleaned_ms: dict[int, int] = {}
        self.hidden: set[int] = set()
        self.producers: dict[int, Producer] = {}
        self.segments: list[SegmentFacts] = [SegmentFacts(0, 0, 0, -1)]
        self.aborted: dict[int, list[AbortedTransaction]] = {0: []}
        self.checkpoint = 0
        self.next_horizon_ms: int | None = None

    # Writing.

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset

    @property
    def last_stable_offset(self) -> int:
        return self.states.last_stable_offset(self.end_offset)

    def append(
        self,
        records: list[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int = -1,
        transactional: bool = False,
        codec: Codec = Codec.NONE,
        undecodable: bool = False,
    ) -> int:
        base = self.end_offset
        producer = self.producers.setdefault(producer_id, Producer()) if producer_id >= 0 else None
        data = encode_batch(
            keys=[key for key, _ in records],
            values=[value for _, value in records],
            timestamps=[self.now_ms + n for n in range(len(records))],
            codec=codec,
            base_offset=base,
            leader_epoch=1,
            producer_id=producer_id,
            producer_epoch=producer.epoch if producer else -1,
            base_sequence=producer.sequence if producer else -1,
            transactional=transactional,
        )
        if producer is not None:
            producer.sequence += len(records)
        offsets = range(base, base + len(records))
        for n, (key, value) in enumerate(records):
            self.history[base + n] = Written(base + n, key, value, self.now_ms + n)
        self.status |= dict.fromkeys(offsets, OPEN if transactional else PLAIN)
        if transactional and producer is not None:
            producer.in_transaction += offsets
        if undecodable:
            self.hidden |= set(offsets)
            data = make_undecodable(data)
        self._write(data)
        return base

    def end_transaction(self, producer_id: int, *, commit: bool, fence: bool = False) -> None:
        """Write the marker; with `fence` it raises the producer's epoch, as after a timeout."""
        producer = self.producers[producer_id]
        producer.epoch += fence
        for offset in producer.in_transaction:
            self.status[offset] = COMMITTED if commit else ABORTED
        self._write(
            encode_marker(
                commit=commit,
                producers=[(producer_id, producer.epoch)],
                coordinator_epoch=3,
                timestamp=self.now_ms,
                base_offset=self.end_offset,
                leader_epoch=1,
            )
        )
        producer.in_transaction = []
        producer.epoch += 1
        producer.sequence = 0

    def _write(self, data: bytes) -> None:
        header = check_batch(data)
        active = self.segments[-1]
        file = self.files.open(name(active.base_offset), create=True)
        file.pwritev([data], active.size)
        file.close()
        self.segments[-1] = active._replace(
            next_offset=header.next_offset,
            size=active.size + len(data),
            largest_timestamp=max(active.largest_timestamp, header.largest_timestamp),
            first_timestamp=header.largest_timestamp if active.is_empty else active.first_timestamp,
        )
        ended = self.states.apply(
            header, now_ms=self.now_ms, markers=decode_markers(Batch(data)) if header.is_control else ()
        )
        self.aborted[active.base_offset] += ended

    def roll(self) -> None:
        active = self.segments[-1]
        if active.is_empty:
            return
        index = AbortedIndex()
        for entry in self.aborted[active.base_offset]:
            index.append(entry)
        if len(index):
            self._write_file(name(active.base_offset, ".txnindex"), index.encode_frame())
        self._write_file(name(active.base_offset, ".index"), b"rebuilt when needed")
        self._write_file(name(self.end_offset), b"")
        self.segments.append(SegmentFacts(self.end_offset, self.end_offset, 0, -1))
        self.aborted[self.end_offset] = []

    def _write_file(self, path: str, data: bytes) -> None:
        file = self.files.open(path, create=True)
        file.pwritev([data], 0)
        file.datasync()
        file.close()

    # Cleaning.

    def job(self, *, key_map_bytes: int = 1 << 20, segment_bytes: int = 2_000) -> CleanJob:
        found = assess(
            self.segments,
            checkpoint=self.checkpoint,
            log_start=0,
            last_stable_offset=self.last_stable_offset,
            min_compaction_lag_ms=0,
            max_compaction_lag_ms=-1,
            next_horizon_ms=self.next_horizon_ms,
            now_ms=self.now_ms,
        )
        closed = tuple(segment for segment in self.segments if segment.next_offset <= found.end)
        return CleanJob(
            directory=DIRECTORY,
            segments=closed[: len(self.segments) - 1],
            first_dirty=found.first_dirty,
            end=found.end,
            aborted=tuple(entry for entries in self.aborted.values() for entry in entries),
            pinned=frozenset(self.states.last_batch_offsets().values()),
            segment_bytes=segment_bytes,
            index_interval_bytes=200,
            delete_retention_ms=DELETE_RETENTION_MS,
            now_ms=self.now_ms,
            key_map_bytes=key_map_bytes,
            chunk_bytes=500,
        )

    def clean(self, *, key_map_bytes: int = 1 << 20, segment_bytes: int = 2_000) -> CleanResult:
        job = self.job(key_map_bytes=key_map_bytes, segment_bytes=segment_bytes)
        untouched = self._batches_from(job.end)
        result = clean(job, self.files, no_limit())
        assert result is not None
        beyond = self._batches_from(result.first_dirty) if result.map_was_full else {}
        swap(self.files, DIRECTORY, result.groups)
        self.take_in(result)
        assert self._batches_from(job.end) == untouched
        assert beyond.items() <= self._batches_from(result.first_dirty).items()
        for offset in self.history:
            if offset < result.first_dirty:
                self.first_cleaned_ms.setdefault(offset, self.now_ms)
        return result

    def take_in(self, result: CleanResult) -> None:
        """What the log's owner does after the swap."""
        for cleaned in result.segments:
            kept = [segment for segment in self.segments if segment.base_offset not in cleaned.replaces]
            self.segments = sorted([*kept, cleaned.facts])
            for base in cleaned.replaces:
                del self.aborted[base]
            self.aborted[cleaned.facts.base_offset] = list(cleaned.aborted)
        self.checkpoint = result.first_dirty
        self.next_horizon_ms = result.next_horizon_ms

    def reopen(self, files: FaultFiles) -> None:
        """Take the segments from the files found after a crash, as opening a log does."""
        self.files = files
        recover_swaps(files, DIRECTORY)
        content = files.files_below(DIRECTORY)
        bases = sorted(int(path[-24:-4]) for path in content if path.endswith(".log"))
        ends = [*bases[1:], self.end_offset]
        self.segments = [
            SegmentFacts(base, end, len(content[name(base)]), -1)
            for base, end in zip(bases, ends, strict=True)
        ]
        self.aborted = {
            base: list(decode_aborted(content.get(name(base, ".txnindex"), b""))[0]) for base in bases
        }

    # Looking.

    def batches(self) -> list[Batch]:
        return [batch for segment in self.segments for batch in self._segment_batches(segment)]

    def headers(self) -> list[BatchHeader]:
        return [batch.header for batch in self.batches()]

    def _segment_batches(self, segment: SegmentFacts) -> list[Batch]:
        path = name(segment.base_offset)
        data = self.files.read(path) if self.files.exists(path) else b""
        assert len(data) == segment.size
        return list(iterate_batches(data))

    def _batches_from(self, offset: int) -> dict[int, bytes]:
        return {
            batch.header.base_offset: bytes(batch.data)
            for batch in self.batches()
            if batch.header.base_offset >= offset
        }

    def surviving(self) -> list[Written]:
        """Every record that is left and can be decoded, whatever became of its transaction."""
        found = []
        for batch in self.batches():
            if batch.header.is_control or not self.hidden.isdisjoint(range(*_span(batch.header))):
                continue
            found += [Written(r.offset, r.key, r.value, r.timestamp) for r in batch.records("topic", 0)]
        return found

    def read_committed(self) -> list[Written]:
        """What a consumer gets that leaves out aborted records by the indexes on disk."""
        entries = []
        for segment in self.segments[:-1]:
            path = name(segment.base_offset, ".txnindex")
            if self.files.exists(path):
                index, valid = decode_aborted(self.files.read(path))
                assert valid == len(self.files.read(path))
                entries += list(index)
        ranges = AbortedRanges([*entries, *self.aborted[self.segments[-1].base_offset]])
        left_out = {
            offset
            for header in self.headers()
            if not header.is_control and ranges.covers(header)
            for offset in range(*_span(header))
        }
        return [
            record
            for record in self.surviving()
            if record.offset < self.last_stable_offset and record.offset not in left_out
        ]

    # Checking.

    def check(self) -> None:
        self._check_layout()
        surviving = self.surviving()
        assert [record.offset for record in surviving] == sorted({record.offset for record in surviving})
        for record in surviving:
            assert record == self.history[record.offset]
        left = {record.offset for record in surviving}
        visible = [
            record
            for offset, record in self.history.items()
            if offset < self.last_stable_offset
            and self.status[offset] in (PLAIN, COMMITTED)
            and offset not in self.hidden
        ]
        assert self.read_committed() == [record for record in visible if record.offset in left]
        assert final_state(self.read_committed()) == final_state(visible)
        self._check_removed(visible, left)
        for offset in left:
            assert offset >= self.checkpoint or self.status[offset] != ABORTED
        self._check_producers()

    def _check_removed(self, visible: list[Written], left: set[int]) -> None:
        """Whatever is gone had a reason to go."""
        last: dict[bytes | None, int] = {}
        for record in visible:
            if record.offset < self.checkpoint:
                last[record.key] = record.offset
        for record in visible:
            if record.offset in left or record.key is None:
                continue
            if last.get(record.key, -1) > record.offset:
                continue
            assert record.value is None, f"the last value of its key is gone: {record}"
            assert self.now_ms >= self.first_cleaned_ms[record.offset] + DELETE_RETENTION_MS

    def _check_producers(self) -> None:
        rebuilt = ProducerStates()
        for batch in self.batches():
            markers = decode_markers(batch) if batch.header.is_control else ()
            rebuilt.apply(batch.header, now_ms=self.now_ms, markers=markers)
        assert rebuilt.last_stable_offset(self.end_offset) == self.last_stable_offset
        was, now = (
            {
                one.producer_id: (one.producer_epoch, one.last_sequence, one.transaction_start_offset)
                for one in states.describe()
            }
            for states in (self.states, rebuilt)
        )
        # A replay also finds producers that have expired, as long as the log holds anything of theirs.
        assert was.items() <= now.items()

    def _check_layout(self) -> None:
        """Segments follow each other, sizes and timestamps are right, and indexes name batches."""
        for segment, following in zip(self.segments, [*self.segments[1:], None], strict=True):
            assert following is None or segment.next_offset == following.base_offset
            boundaries, position, largest = {}, 0, -1
            for batch in self._segment_batches(segment):
                header = batch.header
                assert segment.base_offset <= header.base_offset < header.next_offset <= segment.next_offset
                largest = max(largest, header.largest_timestamp)
                boundaries[header.base_offset] = (position, largest)
                position += header.size
            assert segment.largest_timestamp == largest
            path = name(segment.base_offset, ".index")
            if self.files.exists(path) and (data := self.files.read(path)) != b"rebuilt when needed":
                index, valid = decode_index(data, segment.base_offset, segment.size)
                assert valid == len(data)
                assert len(index) or not segment.size
                for entry in index.entries():
                    assert boundaries[entry.offset] == (entry.position, entry.largest_timestamp)


def final_state(records: list[Written]) -> dict[bytes, bytes]:
    """What a reader that applies the records to a table ends with."""
    state: dict[bytes, bytes] = {}
    for record in records:
        if record.key is not None and record.value is not None:
            state[record.key] = record.value
        elif record.key is not None:
            state.pop(record.key, None)
    return state


def _span(header: BatchHeader) -> tuple[int, int]:
    return header.base_offset, header.next_offset
