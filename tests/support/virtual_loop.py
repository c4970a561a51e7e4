"""An event loop on virtual time: waiting costs nothing, and the same program gives the same history.

Nothing outside the loop may be waited for (threads, sockets, other processes): when no callback is ready, the
loop goes straight to the next timer, and says so if there is none.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
MAX_VIRTUAL_SECONDS = 3600.0


class _NoWaiting(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.pass_time: Callable[[float | None], None] = lambda timeout: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self.pass_time(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_now = 0.0
        selector = _NoWaiting()
        super().__init__(selector)
        selector.pass_time = self._pass_time

    def time(self) -> float:
        return self._virtual_now

    def _pass_time(self, timeout: float | None) -> None:
        if timeout is None:
            raise RuntimeError("everything waits and no timer is set: the program would hang for ever")
        self._virtual_now += timeout
        if self._virtual_now > MAX_VIRTUAL_SECONDS:
            raise RuntimeError(f"no end after {MAX_VIRTUAL_SECONDS} virtual seconds")


class LoopClock:
    """A `Clock` on the loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ms: int = 1_700_000_000_000) -> None:
        self._loop = loop
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
