"""Opening a log directory: which logs are in it, what the journal still owes them, and how each one is.

Used once, before the directory's first write. A damaged log is set aside in `corrupt` with its reason, and
the others are opened all the same; only an error of the disk itself ends the opening.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.runtime.blocking import Blocking, Job
from tailrace.cluster.storage.checkpoint import Checkpoint, SavedPoint
from tailrace.cluster.storage.files import TEMPORARY_SUFFIX, Files
from tailrace.cluster.storage.handles import HandleCache
from tailrace.cluster.storage.journal import LogKey, RedoWrite
from tailrace.cluster.storage.logfiles import PARTITION_FILE
from tailrace.cluster.storage.recovery import Opened, open_log, read_identity
from tailrace.cluster.storage.scanning import Identity, Opening
from tailrace.cluster.storage.segment import LOG_SUFFIX, offset_name

DELETE_SUFFIX = "-delete"
CORRUPT_SUFFIX = "-corrupt"
_LOG_NAME = re.compile(r".+-\d+", re.ASCII)

ConfigOf = Callable[[str], TopicConfig]


class DirectoryOpener:
    def __init__(
        self, *, path: str, files: Files, handles: HandleCache, blocking: Blocking, threads: int
    ) -> None:
        self.path = path
        self.files = files
        self.handles = handles
        self.blocking = blocking
        self.threads = threads
        self.corrupt: dict[TopicPartition, TailraceError] = {}
        self.corrupt_points: dict[str, list[int | str | None]] = {}
        self.to_remove: list[str] = []

    def find_logs(self, checkpoint: Checkpoint) -> dict[str, Identity]:
        found: dict[str, Identity] = {}
        for name, _, is_dir in self.files.list(self.path):
            path = f"{self.path}/{name}"
            if is_dir and name.endswith(DELETE_SUFFIX):
                self.to_remove.append(path)
            if not is_dir or _LOG_NAME.fullmatch(name) is None:
                continue  # Not ours: lost+found, somebody's notes, a damaged log that was set aside.
            try:
                found[name] = read_identity(self.files, path)
            except FileNotFoundError:
                names = [entry.name for entry in self.files.list(path)]
                if any(one.endswith(LOG_SUFFIX) for one in names):
                    self._set_corrupt(name, _no_identity(path))
                elif all(one == PARTITION_FILE + TEMPORARY_SUFFIX for one in names):
                    self.files.remove_tree(path)  # Its creation never finished: nothing was ever in it.
            except TailraceError as error:
                self._set_corrupt(name, error)
        for topic_partition in self.corrupt:
            self.keep_promise(checkpoint.logs.get(str(topic_partition)), str(topic_partition))
        return found

    def _set_corrupt(self, name: str, error: TailraceError) -> None:
        topic, _, partition = name.rpartition("-")
        self.corrupt[TopicPartition(topic, int(partition))] = error

    def redo(self, writes: Sequence[RedoWrite], identities: dict[str, Identity]) -> int:
        """Write back what the journal made durable; segments that are gone were removed on purpose."""
        names = {
            LogKey(one.topic_id, one.topic_partition.partition): name for name, one in identities.items()
        }
        touched: set[str] = set()
        redone = 0
        for write in writes:
            name = names.get(write.log)
            if name is None:
                continue
            path = f"{self.path}/{name}/{offset_name(write.segment_base)}{LOG_SUFFIX}"
            if path not in touched and not self.files.exists(path):
                continue
            with self.handles.borrow(path, write=True) as file:
                file.pwritev([write.data], write.position)
            touched.add(path)
            redone += 1
        for path in sorted(touched):
            self.handles.sync(path)
        return redone

    def keep_promise(self, saved: SavedPoint | None, name: str) -> None:
        """What a damaged log had promised stays on record, or a later start would find nothing missing."""
        if saved is not None:
            self.corrupt_points[name] = list(saved.to_json())

    def open_all(
        self,
        opening: Opening,
        identities: dict[str, Identity],
        checkpoint: Checkpoint,
        config_of: ConfigOf,
    ) -> dict[str, Opened]:
        opened: dict[str, Opened] = {}

        def open_one(name: str) -> None:
            identity = identities[name]
            config = config_of(identity.topic_partition.topic)
            saved = checkpoint.logs.get(name)
            if saved is not None and saved.incarnation != identity.incarnation:
                saved = None
            try:
                opened[name] = open_log(opening, f"{self.path}/{name}", identity, config, saved)
            except TailraceError as error:
                self.corrupt[identity.topic_partition] = error
                self.keep_promise(saved, name)

        names = sorted(identities)
        threads = 1 if opening.clean else self.threads
        lanes = [names[lane::threads] for lane in range(threads)]
        self.blocking.gather([_each(open_one, lane) for lane in lanes if lane])
        return opened


def _no_identity(path: str) -> TailraceError:
    return TailraceError(
        ErrorCode.STORAGE_CORRUPT,
        f"{path} holds segments but no {PARTITION_FILE}. Restore the file from a backup, or let the replica "
        "be fetched again from another one.",
    )


def _each(call: Callable[[str], None], names: Sequence[str]) -> Job:
    def run() -> None:
        for name in names:
            call(name)

    return run
