"""Which logs are being cleaned: starts cleanings in the background and puts their results in place.

On the owner thread. At most `log.cleaner.threads` run at once. A log whose cleaning fails is left alone until
the node restarts or the log changes hands; the error is kept for whoever describes the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.runtime.blocking import Blocking, Job
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.cleaner import CleanJob, CleanResult, clean, discard
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.core.cleaning_plan import Assessment, choose
from tailrace.cluster.storage.files import Files, storage_error
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.upkeep import assess_log, clean_job, install, still_applies

events = get_logger(__name__)


class CleaningJobs:
    def __init__(
        self,
        *,
        config: StorageConfig,
        files: Files,
        blocking: Blocking,
        throttle: Throttle,
        on_damage: Callable[[Log, TailraceError], None],
    ) -> None:
        self._config = config
        self._files = files
        self._blocking = blocking
        self._throttle = throttle
        self._on_damage = on_damage
        # By directory: a log created anew in the same place waits for the old one's cleaning to end.
        self._running: dict[str, Log] = {}
        self.failed: dict[Log, TailraceError] = {}
        self.last_results: dict[Log, CleanResult] = {}
        self._next_look_ms = 0
        self._stopped = False
        self._on_stopped: Job | None = None

    def is_cleaning(self, log: Log) -> bool:
        return log.directory in self._running

    def start_due(self, logs: Iterable[Log], now_ms: int) -> None:
        """Start as many cleanings as there are free threads and logs that need one."""
        if now_ms < self._next_look_ms or len(self._running) >= self._config.log_cleaner_threads:
            return
        waiting: dict[Log, tuple[Assessment, float]] = {}
        for log in logs:
            idle = log.directory not in self._running and not log.swaps_waiting
            if log.config.compacted and idle and log not in self.failed:
                try:
                    waiting[log] = assess_log(log, now_ms=now_ms), log.config.min_cleanable_dirty_ratio
                except TailraceError as error:
                    self._on_damage(log, error)
        while waiting and len(self._running) < self._config.log_cleaner_threads:
            chosen = choose(waiting)
            if chosen is None:
                self._next_look_ms = now_ms + self._config.log_cleaner_backoff_ms
                return
            assessment, _ = waiting.pop(chosen)
            try:
                job = clean_job(
                    chosen,
                    assessment,
                    now_ms=now_ms,
                    key_map_bytes=self._config.log_cleaner_dedupe_buffer_size,
                    chunk_bytes=self._config.log_cleaner_io_buffer_size,
                )
            except TailraceError as error:
                self._on_damage(chosen, error)
                continue
            self._start(chosen, job)

    def _start(self, log: Log, job: CleanJob) -> None:
        self._running[log.directory] = log
        truncations = log.truncations

        def cancelled() -> bool:
            return self._stopped or log.failure is not None or log.truncations != truncations

        def run() -> None:
            result: CleanResult | None = None
            error: TailraceError | None = None
            try:
                result = clean(job, self._files, self._throttle, cancelled=cancelled)
            except TailraceError as found:
                error = found
            except OSError as found:
                error = storage_error(f"cleaning {log.directory}", found)
            except Exception as found:
                events.exception("log_cleaning_broke", log=str(log.topic_partition))
                error = TailraceError(ErrorCode.UNKNOWN_SERVER_ERROR, f"cleaning {log.directory}: {found!r}")
            self._blocking.post(lambda: self._finish(log, job, result, error, truncations))

        self._blocking.start(run)

    def _finish(
        self,
        log: Log,
        job: CleanJob,
        result: CleanResult | None,
        error: TailraceError | None,
        truncations: int,
    ) -> None:
        if error is not None and log.failure is None and log.truncations == truncations:
            self.failed[log] = error
            if error.code is ErrorCode.STORAGE_CORRUPT:
                self._on_damage(log, error)
            events.error("log_cleaning_failed", log=str(log.topic_partition), error=str(error))
        if result is None:
            self._ended(log)
        elif not self._stopped and still_applies(log, result, truncations=truncations):
            install(log, result)
            self.last_results[log] = result
            events.info(
                "log_cleaned",
                log=str(log.topic_partition),
                bytes_read=result.stats.bytes_read,
                bytes_written=result.stats.bytes_written,
                records_kept=result.stats.records_kept,
                records_dropped=result.stats.records_dropped,
            )
            for batch in result.undecodable:
                events.warning("batch_undecodable", log=str(log.topic_partition), batch=str(batch))
            self._ended(log)
        else:
            self._blocking.start(lambda: self._discard(log, job, result))

    def _discard(self, log: Log, job: CleanJob, result: CleanResult) -> None:
        with contextlib.suppress(OSError):  # Only litter: opening the log removes what stays behind.
            discard(self._files, job.directory, result)
        self._blocking.post(lambda: self._ended(log))

    def _ended(self, log: Log) -> None:
        """Nothing of this cleaning touches a file any more, but for swaps that wait with the writer."""
        self._running.pop(log.directory, None)
        if self._on_stopped is not None and not self._running:
            stopped, self._on_stopped = self._on_stopped, None
            stopped()

    def forget(self, log: Log) -> None:
        self.failed.pop(log, None)
        self.last_results.pop(log, None)

    def stop(self, done: Job) -> None:
        """Running cleanings end at their next chunk, and their results are not used; then `done`."""
        self._stopped = True
        if self._running:
            self._on_stopped = done
        else:
            done()
