"""The last offset of every key in the dirty section of a log, in bounded memory.

The cleaner fills it in its first pass, in the order of offsets, and asks it in the second. It holds the
keys themselves: two keys with the same hash stay two keys, so no record is ever dropped for a collision.
All loops over records run inside the interpreter's own C code.

Invariant: `bytes_used` is never less than what the map really holds in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

MISSING = -1

# An integer object of an offset above 2**30, as the allocator rounds it up.
_OFFSET_BYTES = 32
# The allocator rounds every object up to a multiple of 16 bytes.
_ROUNDING_BYTES = 15


class KeyMap:
    """Key -> offset of its last record.

    `max_bytes` is checked between batches: a batch goes in as a whole, so the map exceeds the limit by one
    batch's keys at most, which were in memory anyway, and a map of any size makes progress.
    """

    __slots__ = ("_key_bytes", "_last", "max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._last: dict[bytes | None, int] = {}
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._last)

    def put_batch(self, keys: Sequence[bytes | None], offsets: Sequence[int]) -> None:
        """Note the keys of one batch, whose offsets must be above all before. None is no key, and skipped."""
        last = self._last
        before = len(last)
        last.update(zip(keys, offsets, strict=True))
        # One lookup afterwards is cheaper than a test for each record.
        last.pop(None, None)
        added = len(last) - before
        if added:
            # A dictionary keeps the order of insertion, so the new keys are the last ones.
            sizes = map(sys.getsizeof, islice(reversed(last), added))
            self._key_bytes += sum(sizes) + added * _ROUNDING_BYTES

    def get(self, key: bytes) -> int | None:
        return self._last.get(key)

    def last_offsets(self, keys: Sequence[bytes | None]) -> NDArray[np.int64]:
        """For each key its last offset, or -1 where the map does not know it (so too for None)."""
        return np.fromiter(map(self._last.get, keys, repeat(MISSING)), np.int64, len(keys))

    @property
    def bytes_used(self) -> int:
        """The table counts twice: when it is full it doubles in one step, and that step must fit too."""
        return 2 * sys.getsizeof(self._last) + len(self._last) * _OFFSET_BYTES + self._key_bytes

    @property
    def full(self) -> bool:
        return self.bytes_used >= self.max_bytes
