"""Where blocking work runs: the only place of the servers that makes threads.

Code that owns state lives on one thread, the *owner* (an event loop, or a plain program). Work that
blocks is a job; what it has to say comes back through `post`, which runs a call on the owner. A
simulation or a unit test uses `InlineBlocking`, where the same jobs run one after the other on the
owner, in an order that the test decides, so that histories repeat.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

Job = Callable[[], None]


class Blocking(Protocol):
    def start(self, job: Job) -> None:
        """Run `job` soon, off the owner. It reports through `post`; it must not raise."""

    def gather(self, jobs: Sequence[Job]) -> None:
        """Called inside a job: run all of `jobs` side by side, wait, and raise the first error."""

    def post(self, call: Job) -> None:
        """Run `call` on the owner soon. May be called from any thread."""


class InlineBlocking:
    """Runs nothing by itself: `drain` runs what has been started and posted, in order."""

    def __init__(self, schedule: Callable[[Job], None] | None = None) -> None:
        self._queue: deque[Job] = deque()
        self._schedule = schedule

    def start(self, job: Job) -> None:
        if self._schedule is not None:
            self._schedule(job)
        else:
            self._queue.append(job)

    def gather(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            job()

    def post(self, call: Job) -> None:
        self.start(call)

    def drain(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def run_one(self) -> bool:
        """Run the oldest job only; False when there is none."""
        if not self._queue:
            return False
        self._queue.popleft()()
        return True


class ThreadBlocking:
    """Jobs on real threads. `post` is the owner's own way in, e.g. `loop.call_soon_threadsafe`.

    Leaf work of `gather` has a pool of its own, so that jobs which wait for it can never fill the
    pool that it needs.
    """

    def __init__(self, post: Callable[[Job], object], *, jobs: int = 8, leaves: int = 16) -> None:
        self._post = post
        self._jobs = ThreadPoolExecutor(jobs, thread_name_prefix="tailrace-job")
        self._leaves = ThreadPoolExecutor(leaves, thread_name_prefix="tailrace-io")

    def start(self, job: Job) -> None:
        self._jobs.submit(_fatal_guard, job)

    def gather(self, jobs: Sequence[Job]) -> None:
        if not jobs:
            return
        if len(jobs) == 1:
            jobs[0]()
            return
        futures = [self._leaves.submit(job) for job in jobs[1:]]
        first: BaseException | None = None
        try:
            jobs[0]()
        except BaseException as error:
            first = error
        for future in futures:
            failed = future.exception()
            first = first or failed
        if first is not None:
            raise first

    def post(self, call: Job) -> None:
        self._post(call)

    def close(self) -> None:
        self._jobs.shutdown(wait=True)
        self._leaves.shutdown(wait=True)


def _fatal_guard(job: Job) -> None:
    """A job that raises has broken its promise; say so the way an uncaught thread error is said."""
    try:
        job()
    except BaseException as error:
        threading.excepthook(
            threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
        )
