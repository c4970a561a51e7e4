"""Judging bytes after a crash: what is whole, what was torn, and what has rotted.

Pure: windows of a segment in, verdicts out. `scan_window` walks batches until one is broken.
`find_proof` then looks behind the broken place for a batch which proves that the place had been on stable
storage before (ADR 1, sync mark): with such proof it is corruption of data that may have been
acknowledged; without, it is the torn end of writes that nobody was promised.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tailrace.cluster.common.batch import HEADER_SIZE, BatchHeader, check_batch, parse_header
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.core.marks import SyncMarks

# A proof lies within what one log can hold behind the broken place; anything further is not an offset.
_PLAUSIBLE_OFFSETS = 2**40
_WORD = 8


class ScanStep(NamedTuple):
    batches: list[tuple[BatchHeader, int]]
    """Whole batches with their positions in the window."""
    consumed: int
    needed: int
    """The window must hold so many bytes from `consumed` on before the next batch can be judged."""
    broken: str | None


def scan_window(window: Bytes, expected_offset: int, epoch: int, *, is_end: bool) -> ScanStep:
    """`is_end`: nothing follows the window, so what is cut off there is broken, not merely unread."""
    found: list[tuple[BatchHeader, int]] = []
    position = 0
    while position < len(window):
        rest = len(window) - position
        if rest < HEADER_SIZE:
            return ScanStep(found, position, HEADER_SIZE, f"{rest} bytes are no batch" if is_end else None)
        try:
            header = parse_header(window, position)
            if header.base_offset < expected_offset:
                problem = f"offset {header.base_offset} where {expected_offset} or more was due"
                return ScanStep(found, position, 0, problem)
            if header.leader_epoch < epoch:
                problem = f"leader epoch {header.leader_epoch} behind epoch {epoch}"
                return ScanStep(found, position, 0, problem)
            if header.size > rest:
                problem = f"{rest} of {header.size} bytes are there"
                return ScanStep(found, position, header.size, problem if is_end else None)
            check_batch(window, position)
        except TailraceError as error:
            return ScanStep(found, position, 0, error.args[0])
        found.append((header, position))
        expected_offset, epoch = header.next_offset, header.leader_epoch
        position += header.size
    return ScanStep(found, position, HEADER_SIZE, None)


def find_proof(window: bytes, beyond: int, marks: SyncMarks) -> BatchHeader | None:
    """A header anywhere in `window` that says offset `beyond` was synced before its batch was written."""
    if len(window) < HEADER_SIZE or not window.strip(b"\0"):
        return None
    candidates: list[int] = []
    for shift in range(_WORD):
        words = np.frombuffer(window, "<i8", (len(window) - shift) // _WORD, shift)
        hits = np.flatnonzero((words > beyond) & (words < beyond + _PLAUSIBLE_OFFSETS))
        candidates.extend((hits * _WORD + shift).tolist())
    for position in sorted(candidates):
        if position + HEADER_SIZE > len(window):
            break
        try:
            header = parse_header(window, position)
        except TailraceError:
            continue
        if marks.synced_before(header) > beyond:
            return header
    return None
