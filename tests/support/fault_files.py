"""A file system in memory that fails on demand, in place of `OsFiles`.

Owns the calls, the faults and the crash points; `disk_model` owns what survives. Everything random comes from
the generator that the caller gives, so a test that prints its seed can be repeated.

Cutting power at every boundary:

    total = run(FaultFiles(Random(seed))).steps
    for step in range(1, total + 1):
        files = FaultFiles(Random(seed))
        files.crash_after(step)
        with suppress(PowerLost): run(files)
        check(files.crash(rng))      # or files.kill(): the process died, the machine did not

Every call that changes something is a step; the first is step 1. After the crash, each call on the old file
system and its handles raises PowerLost (`close` alone does nothing): that process is dead. `crash` and `kill`
return a new file system without locks or faults, and may be called again for another draw.
"""

from __future__ import annotations

import builtins
import copy
import errno
import os
import threading
from collections import Counter
from collections.abc import Callable
from random import Random

from tailrace.cluster.storage.files import Closeable, Entry, Files, lock_held
from tests.support.disk_model import (
    DirNode,
    FileNode,
    Operation,
    after_power_loss,
    change_names,
)
from tests.support.fault_file import FaultFile, FaultLock
from tests.support.fault_plan import Fault, FaultPlan, PowerLost, When, on, refuse

__all__ = ["FaultFile", "FaultFiles", "PowerLost", "on"]


