"""The cleaner's reading and writing: whole segments in, a new segment out, in chunks and within a budget.

`read_batches` verifies every checksum, so that what comes out of it can be decided on and copied. A
`SegmentOutput` writes one new segment under `.cleaned` names; its files are synced when `finish` returns,
and the names when the caller has synced the directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader, check_crc, parse_header
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import NO_TIMESTAMP, Bytes
from tailrace.cluster.storage.core.aborted import AbortedIndex
from tailrace.cluster.storage.core.index import SparseIndex
from tailrace.cluster.storage.core.retention import SegmentFacts
from tailrace.cluster.storage.files import File, Files
from tailrace.cluster.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TXN_INDEX_SUFFIX, offset_name
from tailrace.cluster.storage.swap import cleaned_name

CHUNK_BYTES = 1 << 20
CLEANED_FILES = (LOG_SUFFIX, INDEX_SUFFIX, TXN_INDEX_SUFFIX)


class Throttle:
    """A budget of bytes a second that all cleaners of a process share. Unused time is not saved up.

    It sleeps between chunks, so a job notices within the time of one chunk that it has been cancelled.
    """

    def __init__(
        self, bytes_per_second: float, *, clock: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Wait until `size` more bytes may be read or written."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at, now) + size / self._rate
            wait = self._free_at - now
        if wait > 0:
            self._sleep(wait)


class Chunk(NamedTuple):
    """Bytes of a segment, and the verified batches in them with their positions in `data`."""

    data: bytes
    batches: Sequence[tuple[BatchHeader, int]]


def read_batches(
    files: Files,
    directory: str,
    segment: SegmentFacts,
    *,
    chunk_bytes: int,
    before_read: Callable[[int], None],
) -> Iterator[Chunk]:
    """A segment's batches in chunks of about that size; `before_read` is told the size of each read."""
    path = _log_path(directory, segment.base_offset)
    file = files.open(path)
    try:
        position, tail, wanted = 0, b"", max(chunk_bytes, HEADER_SIZE)
        while position < segment.size:
            size = min(wanted, segment.size - position) - len(tail)
            before_read(size)
            fresh = file.pread(size, position + len(tail))
            data = tail + fresh if tail else fresh
            batches, end, wanted = _split(data, path, position, chunk_bytes)
            if len(fresh) < size or (end == 0 and position + len(data) >= segment.size):
                raise _damaged(path, position + end, "the file ends inside a batch")
            if batches:
                yield Chunk(data, batches)
            position += end
            tail = data[end:]
    finally:
        file.close()


def _split(
    data: bytes, path: str, position: int, chunk_bytes: int
) -> tuple[list[tuple[BatchHeader, int]], int, int]:
    """The whole batches in `data`, where they end, and how many bytes to have next from there on."""
    batches: list[tuple[BatchHeader, int]] = []
    at = 0
    while at + HEADER_SIZE <= len(data):
        try:
            header = parse_header(data, at)
            if at + header.size > len(data):
                return batches, at, max(header.size, chunk_bytes)
            check_crc(data, header, at)
        except TailraceError as error:
            raise _damaged(path, position + at, error.args[0]) from None
        batches.append((header, at))
        at += header.size
    return batches, at, max(chunk_bytes, HEADER_SIZE)


