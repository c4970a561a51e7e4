"""An open file of a `FaultFiles`: which part of a call happens before it fails or the power goes.

Owns nothing but the handle: content is the node's, counters and space are the file system's, failures the
plan's. Every call holds the file system's mutex, so threads see each call as a whole.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.cluster.common.types import Bytes
from tailrace.cluster.storage.files import File
from tests.support.disk_model import Allocate, FileNode, Operation, Truncate, Write
from tests.support.fault_plan import Call, PowerLost, refuse

if TYPE_CHECKING:
    from tests.support.fault_files import FaultFiles


class FaultFile(File):
    __slots__ = ("_files", "_mutex", "_node", "_open", "_plan", "_writable", "path")

    def __init__(self, files: FaultFiles, path: str, node: FileNode, writable: bool) -> None:
        self.path = path
        self._files = files
        self._plan = files._plan
        self._mutex = files._mutex
        self._node = node
        self._writable = writable
        self._open = True

    def _before(self, call: Call, writes: bool) -> None:
        self._plan.check_power()
        if not self._open or (writes and not self._writable):
            refuse(errno.EBADF, self.path)
        # A write and a datasync fail in ways of their own.
        if call not in ("write", "datasync"):
            self._plan.before(call, self.path)

    def pread(self, size: int, position: int) -> bytes:
        with self._mutex:
            self._before("read", False)
            return bytes(self._node.content[position : position + size])

    def pread_cached(self, size: int, position: int) -> bytes | None:
        uncached = self._files.uncached
        return None if uncached is not None and uncached(self.path) else self.pread(size, position)

    def pwritev(self, buffers: Sequence[Bytes], position: int) -> int:
        with self._mutex:
            files, plan, node = self._files, self._plan, self._node
            self._before("write", True)
            data = b"".join(buffers)
            done = len(data)
            error = plan.error_for("write", self.path)
            if error:
                done = plan.rng.randint(0, done)
            growth = position + done - len(node.content)
            if growth > 0 and (room := files._space_for(growth)) < growth:
                error = error or errno.ENOSPC
                done = max(0, done - (growth - room))
            struck = plan.step()
            if struck:
                done = plan.rng.randint(0, done)
            if done:
                files._change(node, Write(position, data[:done]))
            if struck:
                raise PowerLost(f"at step {plan.steps}, writing {self.path}")
            files.bytes_written += done
            if error:
                refuse(error, self.path)
            return done

    def datasync(self) -> None:
        self._plan.check_power()
        if self._files.before_sync is not None:
            self._files.before_sync(self.path)
        with self._mutex:
            self._before("datasync", False)
            self._plan.step_or_die()
            self._files.datasyncs[self.path] += 1
            if error := self._plan.error_for("datasync", self.path):
                self._node.fail_sync()
                refuse(error, self.path)
            self._node.sync()

    def truncate(self, size: int) -> None:
        with self._mutex:
            self._before("truncate", True)
            self._whole_step(Truncate(size))

    def allocate(self, size: int) -> None:
        with self._mutex:
            self._before("allocate", True)
            growth = size - len(self._node.content)
            if growth > 0 and self._files._space_for(growth) < growth:
                refuse(errno.ENOSPC, self.path)
            self._whole_step(Allocate(size))

    def _whole_step(self, operation: Operation) -> None:
        self._plan.step_or_die(lambda: self._files._change(self._node, operation))

    def size(self) -> int:
        with self._mutex:
            self._plan.check_power()
            if not self._open:
                refuse(errno.EBADF, self.path)
            return len(self._node.content)

    def close(self) -> None:
        with self._mutex:
            if self._open:
                self._open = False
                self._node.handles -= 1
                self._files.open_handles -= 1
                self._files._free_unused(self._node)


class FaultLock:
    def __init__(self, files: FaultFiles, path: str, file: File) -> None:
        self._files = files
        self._path = path
        self._file = file

    def close(self) -> None:
        self._file.close()
        if self._files._locks.get(self._path) is self:
            del self._files._locks[self._path]
