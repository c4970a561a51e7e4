"""The one seam through which the storage engine touches files.

Owns every system call on files: nothing else under `storage/` opens one. `Files` is a file system, `File`
an open file; `OsFiles` is the real one, and tests put a file system with faults in its place. Paths are
plain `str`.

Invariants that every implementation keeps:

- A write is durable only after `datasync` of its file; a new, renamed or removed name only after `sync_dir`
  of its directory. Neither implies the other.
- `rename` is atomic and replaces its target.
- `pread` is short only at the end of the file, `pwritev` writes everything or raises. After it has raised,
  any part of the bytes may be in the file.
- An `OSError` passes through with its errno and names the path, whatever call it came from.

A `File` may be used by several threads at once (every call carries its position), except that `close` must
not run beside another call: `HandleCache` sees to that.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import Bytes

IOV_MAX = os.sysconf("SC_IOV_MAX")
TEMPORARY_SUFFIX = ".tmp"

# Above any number that the kernel gives out, so system calls answer EBADF (for -1, Python raises ValueError).
_CLOSED = 2**31 - 1

# Logs hold other people's data: the group may read them, nobody else.
FILE_MODE = 0o640
DIRECTORY_MODE = 0o750


class Entry(NamedTuple):
    """A name in a directory. The size of a directory is given as 0."""

    name: str
    size: int
    is_dir: bool


class Closeable(Protocol):
    def close(self) -> None: ...


class File(Protocol):
    """An open file. Memory views given to `pwritev` must be views of bytes (format "B")."""

    path: str

    def pread(self, size: int, position: int) -> bytes:
        """Read `size` bytes, fewer only where the file ends."""

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """Like `pread` if that needs no disk access, otherwise None.

        Where the file system cannot tell, this is `pread`.
        """

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        """Write all the buffers one after the other; returns the number of bytes."""

    def datasync(self) -> None:
        """Bring content and size to stable storage. After an error the file must not be trusted again."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserve disk space for the first `size` bytes; a smaller file grows to `size` with zeros."""

    def size(self) -> int: ...

    def close(self) -> None:
        """Release the handle. Doing so twice is fine; any other call afterwards raises OSError(EBADF)."""


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        """Open a file; `create` implies `write` and leaves an existing file as it is."""

    def list(self, path: str) -> builtins.list[Entry]:
        """What is in a directory, in no particular order."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory; an error other than its absence is raised."""

    def make_dirs(self, path: str) -> None:
        """Make a directory and the missing ones above it."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; a missing one is fine. Not atomic."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable, not the content of what they name."""

    def read(self, path: str) -> bytes:
        """The content of a whole file."""

    def lock(self, path: str) -> Closeable:
        """Hold a lock file until closed; TailraceError at once if it is held already."""


