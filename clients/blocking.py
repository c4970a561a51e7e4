"""One event-loop thread for all blocking clients of a process.

A blocking client is an asynchronous one whose calls run on this loop, so there is one implementation of
everything. All share one loop, because several loops with gRPC in one process get in each other's way.

Forking. A child process has no such thread, and gRPC hangs in it if its parent had a connection when it
forked. So connections are given up before a fork, parent and child make new ones when they need them, and the
child gets a loop of its own. A fork in the middle of a call cannot be helped: the child's clients say so.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from tailrace.cluster.common.errors import ErrorCode, TailraceError

R = TypeVar("R")

_STOP_SECONDS = 5.0


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="tailrace-clients", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, R], timeout_s: float | None = None) -> R:
        """Waits for the outcome; a caller that is interrupted, or tired of waiting, cancels it."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise TailraceError(
                ErrorCode.INVALID_REQUEST,
                "a blocking call was made on the event loop that has to carry it out, and would wait for "
                "itself; await the asynchronous client there",
            )
        call = _Call(coroutine)
        try:
            self._loop.call_soon_threadsafe(call.start)
            return call.outcome.result(timeout_s)
        except BaseException as error:
            if self._loop.is_closed():
                coroutine.close()
                raise TailraceError(
                    ErrorCode.CLIENT_CLOSED, "the process is ending, and its clients are closed"
                ) from error
            self._loop.call_soon_threadsafe(call.give_up)
            raise

    def stop(self) -> None:
        """Ends the thread; calls that are under way are given up."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)


class _Call(Generic[R]):
    """A coroutine on the loop, known to its caller before it starts: an interrupt may come at any moment."""

    def __init__(self, coroutine: Coroutine[Any, Any, R]) -> None:
        self.outcome: Future[R] = Future()
        self._coroutine = coroutine
        self._task: asyncio.Task[R] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._ended)

    def give_up(self) -> None:
        """Called on the loop after `start`, if that was called at all."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._coroutine.close()

    def _ended(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self.outcome.cancel()
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


class Resting(Protocol):
    """A client that can give up its connections, and makes new ones when it is used again."""

    async def rest(self) -> None: ...


C = TypeVar("C", bound=Resting)


class PerProcess(Generic[C]):
    """A client of this process, and another one in each forked process that uses it."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._made = {_process.generation: make()}
        with _process.lock:
            _process.clients.add(self)

    def get(self) -> C:
        with _process.lock:
            generation = _process.generation
            if generation not in self._made:
                self._made[generation] = self._make()
            return self._made[generation]

    async def rest(self) -> None:
        made = self._made.get(_process.generation)
        if made is not None:
            await made.rest()


class _Process:
    """What belongs to this process and to none forked from it. `generation` counts the forks before it."""

    def __init__(self) -> None:
        self.generation = 0
        self.lock = threading.Lock()
        self.clients: weakref.WeakSet[PerProcess[Any]] = weakref.WeakSet()
        # Loops of processes before this one are kept: even destroying them could reach for what is not ours.
        self._loops: dict[int, LoopThread] = {}
        self._calls = 0
        self._at_rest = True
        """Whether no connection was open when the fork came; told to the child."""
        self._usable = True

    def loop(self) -> LoopThread:
        if not self._usable:
            raise TailraceError(
                ErrorCode.CLIENT_CLOSED,
                "this process was forked in the middle of a call of its parent, and gRPC does not work in "
                "it: fork when no call is under way, or start processes by spawn",
            )
        if self.generation not in self._loops:
            self._loops[self.generation] = LoopThread()
        return self._loops[self.generation]

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        try:
            with self.lock:
                loop = self.loop()
                self._calls += 1
        except TailraceError:
            coroutine.close()
            raise
        try:
            return loop.run(coroutine)
        finally:
            with self.lock:
                self._calls -= 1

    def before_fork(self) -> None:
        """Calls that come now wait until the fork is over."""
        self.lock.acquire()
        loop = self._loops.get(self.generation)
        self._at_rest = loop is None or (self._calls == 0 and self._rest(loop))

    def _rest(self, loop: LoopThread) -> bool:
        clients = list(self.clients)

        async def all_rest() -> None:
            for one in clients:
                await one.rest()

        try:
            loop.run(all_rest(), _STOP_SECONDS)
        except Exception:  # Whatever it is: nobody could be told in the middle of a fork.
            return False
        return True

    def after_fork_in_parent(self) -> None:
        self.lock.release()

    def after_fork_in_child(self) -> None:
        self.lock = threading.Lock()
        self.generation += 1
        self._calls = 0
        self._usable = self._usable and self._at_rest

    def ending(self) -> None:
        loop = self._loops.get(self.generation)
        if loop is not None:
            loop.stop()


_process = _Process()
os.register_at_fork(
    before=_process.before_fork,
    after_in_parent=_process.after_fork_in_parent,
    after_in_child=_process.after_fork_in_child,
)
atexit.register(_process.ending)


def shared_loop() -> LoopThread:
    with _process.lock:
        return _process.loop()


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Runs a client's call on the shared loop, and waits for its outcome."""
    return _process.run(coroutine)
