"""What has arrived for the Raft thread and was not taken yet: calls, put in by any thread.

Bounded in bytes of messages, so that a peer that sends faster than they are read costs messages, not memory.
Raft asks again for what it misses.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class Arrived(NamedTuple):
    handler: Callable[..., None]
    arguments: tuple[Any, ...]


class Inbox:
    def __init__(self, *, max_bytes: int, wake: Callable[[], None]) -> None:
        self._max_bytes = max_bytes
        self._wake = wake
        self._arrived: deque[Arrived] = deque()
        self._bytes = 0
        self._dropped: Counter[str] = Counter()
        self._lock = threading.Lock()
        """Guards `_bytes` and `_dropped`; a deque needs none."""

    def post(self, handler: Callable[..., None], *arguments: Any) -> None:
        self._arrived.append(Arrived(handler, arguments))
        self._wake()

    def post_message(self, handler: Callable[[int, bytes], None], peer: int, data: bytes) -> None:
        with self._lock:
            if self._bytes + len(data) > self._max_bytes:
                self._dropped["inbox_full"] += 1
                return
            self._bytes += len(data)
        self.post(handler, peer, data)

    def message_taken(self, data: bytes) -> None:
        with self._lock:
            self._bytes -= len(data)

    def drop(self, reason: str) -> None:
        """Count a message that is not followed."""
        with self._lock:
            self._dropped[reason] += 1

    @property
    def dropped(self) -> tuple[tuple[str, int], ...]:
        with self._lock:
            return tuple(sorted(self._dropped.items()))

    def __bool__(self) -> bool:
        return bool(self._arrived)

    def take(self) -> Iterator[Arrived]:
        """What is there now, oldest first. Several threads may take: each call goes to one of them."""
        for _ in range(len(self._arrived)):
            try:
                yield self._arrived.popleft()
            except IndexError:
                return
