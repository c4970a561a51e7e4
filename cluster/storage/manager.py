"""All logs of a node: spread over its log directories, kept in order by a tick.

The owner calls `tick` about once a second; everything periodic hangs on it: checkpoints, syncs of
`flush=os` logs, retention, cleaning, expiry of producers, removal of files whose delay is over. A directory
that fails goes offline alone and is reported through `on_offline`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID, uuid4

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.names import check_topic_partition
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import Blocking, Job
from tailrace.cluster.runtime.logs import get_logger
from tailrace.cluster.storage.cleaner_files import Throttle
from tailrace.cluster.storage.cleaning_jobs import CleaningJobs
from tailrace.cluster.storage.directory import DirectoryReport, LogDirectory
from tailrace.cluster.storage.files import Files, storage_error
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.log import Log
from tailrace.cluster.storage.upkeep import enforce_retention

events = get_logger(__name__)

CHECKPOINT_BYTES = 64 << 20


class OpenReport(NamedTuple):
    directories: dict[str, DirectoryReport]
    offline: dict[str, TailraceError]
    corrupt: dict[TopicPartition, TailraceError]


class LogManager:
    def __init__(
        self,
        *,
        config: StorageConfig,
        files: Files,
        blocking: Blocking,
        throttle: Throttle,
        topic_config: Callable[[str], TopicConfig] | None = None,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.config = config
        self.files = files
        self.blocking = blocking
        self.handles = HandleCache(files, config.log_max_open_files)
        self.directories: list[LogDirectory] = []
        self.offline: dict[str, TailraceError] = {}
        self.on_offline: Callable[[str, TailraceError], None] | None = None
        defaults = config.topic_defaults()
        self._topic_config = topic_config if topic_config is not None else lambda topic: defaults
        self._new_id = new_id
        self.damaged: dict[Log, TailraceError] = {}
        self.on_damaged: Callable[[TopicPartition, TailraceError], None] | None = None
        self._cleaning = CleaningJobs(
            config=config,
            files=files,
            blocking=blocking,
            throttle=throttle,
            on_damage=self.report_damage,
        )
        self._touched_ms: dict[Log, int] = {}
        self._next_retention_ms = 0
        self._next_save_ms = 0

    def open(self, *, now_ms: int) -> OpenReport:
        """Open every directory. One that cannot be used is offline; without any the node cannot run."""
        reports: dict[str, DirectoryReport] = {}
        for path in self.config.directories:
            try:
                directory = LogDirectory(
                    path=path,
                    files=self.files,
                    handles=self.handles,
                    blocking=self.blocking,
                    config=self.config,
                    new_id=self._new_id,
                )
                reports[path] = directory.open(self._topic_config, now_ms)
            except (OSError, TailraceError) as error:
                self.offline[path] = _why_offline(path, error)
                events.error("log_directory_offline", path=path, error=str(self.offline[path]))
                continue
            events.info("log_directory_opened", path=path, **reports[path]._asdict())
            for topic_partition, damage in directory.corrupt.items():
                events.error("log_corrupt", log=str(topic_partition), error=str(damage))
            directory.on_failure = self._directory_failed
            directory.on_damage = self.report_damage
            self.directories.append(directory)
        if not self.directories:
            reasons = list(self.offline.values())
            if len(reasons) == 1:
                raise reasons[0]
            message = "no log directory can be used: " + "; ".join(str(one.args[0]) for one in reasons)
            raise TailraceError(ErrorCode.STORAGE_ERROR, message)
        twice = self._give_up_duplicates()
        self._next_retention_ms = now_ms + self.config.log_retention_check_interval_ms
        self._next_save_ms = now_ms + self.config.log_checkpoint_interval_ms
        return OpenReport(reports, dict(self.offline), self.corrupt | twice)

    def _give_up_duplicates(self) -> dict[TopicPartition, TailraceError]:
        """A disk came back after its replicas had been made anew on another: the further log counts."""
        kept: dict[TopicPartition, tuple[LogDirectory, Log]] = {}
        errors: dict[TopicPartition, TailraceError] = {}
        for directory in self.directories:
            for topic_partition, log in list(directory.logs.items()):
                other = kept.setdefault(topic_partition, (directory, log))
                if other[1] is log:
                    continue
                loser, winner = sorted([other, (directory, log)], key=lambda one: _progress(one[1]))
                kept[topic_partition] = winner
                errors[topic_partition] = TailraceError(
                    ErrorCode.STORAGE_CORRUPT,
                    f"{topic_partition} is in two log directories, {winner[0].path} and {loser[0].path}. The "
                    f"log in {winner[0].path} has got further and is used, the other is kept under a "
                    "-corrupt name.",
                )
                loser[0].give_up(topic_partition)
                events.error("log_duplicate", log=str(topic_partition), error=str(errors[topic_partition]))
        return errors

    @property
    def corrupt(self) -> dict[TopicPartition, TailraceError]:
        return {tp: error for directory in self.directories for tp, error in directory.corrupt.items()}

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return {tp: log for directory in self.directories for tp, log in directory.logs.items()}

    def get(self, topic_partition: TopicPartition) -> Log | None:
        for directory in self.directories:
            log = directory.logs.get(topic_partition)
            if log is not None:
                return log
        return None

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        config: TopicConfig | None = None,
        *,
        now_ms: int,
        start_offset: int = 0,
    ) -> Log:
        """A new log in the directory that has the fewest."""
        check_topic_partition(topic_partition)
        damage = self.corrupt.get(topic_partition)
        if damage is not None:
            raise damage
        if self.get(topic_partition) is not None:
            raise TailraceError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{topic_partition} has a log here already")
        online = [directory for directory in self.directories if directory.failure is None]
        if not online:
            raise TailraceError(ErrorCode.STORAGE_ERROR, "every log directory of this node is offline")
        directory = min(online, key=lambda one: len(one.logs))
        config = self._topic_config(topic_partition.topic) if config is None else config
        return directory.create_log(
            topic_partition, topic_id, config, now_ms=now_ms, start_offset=start_offset
        )

    def delete(self, topic_partition: TopicPartition) -> None:
        for directory in self.directories:
            log = directory.logs.get(topic_partition)
            if log is not None:
                self._cleaning.forget(log)
                self.damaged.pop(log, None)
                self._touched_ms.pop(log, None)
                directory.delete_log(log)
                return
        raise TailraceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} has no log here")

    def replace_corrupt(self, topic_partition: TopicPartition, topic_id: UUID, *, now_ms: int) -> Log:
        """An empty log for a damaged one, to be filled from another replica."""
        for directory in self.directories:
            if topic_partition in directory.corrupt:
                config = self._topic_config(topic_partition.topic)
                return directory.replace_corrupt(topic_partition, topic_id, config, now_ms=now_ms)
        raise TailraceError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} has no damaged log here"
        )

    # Periodic work.

    def tick(self, now_ms: int) -> None:
        for directory in self.directories:
            directory.now_ms = now_ms
            if directory.failure is None:
                self._flush_and_checkpoint(directory, now_ms)
                directory.remove_due()
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self.config.log_retention_check_interval_ms
            self.enforce_retention(now_ms)
        if now_ms >= self._next_save_ms:
            self._next_save_ms = now_ms + self.config.log_checkpoint_interval_ms
            for directory in self.directories:
                if directory.failure is None:
                    directory.save_checkpoint()
        if self.config.log_cleaner_enable:
            self._cleaning.start_due(self._sound_logs(), now_ms)

    def _flush_and_checkpoint(self, directory: LogDirectory, now_ms: int) -> None:
        interval = self.config.log_checkpoint_interval_ms
        due: list[Log] = []
        for log in sorted(directory.touched, key=lambda log: log.topic_partition):
            log.files.flush_if_due(now_ms)
            since = self._touched_ms.setdefault(log, now_ms)
            if now_ms - since >= interval or log.files.checkpoint_due_bytes >= CHECKPOINT_BYTES:
                del self._touched_ms[log]
                due.append(log)
        directory.checkpoint_in_turn(due)

    def enforce_retention(self, now_ms: int) -> int:
        removed = 0
        for log in self._sound_logs():
            if not self._cleaning.is_cleaning(log):
                try:
                    removed += enforce_retention(log, now_ms=now_ms)
                except TailraceError as error:
                    self.report_damage(log, error)
                if log.producers_loaded:
                    log.producers.expire(now_ms, self.config.producer_id_expiration_ms)
        return removed

    def report_damage(self, log: Log, error: TailraceError) -> None:
        """Somebody met damage in a stored segment: say so once, and leave the log alone from now on."""
        if log not in self.damaged:
            self.damaged[log] = error
            events.error("log_damaged", log=str(log.topic_partition), error=str(error))
            if self.on_damaged is not None:
                self.on_damaged(log.topic_partition, error)

    def _sound_logs(self) -> list[Log]:
        online = [directory for directory in self.directories if directory.failure is None]
        return [log for directory in online for log in directory.logs.values() if log not in self.damaged]

    # Ending.

    def _directory_failed(self, directory: LogDirectory, error: TailraceError) -> None:
        self.offline[directory.path] = error
        events.error("log_directory_offline", path=directory.path, error=str(error))
        if self.on_offline is not None:
            self.on_offline(directory.path, error)

    def close(self, done: Job) -> None:
        """Shut every directory down cleanly, then call `done`."""
        if not self.directories:
            done()
            return
        left = len(self.directories)

        def one_closed() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        def close_directories() -> None:
            for directory in self.directories:
                directory.close(one_closed)

        self._cleaning.stop(close_directories)


def _progress(log: Log) -> tuple[int, int]:
    return log.epochs.latest, log.end_offset


def _why_offline(path: str, error: OSError | TailraceError) -> TailraceError:
    """Damage takes one directory offline; anything else that is not the disk's fault stops the start."""
    if isinstance(error, OSError):
        return storage_error(f"opening log directory {path}", error)
    if error.code is not ErrorCode.STORAGE_CORRUPT:
        raise error
    return error
