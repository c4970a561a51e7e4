"""One direction of a call in memory: messages in order, few at a time, each after its delay.

A pipe ends in one of two ways. It is *finished* by whoever writes: what is under way still arrives, then
the reader sees the end, with or without a failure, as trailers follow the messages of a stream. Or it is
*broken*, as by a lost connection: what is under way is lost and both ends see the failure at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tailrace.cluster.rpc.failures import Failure

CAPACITY = 16


class PipeEndedError(Exception):
    """Nothing more comes, or can be put in. `failure` is None after a good end."""

    def __init__(self, failure: Failure | None) -> None:
        super().__init__(failure)
        self.failure = failure


class _Entry(NamedTuple):
    arrives_at: float
    data: bytes


class Pipe:
    def __init__(self, delay: Callable[[], float | None], on_lost: Callable[[], None]) -> None:
        """`delay` gives the seconds that a message takes, or None when the connection is lost with it."""
        self._delay = delay
        self._on_lost = on_lost
        self._entries: deque[_Entry] = deque()
        self._last_arrival = 0.0
        self._ending: PipeEndedError | None = None
        self._changed = asyncio.Event()

    async def put(self, data: bytes) -> None:
        """Waits while the reader does not keep up."""
        while self._ending is None and len(self._entries) >= CAPACITY:
            await self._changed.wait()
        if self._ending is not None:
            raise PipeEndedError(self._ending.failure)
        delay = self._delay()
        if delay is None:
            self._on_lost()
            return
        # A message never overtakes another one of its connection.
        self._last_arrival = max(self._last_arrival, asyncio.get_running_loop().time() + delay)
        self._entries.append(_Entry(self._last_arrival, data))
        self._wake()

    async def get(self) -> bytes:
        while not self._entries:
            if self._ending is not None:
                raise PipeEndedError(self._ending.failure)
            await self._changed.wait()
        entry = self._entries[0]
        await self._wait_until(entry.arrives_at)
        if self._entries and self._entries[0] is entry:
            self._entries.popleft()
            self._wake()
            return entry.data
        assert self._ending is not None  # Only breaking takes entries away from their one reader.
        raise PipeEndedError(self._ending.failure)

    def finish(self, failure: Failure | None) -> None:
        if self._ending is None:
            self._ending = PipeEndedError(failure)
            self._wake()

    def break_off(self, failure: Failure) -> None:
        """Does nothing to a pipe whose end has been seen, or is about to be, by its reader."""
        if self._ending is None or self._entries:
            self._entries.clear()
            self._ending = PipeEndedError(failure)
            self._wake()

    async def _wait_until(self, moment: float) -> None:
        loop = asyncio.get_running_loop()
        while self._entries and (left := moment - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