class OsFile(File):
    """A file descriptor. The `try` blocks cost nothing unless something raises."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = os.pread(self._fd, size, position)
            if len(data) == size:
                return data
            return self._rest(data, size, position)
        except OSError as error:
            error.filename = self.path
            raise

    def _rest(self, data: bytes, size: int, position: int) -> bytes:
        """Linux reads at most 2 GiB at once, and network file systems less: only an empty read is the end."""
        parts = [data]
        done = len(data)
        while data and done < size:
            data = os.pread(self._fd, size - done, position + done)
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pread_cached(self, size: int, position: int) -> bytes | None:
        buffer = bytearray(size)
        try:
            count = os.preadv(self._fd, (buffer,), position, os.RWF_NOWAIT)
            if count == size:
                return bytes(buffer)
            if position + count < os.fstat(self._fd).st_size:
                # The first pages are in memory, those after them are not.
                return None
            return bytes(memoryview(buffer)[:count])
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return self.pread(size, position)
            error.filename = self.path
            raise

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        total = sum(map(len, buffers))
        try:
            written = os.pwritev(self._fd, buffers[:IOV_MAX], position) if total else 0
            if written < total:
                self._write_rest(buffers, written, position + written)
        except OSError as error:
            error.filename = self.path
            raise
        return total

    def _write_rest(self, buffers: Sequence[Bytes], skip: int, position: int) -> None:
        """Write what is left of `buffers` after their first `skip` bytes."""
        rest: list[Bytes] = []
        for buffer in buffers:
            if skip >= len(buffer):
                skip -= len(buffer)
            else:
                rest.append(memoryview(buffer)[skip:])
                skip = 0
        first = 0
        while first < len(rest):
            written = os.pwritev(self._fd, rest[first : first + IOV_MAX], position)
            if written == 0:
                raise OSError(errno.EIO, "the file system accepted no bytes")
            position += written
            while first < len(rest) and written >= len(rest[first]):
                written -= len(rest[first])
                first += 1
            if written:
                rest[first] = rest[first][written:]

    def datasync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            error.filename = self.path
            raise

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            error.filename = self.path
            raise

    def allocate(self, size: int) -> None:
        if size <= 0:
            return
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            error.filename = self.path
            raise

    def size(self) -> int:
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            error.filename = self.path
            raise

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)


class OsFiles(Files):
    """The file system of the operating system (Linux)."""

    __slots__ = ()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if write or create else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        return OsFile(path, os.open(path, flags, FILE_MODE))

    def list(self, path: str) -> builtins.list[Entry]:
        entries = []
        with os.scandir(path) as found:
            for entry in found:
                # A name can go between being listed and being looked at.
                with contextlib.suppress(FileNotFoundError):
                    is_dir = entry.is_dir()
                    entries.append(Entry(entry.name, 0 if is_dir else entry.stat().st_size, is_dir))
        return entries

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        file = self.open(path)
        try:
            # One byte more than there is, so that the read itself tells whether the file has grown.
            size = file.size() + 1
            data = file.pread(size, 0)
            while len(data) == size:
                size *= 2
                data = file.pread(size, 0)
            return data
        finally:
            file.close()

    def lock(self, path: str) -> Closeable:
        file = self.open(path, create=True)
        try:
            fcntl.flock(file._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.pread(32, 0).decode("ascii", "replace").strip()
            file.close()
            raise lock_held(path, holder) from None
        except OSError as error:
            error.filename = path
            file.close()
            raise
        # Only for the message that the next one to try gets, so a full disk must not stop the start here.
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.pwritev([b"%d\n" % os.getpid()], 0)
        return file


def lock_held(path: str, holder: str) -> TailraceError:
    """What `Files.lock` raises when `holder` (a process id, perhaps empty) has the lock already."""
    who = f"process {holder}" if holder else "another process"
    return TailraceError(
        ErrorCode.STORAGE_ERROR,
        f"{path} is locked by {who}: only one process may use a log directory. Stop that process, or "
        "give this one a directory of its own.",
    )


_ADVICE = {
    errno.ENOSPC: "Free space on this disk or shorten retention, then restart.",
    errno.EDQUOT: "Raise the disk quota or shorten retention, then restart.",
    errno.EROFS: "The file system is mounted read-only, often after a disk error: check the kernel log.",
    errno.EIO: "The disk failed: check the kernel log, and replace the disk if it reports errors.",
    errno.EACCES: "Give the user that runs the process the right to read and write there.",
    errno.EPERM: "Give the user that runs the process the right to read and write there.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n) and restart.",
    errno.ENFILE: "The whole machine ran out of open files: raise fs.file-max.",
}


def storage_error(doing: str, error: OSError, path: str = "") -> TailraceError:
    """Turn an OSError into one for people: `doing` says what failed, as in "writing a segment"."""
    where = path or error.filename or "an unknown file"
    reason = error.strerror or str(error)
    advice = _ADVICE.get(error.errno or 0, "Check that the path exists and its disk is healthy.")
    return TailraceError(ErrorCode.STORAGE_ERROR, f"{doing} failed at {where}: {reason}. {advice}")


def parent_of(path: str) -> str:
    """The directory whose `sync_dir` makes the name `path` durable."""
    return os.path.dirname(path) or "."


def make_durable_dirs(files: Files, path: str) -> None:
    """Make a directory with the missing ones above it, each durable in the one above before it is used."""
    if files.exists(path):
        return
    parent = parent_of(path)
    if parent != path:
        make_durable_dirs(files, parent)
    files.make_dirs(path)
    files.sync_dir(parent)


def write_atomic(files: Files, path: str, data: Bytes, *, sync: bool = True) -> None:
    """Replace a file as a whole: afterwards there is the old content or the new one, never a mix.

    Without `sync` that holds when the process dies, but not when the power goes.
    """
    temporary = path + TEMPORARY_SUFFIX
    try:
        file = files.open(temporary, create=True)
        try:
            # A crash may have left a longer one behind.
            file.truncate(0)
            file.pwritev([data], 0)
            if sync:
                file.datasync()
        finally:
            file.close()
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    if sync:
        files.sync_dir(parent_of(path))
