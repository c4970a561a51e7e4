"""Checking a log directory, one partition in it, or one segment, from the first byte to the last.

Reads only, takes no lock, and never raises because of what the files hold: that is what findings are for.
`tailrace log verify` shows them. The directory's own files say how its logs are to be judged: the checkpoint
up to where they were synced, the journal what a crash left to be written back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.storage.checkpoint import (
    CHECKPOINT_FILE,
    CHECKPOINT_VERSION,
    Checkpoint,
    read_checkpoint,
)
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.directory import DIRECTORY_FILE, read_directory_identity
from tailrace.cluster.storage.files import Files, parent_of, storage_error
from tailrace.cluster.storage.findings import Finding, Report, Tally, silent
from tailrace.cluster.storage.inspect import Kind, Target, list_partition, lone_segment
from tailrace.cluster.storage.journal import FILE_NAMES, LogKey, read_redo
from tailrace.cluster.storage.opening import CORRUPT_SUFFIX, DELETE_SUFFIX
from tailrace.cluster.storage.recovery import read_identity
from tailrace.cluster.storage.statefile import read_state
from tailrace.cluster.storage.verify_log import LogCheck
from tailrace.cluster.storage.verify_segment import Circumstances

Patches = dict[int, list[tuple[int, bytearray]]]


class _Surroundings(NamedTuple):
    """What the log directory says about the partitions in it."""

    checkpoint: Checkpoint
    redo: dict[LogKey, Patches]
    secret: bytes | None


class Verification:
    """One check of `target`. `run` yields the count of each partition when it is done with it."""

    def __init__(
        self,
        files: Files,
        target: Target,
        *,
        deep: bool = True,
        on_finding: Callable[[Finding], None],
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._files = files
        self._target = target
        self._deep = deep
        self._on_finding = on_finding
        self._on_bytes = on_bytes
        self.total = Tally("total")

    def size(self) -> int:
        """How many bytes of segments there are to be read; about, if the directory is in use."""
        if self._target.kind is Kind.SEGMENT:
            return lone_segment(self._files, self._target.path).size
        total = 0
        for path in self._target.partitions:
            with contextlib.suppress(OSError):
                total += sum(segment.size for segment in list_partition(self._files, path).segments)
        return total

    def run(self) -> Iterator[Tally]:
        target = self._target
        if target.kind is Kind.SEGMENT:
            # Only the file counts: what is wrong with the directory's own files is not asked for.
            surroundings = self._check_directory(silent())
            yield self._check(target.path, surroundings)
            return
        report = Report(Tally("directory"), self._on_finding)
        surroundings = self._check_directory(report)
        self.total.add(report.tally)
        for path in target.partitions:
            yield self._check(path, surroundings)

    def _check(self, path: str, surroundings: _Surroundings) -> Tally:
        """`path` is a partition's directory, or a segment in one."""
        is_segment = self._target.kind is Kind.SEGMENT
        directory = parent_of(path) if is_segment else path
        tally = Tally(path.rpartition("/")[2])
        report = Report(tally, self._on_finding)
        check = LogCheck(
            self._files,
            directory,
            self._circumstances(surroundings, directory),
            report,
            deep=self._deep,
            on_bytes=self._on_bytes,
        )
        try:
            if is_segment:
                check.run_segment(path)
            else:
                check.run()
        except FileNotFoundError:
            report.note(path, "went while it was read: it has been deleted or moved")
        except OSError as error:
            report.error(error.filename or path, str(storage_error("reading", error).args[0]))
        self.total.add(tally)
        return tally

    def _circumstances(self, surroundings: _Surroundings, path: str) -> Circumstances:
        checkpoint = surroundings.checkpoint
        saved = checkpoint.logs.get(path.rpartition("/")[2])
        patches: Patches = {}
        marks: SyncMarks | None = None
        # Without an identity the check of the partition says so.
        with contextlib.suppress(FileNotFoundError, TailraceError):
            identity = read_identity(self._files, path)
            key = LogKey(identity.topic_id, identity.topic_partition.partition)
            patches = surroundings.redo.get(key, {})
            if saved is not None and saved.incarnation != identity.incarnation:
                saved = None  # It speaks of an earlier topic of the same name.
            if surroundings.secret is not None:
                marks = SyncMarks(surroundings.secret, *key)
        return Circumstances(checkpoint.clean and saved is not None, saved, patches, marks)

    # The directory's own files.

    def _check_directory(self, report: Report) -> _Surroundings:
        path = self._target.directory
        if path is None:
            report.note(
                self._target.path,
                "is in no log directory: without checkpoint and journal, every broken end counts as torn "
                "unless a later batch proves otherwise",
            )
            return _Surroundings(Checkpoint(False, 0, {}), {}, None)
        secret = self._check_identity(path, report)
        checkpoint = self._read_checkpoint(path, report)
        redo: dict[LogKey, Patches] = {}
        if not checkpoint.clean:
            report.note(path, "was not shut down cleanly, or is in use: the next start recovers its logs")
            redo = self._check_journal(path, secret, report) if secret is not None else {}
        for name in self._target.set_aside:
            report.note(f"{path}/{name}", _why_set_aside(name))
        return _Surroundings(checkpoint, redo, secret)

    def _check_identity(self, directory: str, report: Report) -> bytes | None:
        """The secret by which the journal's frames are known."""
        path = f"{directory}/{DIRECTORY_FILE}"
        try:
            return read_directory_identity(self._files, directory).secret
        except FileNotFoundError:
            report.error(
                path, "is missing, without which the journal cannot be read. Restore it from a backup"
            )
        except TailraceError as error:
            report.error(path, str(error.args[0]))
        return None

    def _read_checkpoint(self, directory: str, report: Report) -> Checkpoint:
        path = f"{directory}/{CHECKPOINT_FILE}"
        try:
            read_state(
                self._files,
                path,
                "checkpoint",
                CHECKPOINT_VERSION,
                remedy="No data is in it: the next start scans all logs instead.",
            )
            return read_checkpoint(self._files, directory)
        except FileNotFoundError:
            report.warn(path, "is missing; the next start scans all logs")
        except TailraceError as error:
            report.warn(path, str(error.args[0]))
        return Checkpoint(False, 0, {})

    def _check_journal(self, directory: str, secret: bytes, report: Report) -> dict[LogKey, Patches]:
        redo = read_redo(self._files, directory, secret)
        where = f"{directory}/{FILE_NAMES[0]}, {FILE_NAMES[1]}"
        if redo.damaged_frames:
            report.warn(
                where,
                f"{redo.damaged_frames} of the journals' live frames are damaged; what they held counts only "
                "if it reached the segments",
            )
        by_log: dict[LogKey, Patches] = {}
        for write in redo.writes:
            patches = by_log.setdefault(write.log, {}).setdefault(write.segment_base, [])
            if patches and patches[-1][0] + len(patches[-1][1]) == write.position:
                patches[-1][1].extend(write.data)
            else:
                patches.append((write.position, bytearray(write.data)))
        if redo.writes:
            report.note(where, f"the journals hold {len(redo.writes)} writes, which the next start repeats")
        return by_log


def _why_set_aside(name: str) -> str:
    if name.endswith(DELETE_SUFFIX):
        return "is a deleted partition, which the node removes; not checked"
    if name.endswith(CORRUPT_SUFFIX):
        return "is a damaged partition that was replaced; not checked. Remove it when nobody needs it"
    return "holds no log: the node never finished creating it, or somebody else put it there; not checked"
