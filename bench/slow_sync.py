"""File systems for the benchmarks: one whose syncs take longer, one that leaves them out.

`SlowSyncFiles` stands for a disk with a slower cache flush than the one at hand. `UnsyncedFiles` builds large
directories quickly; whoever uses it calls `os.sync` before measuring what it made.
"""

from __future__ import annotations

import time

from tailrace.cluster.storage.files import OsFile, OsFiles


class SlowSyncFiles(OsFiles):
    """Every datasync waits `delay_seconds` first. The delay may be changed at any time."""

    __slots__ = ("delay_seconds",)

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.delay_seconds = delay_seconds

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        return _SlowSyncFile(super().open(path, write=write, create=create), self)


class _SlowSyncFile(OsFile):
    __slots__ = ("_files",)

    def __init__(self, opened: OsFile, files: SlowSyncFiles) -> None:
        super().__init__(opened.path, opened._fd)
        self._files = files

    def datasync(self) -> None:
        if self._files.delay_seconds:
            time.sleep(self._files.delay_seconds)
        super().datasync()


class UnsyncedFiles(OsFiles):
    __slots__ = ()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        opened = super().open(path, write=write, create=create)
        return _UnsyncedFile(opened.path, opened._fd)

    def sync_dir(self, path: str) -> None:
        """Nothing: see the module."""


class _UnsyncedFile(OsFile):
    __slots__ = ()

    def datasync(self) -> None:
        """Nothing: see the module."""