class FaultFiles(Files):
    def __init__(self, rng: Random, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        # Called with the path before each datasync, without any lock held: count, wait or raise there.
        self.before_sync: Callable[[str], None] | None = None
        # Paths for which `pread_cached` finds nothing in memory.
        self.uncached: Callable[[str], bool] | None = None
        self.datasyncs: Counter[str] = Counter()
        self.dir_syncs: Counter[str] = Counter()
        self.bytes_written = 0
        self.open_handles = 0
        self.max_open_handles = 0
        self._plan = FaultPlan(rng)
        self._mutex = threading.RLock()
        self._root = DirNode()
        self._used = 0
        self._locks: dict[str, FaultLock] = {}

    @property
    def steps(self) -> int:
        """How many changes were made, which is also the number of the last one."""
        return self._plan.steps

    # What tests do to it.

    def crash_after(self, step: int) -> None:
        """Cut the power inside this step, which then happens in part, wholly or not at all."""
        self._plan.crash_at = step

    def crash(self, rng: Random | None = None) -> FaultFiles:
        """The file system as found after a loss of power now (or at the crash point)."""
        with self._mutex:
            self._plan.dead = True
            return self._successor(after_power_loss(self._root, rng or self._plan.rng))

    def kill(self) -> FaultFiles:
        """The file system as found after the process was killed: all written is there, synced or not.

        A write that the crash point struck is cut short; one that had returned is whole.
        """
        with self._mutex:
            self._plan.dead = True
            return self._successor(copy.deepcopy(self._root))

    def fail(self, error: int, when: When, *, skip: int = 0, times: int | None = 1) -> Fault:
        """Let calls fail with this errno: after `skip` that match, `times` in a row (None: from then on).

        A failing write leaves a random part of its bytes. A failing datasync drops what was unsynced: it is
        still read, but counts as clean, so no later datasync saves it from a loss of power.
        """
        fault = Fault(error, when, skip, times)
        self._plan.faults.append(fault)
        return fault

    def clear_faults(self) -> None:
        self._plan.faults.clear()

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Rot: change one bit, on disk and in memory."""
        with self._mutex:
            self._file_node(path).flip_bit(position, bit)

    def delete_file(self, path: str) -> None:
        """Take a file away for good, as someone with a shell may do. Not a step."""
        with self._mutex:
            directory, name = self._parent(path)
            node = self._file_node(path)
            change_names((directory, name, None))
            directory.sync()
            self._unlinked(node)

    def files_below(self, path: str = "/") -> dict[str, bytes]:
        """Every file with its content as processes see it, for comparing whole trees."""
        found: dict[str, bytes] = {}
        node = self._find(path)
        assert isinstance(node, DirNode), f"{path} is not a directory"
        for name, child in node.names.items():
            where = f"{path.rstrip('/')}/{name}"
            if isinstance(child, DirNode):
                found.update(self.files_below(where))
            else:
                found[where] = bytes(child.content)
        return found

    # The calls of `Files`.

    def open(self, path: str, *, write: bool = False, create: bool = False) -> FaultFile:
        with self._mutex:
            self._plan.before("open", path)
            directory, name = self._parent(path)
            node = directory.names.get(name) if name else directory
            if node is None and create:
                self._plan.before("create", path)
                node = FileNode(links=1)
                self._change_names((directory, name, node))
            if node is None:
                refuse(errno.ENOENT, path)
            if isinstance(node, DirNode):
                refuse(errno.EISDIR, path)
            node.handles += 1
            self.open_handles += 1
            self.max_open_handles = max(self.max_open_handles, self.open_handles)
            return FaultFile(self, path, node, write or create)

    def list(self, path: str) -> builtins.list[Entry]:
        with self._mutex:
            self._plan.before("list", path)
            node = self._find(path)
            if not isinstance(node, DirNode):
                refuse(errno.ENOTDIR if node else errno.ENOENT, path)
            return [
                Entry(name, 0, True) if isinstance(child, DirNode) else Entry(name, len(child.content), False)
                for name, child in node.names.items()
            ]

    def exists(self, path: str) -> bool:
        with self._mutex:
            self._plan.check_power()
            try:
                return self._find(path) is not None
            except (FileNotFoundError, NotADirectoryError):
                return False

    def make_dirs(self, path: str) -> None:
        with self._mutex:
            self._plan.check_power()
            directory = self._root
            for name in _split(path):
                child = directory.names.get(name)
                if child is None:
                    self._plan.before("mkdir", path)
                    child = DirNode()
                    self._change_names((directory, name, child))
                if not isinstance(child, DirNode):
                    refuse(errno.EEXIST, path)
                directory = child

    def rename(self, source: str, target: str) -> None:
        with self._mutex:
            self._plan.before("rename", target)
            source_dir, source_name = self._parent(source)
            target_dir, target_name = self._parent(target)
            node = source_dir.names.get(source_name)
            replaced = target_dir.names.get(target_name)
            if node is None:
                refuse(errno.ENOENT, source)
            if node is replaced:
                return
            if isinstance(replaced, DirNode) and not isinstance(node, DirNode):
                refuse(errno.EISDIR, target)
            if isinstance(replaced, DirNode) and replaced.names:
                refuse(errno.ENOTEMPTY, target)
            if isinstance(replaced, FileNode) and isinstance(node, DirNode):
                refuse(errno.ENOTDIR, target)
            self._change_names((source_dir, source_name, None), (target_dir, target_name, node))
            if isinstance(replaced, FileNode):
                self._unlinked(replaced)

    def remove(self, path: str) -> None:
        with self._mutex:
            self._plan.before("remove", path)
            try:
                directory, name = self._parent(path)
            except FileNotFoundError:
                return
            node = directory.names.get(name)
            if isinstance(node, DirNode):
                refuse(errno.EISDIR, path)
            if node is not None:
                self._change_names((directory, name, None))
                self._unlinked(node)

    def remove_tree(self, path: str) -> None:
        with self._mutex:
            if not self.exists(path):
                return
            for entry in self.list(path):
                child = f"{path}/{entry.name}"
                if entry.is_dir:
                    self.remove_tree(child)
                else:
                    self.remove(child)
            self._plan.before("remove", path)
            directory, name = self._parent(path)
            self._change_names((directory, name, None))

    def sync_dir(self, path: str) -> None:
        with self._mutex:
            self._plan.before("sync_dir", path)
            node = self._find(path)
            if not isinstance(node, DirNode):
                refuse(errno.ENOTDIR if node else errno.ENOENT, path)
            self._plan.step_or_die()
            self.dir_syncs[path] += 1
            node.sync()

    def read(self, path: str) -> bytes:
        with self._mutex:
            self._plan.before("open", path)
            self._plan.before("read", path)
            return bytes(self._file_node(path).content)

    def lock(self, path: str) -> Closeable:
        with self._mutex:
            if path in self._locks:
                raise lock_held(path, str(os.getpid()))
            lock = FaultLock(self, path, self.open(path, create=True))
            self._locks[path] = lock
            return lock

    # Shared with the handles.

    def _successor(self, root: DirNode) -> FaultFiles:
        files = FaultFiles(self._plan.rng, capacity=self.capacity)
        files._root = root
        files._used = files._adopt(root)
        return files

    def _adopt(self, directory: DirNode) -> int:
        """The bytes below a directory, which no handle of this file system has open yet."""
        used = 0
        for node in directory.names.values():
            if isinstance(node, DirNode):
                used += self._adopt(node)
            else:
                node.handles = 0
                used += len(node.content)
        return used

    def _change_names(self, *edits: tuple[DirNode, str, FileNode | DirNode | None]) -> None:
        self._plan.step_or_die(lambda: change_names(*edits))

    def _change(self, node: FileNode, operation: Operation) -> None:
        before = len(node.content)
        node.change(operation)
        self._used += len(node.content) - before

    def _unlinked(self, node: FileNode) -> None:
        node.links -= 1
        self._free_unused(node)

    def _free_unused(self, node: FileNode) -> None:
        if not node.links and not node.handles:
            self._used -= len(node.content)

    def _space_for(self, growth: int) -> int:
        return growth if self.capacity is None else max(0, min(growth, self.capacity - self._used))

    def _parent(self, path: str) -> tuple[DirNode, str]:
        names = _split(path)
        directory = self._root
        for name in names[:-1]:
            child = directory.names.get(name)
            if not isinstance(child, DirNode):
                refuse(errno.ENOTDIR if child else errno.ENOENT, path)
            directory = child
        return directory, names[-1] if names else ""

    def _find(self, path: str) -> FileNode | DirNode | None:
        directory, name = self._parent(path)
        return directory.names.get(name) if name else directory

    def _file_node(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            refuse(errno.EISDIR if node else errno.ENOENT, path)
        return node


def _split(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    assert ".." not in names, f"{path}: the storage engine has no reason to go up"
    return names
