"""A segment: the batches from its base offset up to the next segment's, in one file.

Invariants
- Every batch in the file has base offset >= `base_offset` and a relative offset that fits in 32 bits.
- Bytes below `written` are in the file; those from `written` to `size` wait with the writer and are served
  from memory. Both are batch boundaries.
- The index never names a position at or above `size`.

Segments belong to their log and are touched on its owner thread only. Index and aborted transactions of a
closed segment are read when first needed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader, parse_header
from tailrace.cluster.common.control import Marker, decode_markers
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import NO_TIMESTAMP, Bytes
from tailrace.cluster.storage.core.aborted import AbortedIndex, decode_aborted
from tailrace.cluster.storage.core.index import SparseIndex, decode_index
from tailrace.cluster.storage.core.retention import SegmentFacts
from tailrace.cluster.storage.files import File, Files, storage_error
from tailrace.cluster.storage.handles import HandleCache

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TXN_INDEX_SUFFIX = ".txnindex"
PRODUCERS_SUFFIX = ".producers"
DELETED_SUFFIX = ".deleted"

# What a saved state says of a segment instead of where its records end: it was still growing then, or it
# was cleaned, or cut and closed since.
CONTENT_OF_ACTIVE = -1
CONTENT_UNKNOWN = -2

WALK_BYTES = 16 * 1024
_RECENT_POSITIONS = 64
_ROOM_FOR_OFFSETS = 2**32 - 1
_STEP = struct.Struct("<qI32xI")  # base offset, size, last offset delta


def offset_name(offset: int) -> str:
    return f"{offset:020d}"


class Place(NamedTuple):
    """A batch boundary: the base offset of the batch that starts (or would start) at `position`."""

    offset: int
    position: int


class InFlight(NamedTuple):
    position: int
    end: int
    buffers: Sequence[Bytes]


class Segment:
    __slots__ = (
        "_aborted",
        "_expected_aborted",
        "_files",
        "_first_timestamp",
        "_handles",
        "_index",
        "_largest_timestamp",
        "_recent",
        "base_offset",
        "content_end",
        "created_ms",
        "directory",
        "in_flight",
        "index_interval",
        "indexed_position",
        "next_offset",
        "path",
        "persisted_aborted",
        "persisted_entries",
        "pinned",
        "records_end",
        "reserved",
        "settled",
        "size",
        "written",
    )

    def __init__(
        self,
        *,
        files: Files,
        handles: HandleCache,
        directory: str,
        base_offset: int,
        next_offset: int,
        size: int = 0,
        index_interval: int = 4096,
        index: SparseIndex | None = None,
        aborted: AbortedIndex | None = None,
        largest_timestamp: int | None = None,
        first_timestamp: int | None = None,
        created_ms: int | None = None,
        expected_aborted: int = 0,
        content_end: int = CONTENT_UNKNOWN,
        fresh: bool = False,
    ) -> None:
        self._files = files
        self._handles = handles
        self.directory = directory
        self.base_offset = base_offset
        self.path = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"
        self.next_offset = next_offset
        self.size = size
        self.written = size
        self.index_interval = index_interval
        self.in_flight: deque[InFlight] = deque()
        self._index = SparseIndex(base_offset) if fresh else index
        self._aborted = AbortedIndex() if fresh else aborted
        self._expected_aborted = expected_aborted
        self._largest_timestamp = NO_TIMESTAMP if fresh else largest_timestamp
        self.created_ms = created_ms
        # Where the records of a closed segment end (or a CONTENT_...); `next_offset` can lie beyond a gap.
        self.content_end = content_end
        # Its file may be longer than `size`: disk space was reserved for it.
        self.reserved = False
        # The same while it grows; None while it is empty or not known.
        self.records_end: int | None = None
        self._first_timestamp = first_timestamp
        last = index.last if index is not None else None
        self.indexed_position = last.position if last is not None else -index_interval
        self.persisted_entries = 0
        self.persisted_aborted = 0
        self._recent: dict[int, int] = {}
        # While the file has not got its final name yet, reads go to this handle.
        self.pinned: File | None = None
        # What `log-state.json` says of it, kept from when nothing of that changes any more.
        self.settled: tuple[int | None, ...] | None = None

    def pin(self, path: str) -> None:
        """Read from the file that is at `path` now, whatever happens to its name."""
        self.pinned = self._handles.acquire(path)

    def unpin(self) -> None:
        if self.pinned is not None:
            self._handles.release(self.pinned)
            self.pinned = None

    def sibling(self, suffix: str) -> str:
        return f"{self.directory}/{offset_name(self.base_offset)}{suffix}"

    @property
    def largest_timestamp(self) -> int:
        if self._largest_timestamp is None:
            self._largest_timestamp = self._find_largest_timestamp()
        return self._largest_timestamp

    @property
    def known_largest_timestamp(self) -> int | None:
        """None where the index would have to be read for it."""
        return self._largest_timestamp

    @property
    def known_first_timestamp(self) -> int | None:
        return self._first_timestamp

    @property
    def first_timestamp(self) -> int | None:
        if self._first_timestamp is None and self.size:
            header, _ = next(self.headers(Place(self.base_offset, 0)))
            self._first_timestamp = header.largest_timestamp
        return self._first_timestamp

    def facts(self, *, known_only: bool = False) -> SegmentFacts:
        """`known_only` leaves the first timestamp out where the file would have to be read for it."""
        return SegmentFacts(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size=self.size,
            largest_timestamp=self.largest_timestamp,
            first_timestamp=self._first_timestamp if known_only else self.first_timestamp,
            created_ms=self.created_ms,
        )

    # Growing.

    def has_room(self, header: BatchHeader, before: int, config: TopicConfig) -> bool:
        """True only when nothing can be a reason to roll; `should_roll` decides the rest of the cases."""
        size, first = self.size, self._first_timestamp
        if size == 0 or first is None or config.segment_jitter_ms or config.compacted:
            return False
        return (
            size + before + header.size <= config.segment_bytes
            and 0 <= header.largest_timestamp - first <= config.segment_ms
            and header.largest_timestamp >= 0
            and first >= 0
            and header.last_offset - self.base_offset < _ROOM_FOR_OFFSETS
            and self._index is not None
            and len(self._index) * 16 < config.segment_index_bytes
        )

    def add(self, header: BatchHeader, *, base_offset: int, timestamp: int) -> int:
        """Account for a batch at the end; returns its position. `timestamp` is its largest."""
        position = self.size
        if self.largest_timestamp < timestamp:
            self._largest_timestamp = timestamp
        if position == 0:
            self._first_timestamp = timestamp
        if position - self.indexed_position >= self.index_interval:
            self.index.append(base_offset, position, self.largest_timestamp)
            self.indexed_position = position
        recent = self._recent
        recent[base_offset] = position
        if len(recent) > _RECENT_POSITIONS:
            del recent[next(iter(recent))]
        self.size = position + header.size
        self.next_offset = self.records_end = base_offset + header.last_offset_delta + 1
        return position

    def cut(self, place: Place) -> None:
        """Forget everything from `place` on. The file follows by an ordered call of the log's."""
        records_end = self.end_of_records(place)
        self.settled = None
        self.index.truncate(place.offset)
        self.aborted.truncate(place.offset)
        self.size = place.position
        self.next_offset = place.offset
        self.written = min(self.written, place.position)
        while self.in_flight and self.in_flight[-1].position >= place.position:
            self.in_flight.pop()
        if self.in_flight and self.in_flight[-1].end > place.position:
            last = self.in_flight.pop()
            kept = memoryview(b"".join(last.buffers))[: place.position - last.position]
            self.in_flight.append(InFlight(last.position, place.position, [kept]))
        self._recent = {offset: at for offset, at in self._recent.items() if offset < place.offset}
        self._note_indexed(self.index)
        self._largest_timestamp = None
        self.content_end, self.records_end = CONTENT_UNKNOWN, records_end
        if place.position == 0:
            self._first_timestamp = None

    def end_of_records(self, place: Place) -> int | None:
        """Where the last batch before `place` ends, which may be before its offset: in a gap."""
        floor = self.index.floor_position(place.position - 1)
        end = None
        if place.position:
            for header, _ in self.headers(Place(*floor) if floor else Place(0, 0), place.position):
                end = header.next_offset
        return end

    # Indexes.

    @property
    def index(self) -> SparseIndex:
        if self._index is None:
            self._index, self.persisted_entries = self._load_index()
            self._note_indexed(self._index)
        return self._index

    def _read_derived(self, path: str) -> bytes:
        """An index file that is missing or cannot be read is rebuilt like a damaged one."""
        try:
            return self._files.read(path)
        except OSError:
            return b""

    def _note_indexed(self, index: SparseIndex) -> None:
        last = index.last
        self.indexed_position = last.position if last is not None else -self.index_interval

    @property
    def aborted(self) -> AbortedIndex:
        if self._aborted is None:
            path = self.sibling(TXN_INDEX_SUFFIX)
            data = self._read_derived(path)
            aborted, valid = decode_aborted(data)
            if len(aborted) < self._expected_aborted:
                raise self._incomplete_aborted()
            self._aborted = aborted
            # Frames behind a damaged one would not be read: then the file is written anew.
            self.persisted_aborted = len(aborted) if valid == len(data) else 0
        return self._aborted

    @property
    def aborted_count(self) -> int:
        return self._expected_aborted if self._aborted is None else len(self._aborted)

    @property
    def aborted_complete(self) -> bool:
        """Whether the transaction index can be used; if not, the log rebuilds it from the batches."""
        try:
            return self.aborted is not None
        except TailraceError:
            return False

    def replace_aborted(self, rebuilt: AbortedIndex) -> None:
        """What was in the file is given up; it is written anew with the next checkpoint."""
        self._aborted = rebuilt
        self.persisted_aborted = 0
        self.settled = None

    def close(self) -> None:
        """No more batches: give back what only appending and tail reads need."""
        self._recent = {}

    def _load_index(self) -> tuple[SparseIndex, int]:
        path = self.sibling(INDEX_SUFFIX)
        data = self._read_derived(path)
        index, valid = decode_index(data, self.base_offset, self.size)
        # Frames behind a damaged one would not be read: then the file is written anew.
        persisted = len(index) if valid == len(data) else 0
        self._complete_index(index)
        return index, persisted

    def _complete_index(self, index: SparseIndex) -> None:
        """Add what a missing or damaged index file does not tell, from the headers in the log itself."""
        position, largest = 0, NO_TIMESTAMP
        indexed = -self.index_interval
        last = index.last
        if last is not None:
            _, position, largest = last
            indexed = position
        for header, at in self.headers(Place(0, position)):
            largest = max(largest, header.largest_timestamp)
            if at - indexed >= self.index_interval and at > indexed:
                index.append(header.base_offset, at, largest)
                indexed = at
        self._largest_timestamp = largest

    def _find_largest_timestamp(self) -> int:
        last = self.index.last
        if self._largest_timestamp is not None:
            return self._largest_timestamp  # Loading the index has found it.
        position, largest = 0, NO_TIMESTAMP
        if last is not None:
            _, position, largest = last
        for header, _ in self.headers(Place(0, position)):
            largest = max(largest, header.largest_timestamp)
        return largest

    # Reading.

    def read(self, position: int, end: int) -> Bytes:
        """The bytes from `position` to `end`, wherever they are."""
        if end <= self.written:
            return self._read_file(position, end)
        parts: list[Bytes] = []
        if position < self.written:
            parts.append(self._read_file(position, self.written))
            position = self.written
        for chunk in self.in_flight:
            if chunk.end > position and chunk.position < end:
                data = chunk.buffers[0] if len(chunk.buffers) == 1 else b"".join(chunk.buffers)
                parts.append(memoryview(data)[position - chunk.position : end - chunk.position])
                position = min(chunk.end, end)
        return b"".join(parts)

    def _read_file(self, position: int, end: int) -> bytes:
        size = end - position
        try:
            file = self.pinned or self._handles.acquire(self.path)
            try:
                data = file.pread(size, position)
            finally:
                if file is not self.pinned:
                    self._handles.release(file)
        except OSError as error:
            raise storage_error("reading a segment", error, self.path) from error
        if len(data) != size:
            raise self.damaged(position, f"{size} bytes expected, the file has {len(data)}")
        return data

    def headers(self, start: Place, end: int | None = None) -> Iterator[tuple[BatchHeader, int]]:
        """Headers of the batches from `start` on, with their positions; damage raises STORAGE_CORRUPT."""
        position = start.position
        end = self.size if end is None else end
        while position < end:
            window = memoryview(self.read(position, min(end, position + WALK_BYTES)))
            at = 0
            while at + HEADER_SIZE <= len(window):
                try:
                    header = parse_header(window, at)
                except TailraceError as error:
                    raise self.damaged(position + at, error.args[0]) from None
                yield header, position + at
                at += header.size
            if at == 0:
                raise self.damaged(position, "the file ends inside a batch")
            position += at

    def replay(self, offset: int) -> Iterator[tuple[BatchHeader, tuple[Marker, ...]]]:
        """Headers from the batch that holds `offset` on, with what their control records say."""
        for header, position in self.headers(self.place_of(offset)):
            markers: tuple[Marker, ...] = ()
            if header.is_control:
                batch = self.batch_at(position, header.size)
                try:
                    markers = decode_markers(batch)
                except TailraceError as error:
                    raise self.damaged(position, error.args[0]) from None
            yield header, markers

    def batch_at(self, position: int, size: int) -> Batch:
        try:
            return Batch(self.read(position, position + size))
        except TailraceError as error:
            raise self.damaged(position, error.args[0]) from None

    def place_of(self, offset: int) -> Place:
        """The first batch whose last offset reaches `offset`; the end of the segment when there is none."""
        if offset >= self.next_offset:
            return Place(self.next_offset, self.size)
        known = self._recent.get(offset)
        if known is not None:
            return Place(offset, known)
        floor = self.index.floor_offset(offset)
        if floor is not None and floor[0] == offset:
            return Place(*floor)
        position = floor[1] if floor is not None else 0
        return self._walk(offset, position, floor[0] if floor is not None else None)

    def _walk(self, offset: int, position: int, expected: int | None) -> Place:
        while position < self.size:
            window = self.read(position, min(self.size, position + WALK_BYTES))
            at = 0
            while at + HEADER_SIZE <= len(window):
                base, size, last_delta = _STEP.unpack_from(window, at)
                if size < HEADER_SIZE or (expected is not None and base != expected):
                    raise self.damaged(position + at, f"no batch with offset {expected} is there")
                expected = None
                if base + last_delta >= offset:
                    return Place(base, position + at)
                at += size
            if at == 0:
                raise self.damaged(position, "the file ends inside a batch")
            position += at
        return Place(self.next_offset, self.size)

    def end_of_read(self, start: Place, limit: Place, max_bytes: int) -> Place:
        """Where a read from `start` ends: a batch boundary within `max_bytes`, or after one batch."""
        if limit.position - start.position <= max_bytes:
            return limit
        boundary = self.index.floor_position(start.position + max_bytes)
        if boundary is not None and boundary[1] > start.position:
            return Place(*boundary)
        last = None
        for header, position in self.headers(start, limit.position):
            end = Place(header.next_offset, position + header.size)
            if last is not None and end.position - start.position > max_bytes:
                break
            last = end
        return last if last is not None else limit

    def _incomplete_aborted(self) -> TailraceError:
        return TailraceError(
            ErrorCode.STORAGE_CORRUPT,
            f"{self.sibling(TXN_INDEX_SUFFIX)} lacks aborted transactions: it should have "
            f"{self._expected_aborted}",
        )

    def damaged(self, position: int, what: str) -> TailraceError:
        return TailraceError(
            ErrorCode.STORAGE_CORRUPT,
            f"{self.path} is damaged at byte {position}: {what}. The replica must be fetched again from "
            "another one; `tailrace log verify` shows the extent of the damage.",
        )
