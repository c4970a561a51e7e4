"""A bounded set of open files, shared by everything in the process that reads or writes segments.

Owns when files are opened and closed, so that thousands of segments need only `limit` descriptors. Used from
several threads: the owner of the logs, the directories' writers, readers and the cleaner.

Invariants:

- A path has at most one current handle. An older one (replaced by a writable one, or forgotten) lives only
  until its borrowers have returned it.
- A handle is closed to make room only when nobody borrows it and it is clean. The kernel reports a failed
  write-back to handles that were open at the time: closing one with unsynced writes could lose the error
  that must stop them from being acknowledged. If all are borrowed or dirty the limit is exceeded for a while.
- Files are opened and closed outside the lock, so a slow disk never delays somebody who has a hit.

A writer acquires, writes, and then marks dirty (or says so in `release`); `sync` takes the mark away *before*
it syncs. In this order a write that comes between the two leaves its file dirty, as it must.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import resource
import threading
from collections import OrderedDict
from collections.abc import Iterable
from types import TracebackType

from tailrace.cluster.storage.files import File, Files

HANDLES_MAX = 4096
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


def default_handle_limit() -> int:
    """Half of the descriptors that this process may have (connections need the rest), at most HANDLES_MAX.

    Raises the soft limit to the hard one first.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # An unlimited hard limit may lie above what the kernel grants; the old soft limit then stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return HANDLES_MAX
    return max(1, min(HANDLES_MAX, soft // 2))


class _Handle:
    __slots__ = ("borrows", "current", "dirty", "file", "path", "writable")

    def __init__(self, path: str, file: File, writable: bool) -> None:
        self.path = path
        self.file = file
        self.writable = writable
        self.borrows = 0
        self.dirty = False
        # False once the handle is no longer what its path stands for: it is closed when it comes back.
        self.current = True


class HandleCache:
    __slots__ = ("_by_file", "_by_path", "_changes", "_files", "_idle", "_lock", "limit")

    def __init__(self, files: Files, limit: int | None = None) -> None:
        self.limit = default_handle_limit() if limit is None else limit
        self._files = files
        self._lock = threading.Lock()
        self._by_path: dict[str, _Handle] = {}  # current handles
        self._by_file: dict[File, _Handle] = {}  # all that are open
        # Exactly the current handles that are neither borrowed nor dirty, the longest unused first.
        self._idle: OrderedDict[_Handle, None] = OrderedDict()
        # Grows when a path comes to mean another file, so that one opened meanwhile is not put in its place.
        self._changes = 0

    @property
    def open_count(self) -> int:
        return len(self._by_file)

    def acquire(self, path: str, write: bool = False, create: bool = False) -> File:
        """Borrow the file until `release`; `create` implies `write`."""
        with self._lock:
            handle = self._by_path.get(path)
            if handle is not None and (handle.writable or not (write or create)):
                if not handle.borrows and not handle.dirty:
                    del self._idle[handle]
                handle.borrows += 1
                return handle.file
        return self._acquire_opened(path, write or create, create)

    def release(self, file: File, dirty: bool = False) -> None:
        """Give back what `acquire` returned, once for each time; `dirty` if it was written."""
        with self._lock:
            handle = self._by_file[file]
            if dirty:
                assert handle.writable, f"{file.path} was not borrowed for writing"
                handle.dirty = True
            handle.borrows -= 1
            if handle.borrows:
                return
            if handle.current:
                if not handle.dirty:
                    self._idle[handle] = None
                if len(self._by_file) <= self.limit:
                    return
                surplus = self._take_surplus(self.limit)
            else:
                del self._by_file[file]
                surplus = [file]
        _close(surplus)

    def borrow(self, path: str, write: bool = False, create: bool = False) -> Borrowed:
        """`with cache.borrow(path) as file:`"""
        return Borrowed(self, path, write, create)

    def mark_dirty(self, path: str) -> None:
        """Say that the file, borrowed by the caller, was written and must stay open until it is synced."""
        with self._lock:
            handle = self._by_path.get(path)
            # A file that was forgotten while it was written has nothing left to be synced for.
            if handle is not None:
                assert handle.borrows and handle.writable, f"{path} was not borrowed for writing"
                handle.dirty = True

    def mark_clean(self, path: str) -> None:
        """Take the mark away: call this while borrowing the file, before syncing it (or see `sync`)."""
        with self._lock:
            handle = self._by_path.get(path)
            if handle is None or not handle.dirty:
                return
            handle.dirty = False
            if handle.borrows:
                return
            self._idle[handle] = None
            surplus = self._take_surplus(self.limit)
        _close(surplus)

    def is_dirty(self, path: str) -> bool:
        with self._lock:
            handle = self._by_path.get(path)
            return handle is not None and handle.dirty

    def oldest_dirty(self, count: int) -> list[str]:
        """Up to `count` paths to sync when too many files are open: those dirty ones opened longest ago."""
        with self._lock:
            dirty = (handle.path for handle in self._by_path.values() if handle.dirty and not handle.borrows)
            return list(itertools.islice(dirty, count))

    def sync(self, path: str) -> None:
        """Sync the file through the handle that wrote it; it stays dirty if that fails."""
        file = self.acquire(path, write=True)
        try:
            self.mark_clean(path)
            try:
                file.datasync()
            except BaseException:
                self.mark_dirty(path)
                raise
        finally:
            self.release(file)

    def forget(self, path: str) -> None:
        """Drop the file, dirty or not, because it is being removed or replaced."""
        with self._lock:
            self._changes += 1
            surplus = self._drop((path,))
        _close(surplus)

    def forget_tree(self, directory: str) -> None:
        """Drop every file below a directory."""
        with self._lock:
            self._changes += 1
            surplus = self._drop(self._below(directory))
        _close(surplus)

    def rename(self, old: str, new: str) -> None:
        """Follow a file that was renamed: its handle, and a dirty mark on it, stay."""
        with self._lock:
            self._changes += 1
            surplus = self._move(old, new)
        _close(surplus)

    def close_all(self) -> None:
        """Drop every file; those borrowed are closed when they come back."""
        with self._lock:
            self._changes += 1
            surplus = self._drop(list(self._by_path))
        _close(surplus)

    def _acquire_opened(self, path: str, write: bool, create: bool) -> File:
        while True:
            changes = self._changes
            file = self._open(path, write, create)
            with self._lock:
                present = self._by_path.get(path)
                if changes != self._changes:
                    surplus, done = [file], None
                elif present is not None and (present.writable or not write):
                    # Another thread was faster. Writes must all go through one handle.
                    if not present.borrows and not present.dirty:
                        del self._idle[present]
                    present.borrows += 1
                    surplus, done = [file], present.file
                else:
                    surplus = self._drop((path,))
                    handle = _Handle(path, file, write)
                    handle.borrows = 1
                    self._by_path[path] = self._by_file[file] = handle
                    surplus += self._take_surplus(self.limit)
                    done = file
            _close(surplus)
            if done is not None:
                return done

    def _open(self, path: str, write: bool, create: bool) -> File:
        try:
            return self._files.open(path, write=write, create=create)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
        # Connections took more than their half: give back what we can before calling it a failure.
        with self._lock:
            surplus = self._take_surplus(len(self._by_file) // 2)
        _close(surplus)
        return self._files.open(path, write=write, create=create)

    def _below(self, directory: str) -> list[str]:
        prefix = directory.rstrip("/") + "/"
        return [path for path in self._by_path if path.startswith(prefix)]

    def _take_surplus(self, limit: int) -> list[File]:
        surplus = []
        while len(self._by_file) > limit and self._idle:
            handle, _ = self._idle.popitem(last=False)
            del self._by_path[handle.path]
            del self._by_file[handle.file]
            surplus.append(handle.file)
        return surplus

    def _drop(self, paths: Iterable[str]) -> list[File]:
        surplus = []
        for path in paths:
            handle = self._by_path.pop(path, None)
            if handle is None:
                continue
            handle.current = False
            if not handle.borrows:
                self._idle.pop(handle, None)
                del self._by_file[handle.file]
                surplus.append(handle.file)
        return surplus

    def _move(self, old: str, new: str) -> list[File]:
        surplus = self._drop((new,))
        handle = self._by_path.pop(old, None)
        if handle is not None:
            handle.path = handle.file.path = new
            self._by_path[new] = handle
        return surplus


class Borrowed:
    """A file for the length of a `with` block."""

    __slots__ = ("_cache", "_create", "_file", "_path", "_write")

    def __init__(self, cache: HandleCache, path: str, write: bool, create: bool) -> None:
        self._cache = cache
        self._path = path
        self._write = write
        self._create = create

    def __enter__(self) -> File:
        self._file = self._cache.acquire(self._path, self._write, self._create)
        return self._file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cache.release(self._file)


def _close(files: Iterable[File]) -> None:
    for file in files:
        # What is closed here was synced or is being removed: an error has nobody left to matter to.
        with contextlib.suppress(OSError):
            file.close()
