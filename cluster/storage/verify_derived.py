"""Checking what is derived from the batches: indexes, aborted transactions, producer snapshots.

Damage here costs time, not data, because the engine rebuilds what it cannot trust; so it is a warning. It is
an error only where a file's checksum is right and its content wrong, since then the engine believes it.
`verify_log` calls this while it walks through the batches.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Sequence

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.types import NO_TIMESTAMP
from tailrace.cluster.storage.core.aborted import AbortedTransaction, decode_aborted
from tailrace.cluster.storage.core.index import IndexEntry
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.derived import snapshot_path
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.findings import Report
from tailrace.cluster.storage.inspect import FoundBatch, SegmentFile, read_index
from tailrace.cluster.storage.segment import LOG_SUFFIX, TXN_INDEX_SUFFIX


class IndexCheck:
    """Compares the entries of one segment's index with the batches that go by."""

    def __init__(
        self, files: Files, segment: SegmentFile, report: Report, *, redo_end: int, is_due: bool
    ) -> None:
        """`is_due`: the index must have been saved, so its absence is worth a word."""
        index, valid, size = read_index(files, segment, redo_end)
        self._path = segment.index_path
        self._entries = deque(index.entries())
        # The largest timestamp so far, as the entries tell it; None when it is no longer known.
        self._largest: int | None = NO_TIMESTAMP
        self._wrong: list[IndexEntry] = []
        if self._path is None:
            if segment.size and is_due:
                report.warn(segment.path, "has no index file; it is rebuilt when the segment is first read")
        elif valid < size:
            report.warn(self._path, "is damaged; it is rebuilt from the segment", valid)

    def pass_batch(self, found: FoundBatch) -> None:
        header, entries = found.header, self._entries
        if self._largest is not None:
            self._largest = max(self._largest, header.largest_timestamp)
        while entries and entries[0].position <= found.position:
            entry = entries.popleft()
            if (
                entry.position != found.position
                or entry.offset != header.base_offset
                or (self._largest is not None and entry.largest_timestamp != self._largest)
            ):
                self._wrong.append(entry)

    def skip(self, end: int) -> None:
        """Damage up to `end`: nothing can be said about entries below, nor about the times behind it."""
        self._largest = None
        while self._entries and self._entries[0].position < end:
            self._entries.popleft()

    def finish(self, report: Report, promised_to: int) -> None:
        """`promised_to`: the next start believes entries below this position, and rebuilds the others."""
        if not self._wrong or self._path is None:
            return
        offset, position, _ = self._wrong[0]
        message = (
            f"{len(self._wrong)} wrong entries; the first says that offset {offset} is at byte {position}"
        )
        if position < promised_to:
            report.error(
                self._path,
                f"{message}. Its checksum is right, so it is believed and reads fail: remove the file while "
                "the node is stopped, and it is rebuilt",
            )
        else:
            report.warn(self._path, f"{message}. The next start rebuilds it")


def check_aborted(
    files: Files,
    segment: SegmentFile,
    report: Report,
    *,
    expected: int,
    derived: Sequence[AbortedTransaction] | None,
    is_complete: bool,
) -> None:
    """A segment's transaction index against what the log's state file counts and the batches say.

    `derived` is None when the batches cannot tell or the index need not have been saved yet; without
    `is_complete` they tell less than the index may rightly list (compaction, transactions begun before the
    log's start).
    """
    path = segment.txn_index_path or segment.path.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX
    data = b""
    if segment.txn_index_path is not None:
        with contextlib.suppress(FileNotFoundError):
            data = files.read(path)
    index, valid = decode_aborted(data)
    if valid < len(data):
        report.warn(path, "is damaged; aborted transactions are found again from the segments", valid)
    elif len(index) < expected:
        what = f"lists {len(index)} of {expected}" if data else "is missing, which listed"
        report.warn(path, f"{what} aborted transactions; they are found again from the segments")
    if len(index) < expected or derived is None:
        return
    listed = {(one.producer_id, one.last_offset) for one in index}
    meant = {(one.producer_id, one.last_offset) for one in derived}
    for producer, offset in sorted(meant - listed):
        report.error(
            path,
            f"does not list the transaction of producer {producer} that the marker at offset {offset} "
            "aborted, so its records would be shown. Remove log-state.json while the node is stopped: the "
            "next start rebuilds both",
        )
    for producer, offset in sorted(listed - meant if is_complete else ()):
        report.error(
            path,
            f"lists a transaction of producer {producer} as aborted at offset {offset}, where the log has no "
            "such marker. Remove it and log-state.json while the node is stopped: both are rebuilt",
        )


def check_snapshots(files: Files, directory: str, snapshots: Sequence[int], report: Report) -> None:
    for offset in snapshots:
        path = snapshot_path(directory, offset)
        try:
            _, end = ProducerStates.decode(files.read(path))
        except FileNotFoundError:
            continue  # Replaced by a newer one meanwhile.
        except TailraceError as error:
            report.warn(path, f"cannot be used ({error.args[0]}); more of the log is replayed instead")
            continue
        if end != offset:
            report.warn(path, f"covers the log up to offset {end}, not {offset} as its name says")
