"""What a disk may hold after a loss of power: files and directories that know which changes are durable.

Owns the model behind `FaultFiles`, which adds the calls, faults and crash points. A `FileNode` keeps its
content as processes see it, the durable content, and the operations between the two. A `DirNode` does the
same for names. `after_power_loss` picks one of the states that a real disk could be found in:

- Every unsynced operation on a file is kept, lost or (writes) torn at sectors of 512 bytes, each on its own,
  so a later write may survive an earlier one. The size of the file is any that it had since its last sync.
- Names survive as a prefix of the directory's operations since its last sync. A rename between two
  directories is in both prefixes or in neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

SECTOR = 512


class Write(NamedTuple):
    position: int
    data: bytes


class Truncate(NamedTuple):
    size: int


class Allocate(NamedTuple):
    size: int


Operation = Write | Truncate | Allocate


def apply(image: bytearray, operation: Operation) -> None:
    if isinstance(operation, Write):
        position, data = operation
        if not data:
            return
        if position > len(image):
            image.extend(bytes(position - len(image)))
        image[position : position + len(data)] = data
        return
    size = operation.size
    if size > len(image):
        image.extend(bytes(size - len(image)))
    elif isinstance(operation, Truncate):
        del image[size:]


def size_after(size: int, operation: Operation) -> int:
    if isinstance(operation, Write):
        return max(size, operation.position + len(operation.data)) if operation.data else size
    return operation.size if isinstance(operation, Truncate) else max(size, operation.size)


def torn(write: Write, rng: Random) -> Iterator[Write]:
    """The parts of a write that reached the disk: its first sectors, or any of them."""
    position, data = write
    end = position + len(data)
    cut_at = rng.randrange(position, end + 1) if rng.random() < 0.5 else None
    start = position
    while start < end:
        stop = min((start // SECTOR + 1) * SECTOR, end)
        if rng.random() < 0.5 if cut_at is None else stop <= cut_at:
            yield Write(start, data[start - position : stop - position])
        start = stop


@dataclass(slots=True, eq=False)
class FileNode:
    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    # Since the last datasync. `durable` with these applied is `content`, unless a datasync has failed.
    pending: list[Operation] = field(default_factory=list)
    links: int = 0
    handles: int = 0

    def change(self, operation: Operation) -> None:
        apply(self.content, operation)
        self.pending.append(operation)

    def sync(self) -> None:
        for operation in self.pending:
            apply(self.durable, operation)
        self.pending.clear()

    def fail_sync(self) -> None:
        """As Linux does: the pages count as clean afterwards, so no later sync writes them."""
        self.pending.clear()

    def flip_bit(self, position: int, bit: int) -> None:
        if position >= len(self.content):
            raise ValueError(f"no byte at {position}: the file has {len(self.content)}")
        mask = 1 << bit
        self.content[position] ^= mask
        if position < len(self.durable):
            self.durable[position] ^= mask
        for index, operation in enumerate(self.pending):
            if isinstance(operation, Write) and 0 <= position - operation.position < len(operation.data):
                data = bytearray(operation.data)
                data[position - operation.position] ^= mask
                self.pending[index] = Write(operation.position, bytes(data))

    def after_power_loss(self, rng: Random) -> FileNode:
        image = bytearray(self.durable)
        sizes = [len(image)]
        # Whole and empty outcomes are common on real disks, and would be rare if each operation drew alone.
        outcome = rng.choices(("all", "none", "mixed"), (25, 15, 60))[0]
        for operation in self.pending:
            sizes.append(size_after(sizes[-1], operation))
            fate = outcome if outcome != "mixed" else rng.choices(("all", "none", "torn"), (40, 30, 30))[0]
            if fate == "all":
                apply(image, operation)
            elif fate == "torn" and isinstance(operation, Write):
                for part in torn(operation, rng):
                    apply(image, part)
        if outcome == "mixed" and rng.random() < 0.5:
            apply(image, Truncate(rng.choice(sizes)))
        return FileNode(image, bytearray(image))


@dataclass(slots=True, eq=False)
class NameChange:
    """One atomic change of names: each edit sets a name in a directory, or (None) takes it away."""

    edits: tuple[tuple[DirNode, str, FileNode | DirNode | None], ...]

    def apply_to(self, directory: DirNode, names: dict[str, FileNode | DirNode]) -> None:
        for where, name, node in self.edits:
            if where is directory:
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node

    def directories(self) -> list[DirNode]:
        return list(dict.fromkeys(where for where, _, _ in self.edits))


@dataclass(slots=True, eq=False)
class DirNode:
    names: dict[str, FileNode | DirNode] = field(default_factory=dict)
    durable: dict[str, FileNode | DirNode] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)

    def sync(self) -> None:
        """Make all changes durable, and what a rename between directories needs in the other one."""
        while self.pending:
            self._sync_first()

    def _sync_first(self) -> None:
        change = self.pending[0]
        for directory in change.directories():
            while directory.pending[0] is not change:
                directory._sync_first()
        for directory in change.directories():
            directory.pending.pop(0)
            change.apply_to(directory, directory.durable)

    def children(self) -> list[FileNode | DirNode]:
        """Everything that this directory names, ever named since its last sync, or may name after a crash."""
        nodes = dict.fromkeys([*self.durable.values(), *self.names.values()])
        for change in self.pending:
            nodes.update(dict.fromkeys(node for _, _, node in change.edits if node is not None))
        return list(nodes)


def change_names(*edits: tuple[DirNode, str, FileNode | DirNode | None]) -> None:
    change = NameChange(edits)
    for directory in change.directories():
        change.apply_to(directory, directory.names)
        directory.pending.append(change)


def after_power_loss(root: DirNode, rng: Random) -> DirNode:
    """A tree in which everything is durable, drawn from those that the disk may hold."""
    directories: dict[DirNode, None] = {root: None}
    unseen = [root]
    while unseen:
        for child in unseen.pop().children():
            if isinstance(child, DirNode) and child not in directories:
                directories[child] = None
                unseen.append(child)
    kept = {directory: rng.randint(0, len(directory.pending)) for directory in directories}
    settled = False
    while not settled:
        settled = True
        survivors = {directory: set(directory.pending[: kept[directory]]) for directory in directories}
        for directory in directories:
            for index, change in enumerate(directory.pending[: kept[directory]]):
                if any(change not in survivors[other] for other in change.directories()):
                    kept[directory] = index
                    settled = False
                    break

    def rebuild(directory: DirNode) -> DirNode:
        names = dict(directory.durable)
        for change in directory.pending[: kept[directory]]:
            change.apply_to(directory, names)
        result = DirNode()
        for name, node in names.items():
            copy = rebuild(node) if isinstance(node, DirNode) else node.after_power_loss(rng)
            if isinstance(copy, FileNode):
                copy.links = 1
            result.names[name] = result.durable[name] = copy
        return result

    return rebuild(root)
