"""The sync mark of a batch: how far the log behind it was on stable storage when it was written.

The mark is the unsynced span (base offset minus the synced end) under a keyed mask. Only the replica that
wrote it can read it: a record value that happens to hold batches, of another log or made up by somebody,
proves nothing about this log. Written with each append, read only when a log is recovered or verified.
"""

from __future__ import annotations

import hashlib

from tailrace.cluster.common.batch import BatchHeader

_U32_MAX = 2**32 - 1


class SyncMarks:
    __slots__ = ("_keyed",)

    def __init__(self, secret: bytes, topic_id: bytes, partition: int) -> None:
        self._keyed = hashlib.blake2b(topic_id + partition.to_bytes(4, "little"), digest_size=4, key=secret)

    def mark(self, base_offset: int, synced_end: int) -> int:
        """What to store in a batch at `base_offset`, written when all below `synced_end` was synced."""
        return min(base_offset - synced_end, _U32_MAX) ^ self._mask(base_offset)

    def synced_before(self, header: BatchHeader) -> int:
        """The offset up to which the log had been synced when the batch was written; 0 if not known."""
        span = header.sync_mark ^ self._mask(header.base_offset)
        return header.base_offset - span if span < _U32_MAX else 0

    def _mask(self, base_offset: int) -> int:
        keyed = self._keyed.copy()
        keyed.update(base_offset.to_bytes(8, "little"))
        return int.from_bytes(keyed.digest(), "little")
