"""Blocking work on one thread, in any order that real threads could have taken."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tailrace.cluster.runtime.blocking import InlineBlocking, Job


class AnyOrder(InlineBlocking):
    """Draws which job runs next; calls on the owner come in the order of their posting, now or much later.

    A job that runs as a whole is one of the interleavings that threads can show. Which ones are drawn
    depends on `rng` alone, so that a history repeats.
    """

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self._jobs: list[Job] = []

    def start(self, job: Job) -> None:
        self._jobs.append(job)

    def post(self, call: Job) -> None:
        self._queue.append(call)

    def gather(self, jobs: Sequence[Job]) -> None:
        for job in self._rng.sample(jobs, len(jobs)):
            job()

    def run_one(self) -> bool:
        """Run some job, or the oldest call on the owner; False when there is neither."""
        drawn = self._rng.randrange(len(self._jobs) + bool(self._queue) or 1)
        if drawn < len(self._jobs):
            self._jobs.pop(drawn)()
            return True
        return super().run_one()

    def drain(self) -> None:
        while self.run_one():
            pass