class SegmentOutput:
    """The new segment of one group.

    A group of one segment writes nothing until something in it changes; what stood before that is then
    copied. So a cold segment that a cleaning leaves as it is costs reading only.
    """

    def __init__(
        self,
        *,
        files: Files,
        directory: str,
        group: Sequence[SegmentFacts],
        index_interval_bytes: int,
        before_io: Callable[[int], None],
    ) -> None:
        self.base_offset = group[0].base_offset
        self.bytes_written = 0
        self._files = files
        self._directory = directory
        self._group = group
        self._interval = index_interval_bytes
        self._before_io = before_io
        self._file: File | None = None
        self._index = SparseIndex(self.base_offset)
        self._indexed = -index_interval_bytes
        self._size = 0
        self._waiting: list[Bytes] = []
        self._largest_timestamp = NO_TIMESTAMP
        self._first_timestamp: int | None = None
        if len(group) > 1:
            self._start()

    @property
    def changed(self) -> bool:
        """Whether there is anything to put in the group's place."""
        return self._file is not None

    def keep(self, header: BatchHeader, data: Bytes) -> None:
        """The next batch stays as it is. `data` must not change before the next `flush`."""
        if self._file is not None:
            self._waiting.append(data)
        self._account(header)

    def replace(self, header: BatchHeader, data: bytes) -> None:
        """The next batch becomes this one."""
        self._start()
        self._waiting.append(data)
        self._account(header)

    def drop(self) -> None:
        """The next batch goes."""
        self._start()

    def flush(self) -> None:
        if self._file is None or not self._waiting:
            return
        size = sum(map(len, self._waiting))
        self._before_io(size)
        self._file.pwritev(self._waiting, self._size - size)
        self.bytes_written += size
        self._waiting = []

    def finish(self, aborted: AbortedIndex) -> tuple[SegmentFacts, SparseIndex]:
        """Write and sync all files of the new segment."""
        self.flush()
        assert self._file is not None, "a group without changes has nothing to finish"
        self._file.datasync()
        index_frame = self._index.encode_frame()
        self._write_side_file(INDEX_SUFFIX, index_frame)
        if len(aborted):
            self._write_side_file(TXN_INDEX_SUFFIX, aborted.encode_frame())
        facts = SegmentFacts(
            base_offset=self.base_offset,
            next_offset=self._group[-1].next_offset,
            size=self._size,
            largest_timestamp=self._largest_timestamp,
            first_timestamp=self._first_timestamp,
            created_ms=self._group[-1].created_ms,
            index_bytes=len(index_frame),
        )
        return facts, self._index

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _account(self, header: BatchHeader) -> None:
        timestamp = header.largest_timestamp
        self._largest_timestamp = max(self._largest_timestamp, timestamp)
        if self._first_timestamp is None:
            self._first_timestamp = timestamp
        if self._size - self._indexed >= self._interval:
            self._index.append(header.base_offset, self._size, self._largest_timestamp)
            self._indexed = self._size
        self._size += header.size

    def _start(self) -> None:
        if self._file is not None:
            return
        remove_cleaned(self._files, self._directory, self.base_offset)
        path = f"{self._directory}/{cleaned_name(self.base_offset, LOG_SUFFIX)}"
        self._file = self._files.open(path, create=True)
        if self._size:
            self._copy_prefix(self._file, self._size)

    def _copy_prefix(self, target: File, size: int) -> None:
        source = self._files.open(_log_path(self._directory, self.base_offset))
        try:
            for position in range(0, size, CHUNK_BYTES):
                length = min(CHUNK_BYTES, size - position)
                self._before_io(2 * length)
                data = source.pread(length, position)
                if len(data) < length:
                    raise _damaged(source.path, position + len(data), "the file became shorter")
                self.bytes_written += target.pwritev([data], position)
        finally:
            source.close()

    def _write_side_file(self, suffix: str, data: bytes) -> None:
        file = self._files.open(f"{self._directory}/{cleaned_name(self.base_offset, suffix)}", create=True)
        try:
            file.pwritev([data], 0)
            file.datasync()
        finally:
            file.close()


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Remove the files of a new segment that is not wanted, as far as they exist."""
    for suffix in CLEANED_FILES:
        files.remove(f"{directory}/{cleaned_name(base_offset, suffix)}")


def _log_path(directory: str, base_offset: int) -> str:
    return f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"


def _damaged(path: str, position: int, what: str) -> TailraceError:
    return TailraceError(
        ErrorCode.STORAGE_CORRUPT,
        f"{path} is damaged at byte {position}: {what}. Cleaning stopped and changed nothing; the "
        "replica must be fetched again from another one.",
    )
