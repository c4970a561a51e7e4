"""Frames on their way to one peer: a bounded queue, and their form in a message.

A gRPC message costs about 100 us of CPU at each end whatever its size, so everything that is pending goes
into one message, up to a bound. Messages are made by joining: wrapping 1 MiB by protobuf's own classes took
1.9 ms, joining the same bytes behind tag and length 0.03 ms.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

_FRAMES_TAG = b"\x0a"  # field 1, length-delimited


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    max_frames: int
    max_bytes: int
    """Of all frames that wait. A frame larger than this never fits."""
    max_batch_bytes: int
    """How much is taken at once; a single frame may be larger."""


class Put(Enum):
    QUEUED = auto()
    FULL = auto()
    CLOSED = auto()


class FrameQueue:
    """From any number of threads to the one that sends. `put` never waits for room."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, frame: bytes) -> Put:
        with self._changed:
            if self._closed:
                return Put.CLOSED
            if len(self._frames) >= self._limits.max_frames:
                return Put.FULL
            if self._bytes + len(frame) > self._limits.max_bytes:
                return Put.FULL
            self._frames.append(frame)
            self._bytes += len(frame)
            self._changed.notify()
            return Put.QUEUED

    def take(self) -> list[bytes] | None:
        """Waits for frames and returns all that fit into one message; None once the queue is closed."""
        with self._changed:
            while not self._frames and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            batch = [self._frames.popleft()]
            size = len(batch[0])
            while self._frames and size + len(self._frames[0]) <= self._limits.max_batch_bytes:
                frame = self._frames.popleft()
                size += len(frame)
                batch.append(frame)
            self._bytes -= size
            return batch

    def close(self) -> None:
        """What has not been taken is dropped."""
        with self._changed:
            self._closed = True
            self._frames.clear()
            self._bytes = 0
            self._changed.notify_all()


def encode_frames(frames: Sequence[bytes]) -> bytes:
    """The serialised form of a message whose field 1 is `repeated bytes` and that has no other."""
    parts = []
    for frame in frames:
        parts.append(_FRAMES_TAG + _varint(len(frame)))
        parts.append(frame)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
