"""The stand-in for a disk must be at least as cruel as a real one, and never more than it may be."""

from __future__ import annotations

from contextlib import closing, suppress
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.storage.files import Files, make_durable_dirs, write_atomic
from tests.support.disk_model import Allocate, FileNode, Operation, Truncate, Write, apply
from tests.support.fault_files import FaultFiles, PowerLost

DRAWS = 300


def fresh(seed: int = 1) -> FaultFiles:
    return FaultFiles(Random(seed))


def put(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    with closing(files.open(path, create=True)) as file:
        file.pwritev([data], 0)
        if sync:
            file.datasync()
    if sync:
        files.sync_dir("/")


def outcomes(files: FaultFiles, path: str) -> set[bytes | None]:
    found = (files.crash(Random(seed)) for seed in range(DRAWS))
    return {crashed.read(path) if crashed.exists(path) else None for crashed in found}


def trees(files: FaultFiles) -> set[frozenset[str]]:
    return {frozenset(files.crash(Random(seed)).files_below()) for seed in range(DRAWS)}


# What a loss of power does to content.


def test_crash_keeps_loses_or_tears_when_a_write_is_unsynced() -> None:
    files = fresh()
    put(files, "/a", b"o" * 2048, sync=True)
    with closing(files.open("/a", write=True)) as file:
        file.pwritev([b"n" * 2048], 0)
    found = {bytes(content[::512]) for content in outcomes(files, "/a") if content}
    assert {b"oooo", b"nnnn", b"nnoo", b"oonn", b"nono"} <= found
    for content in outcomes(files, "/a"):
        assert content is not None
        assert all(content[at : at + 512] in (b"o" * 512, b"n" * 512) for at in range(0, 2048, 512))


def test_crash_keeps_a_later_write_without_an_earlier_one_when_both_are_unsynced() -> None:
    files = fresh()
    put(files, "/a", b"", sync=True)
    with closing(files.open("/a", write=True)) as file:
        file.pwritev([b"1" * 100], 0)
        file.pwritev([b"2" * 100], 100)
    found = outcomes(files, "/a")
    assert {b"", b"1" * 100, bytes(100) + b"2" * 100, b"1" * 100 + b"2" * 100} <= found
    assert b"1" * 100 + bytes(100) in found, "the size may grow without the bytes"
    assert bytes(200) in found


def test_crash_brings_old_bytes_back_when_a_truncate_is_unsynced() -> None:
    files = fresh()
    put(files, "/a", b"o" * 600, sync=True)
    with closing(files.open("/a", write=True)) as file:
        file.truncate(100)
        file.pwritev([b"n" * 100], 100)
    found = outcomes(files, "/a")
    assert {b"o" * 600, b"o" * 100 + b"n" * 100, b"o" * 100 + b"n" * 100 + b"o" * 400, b"o" * 100} <= found
    assert all(content is not None and content[:100] == b"o" * 100 for content in found)


def test_crash_may_lose_allocation_when_unsynced() -> None:
    files = fresh()
    put(files, "/a", b"x", sync=True)
    with closing(files.open("/a", write=True)) as file:
        file.allocate(3)
        assert outcomes(files, "/a") == {b"x", b"x\0\0"}


operations = st.lists(
    st.one_of(
        st.builds(Write, st.integers(0, 3000), st.binary(min_size=1, max_size=1200)),
        st.builds(Truncate, st.integers(0, 3500)),
        st.builds(Allocate, st.integers(0, 3500)),
    ),
    max_size=6,
)


def perform(files: Files, changes: list[Operation]) -> None:
    with closing(files.open("/a", write=True)) as file:
        for change in changes:
            if isinstance(change, Write):
                file.pwritev([change.data], change.position)
            elif isinstance(change, Truncate):
                file.truncate(change.size)
            else:
                file.allocate(change.size)


@settings(deadline=None)
@given(synced=operations, unsynced=operations, seed=st.integers(0, 2**32))
def test_crash_keeps_every_synced_byte_when_nothing_touched_it_since(
    synced: list[Operation], unsynced: list[Operation], seed: int
) -> None:
    files = fresh()
    put(files, "/a", b"", sync=True)
    perform(files, synced)
    with closing(files.open("/a")) as file:
        file.datasync()
    expected = files.read("/a")
    assert files.crash(Random(seed)).read("/a") == expected, "all was synced"

    files = files.crash()
    perform(files, unsynced)
    crashed = files.crash(Random(seed)).read("/a")
    smallest = size = len(expected)
    touched: set[int] = set()
    for change in unsynced:
        if isinstance(change, Write):
            touched.update(range(change.position, change.position + len(change.data)))
            size = max(size, change.position + len(change.data))
        else:
            size = change.size if isinstance(change, Truncate) else max(size, change.size)
        smallest = min(smallest, size)
    assert len(crashed) >= smallest
    assert all(crashed[at] == expected[at] for at in range(smallest) if at not in touched)


@settings(deadline=None)
@given(changes=operations, seed=st.integers(0, 2**32))
def test_crash_shows_only_bytes_that_were_written_there_when_drawn(
    changes: list[Operation], seed: int
) -> None:
    node = FileNode(bytearray(b"old" * 500), bytearray(b"old" * 500))
    possible: list[set[int]] = [{0} for _ in range(5000)]
    for at, byte in enumerate(node.content):
        possible[at] = {byte, 0}
    for change in changes:
        node.change(change)
        if isinstance(change, Write):
            for at, byte in enumerate(change.data, change.position):
                possible[at].add(byte)
    found = node.after_power_loss(Random(seed))
    assert all(byte in possible[at] for at, byte in enumerate(found.content))
    assert found.content == found.durable
    assert not found.pending


@settings(deadline=None)
@given(changes=operations)
def test_sync_makes_durable_exactly_what_is_read_when_called(changes: list[Operation]) -> None:
    node, image = FileNode(), bytearray()
    for change in changes:
        node.change(change)
        apply(image, change)
    node.sync()
    assert node.durable == node.content == image


# What a loss of power does to names.


def test_crash_may_lose_a_new_name_when_only_the_file_was_synced() -> None:
    files = fresh()
    with closing(files.open("/a", create=True)) as file:
        file.pwritev([b"abc"], 0)
        file.datasync()
    assert outcomes(files, "/a") == {None, b"abc"}
    files = files.kill()
    files.sync_dir("/")
    assert outcomes(files, "/a") == {b"abc"}


def test_crash_keeps_a_prefix_of_changes_when_a_directory_is_unsynced() -> None:
    files = fresh()
    put(files, "/a", b"", sync=True)
    files.open("/b", create=True).close()
    files.rename("/a", "/c")
    files.remove("/b")
    files.open("/d", create=True).close()
    assert trees(files) == {
        frozenset({"/a"}),
        frozenset({"/a", "/b"}),
        frozenset({"/b", "/c"}),
        frozenset({"/c"}),
        frozenset({"/c", "/d"}),
    }


def test_crash_treats_directories_apart_when_both_are_unsynced() -> None:
    files = fresh()
    for directory in ("/x", "/y"):
        make_durable_dirs(files, directory)
    files.open("/x/a", create=True).close()
    files.open("/y/b", create=True).close()
    assert trees(files) == {
        frozenset(),
        frozenset({"/x/a"}),
        frozenset({"/y/b"}),
        frozenset({"/x/a", "/y/b"}),
    }
    files = files.kill()
    files.sync_dir("/y")
    assert trees(files) == {frozenset({"/y/b"}), frozenset({"/x/a", "/y/b"})}


def test_crash_has_the_file_exactly_once_when_renamed_between_directories() -> None:
    files = fresh()
    for directory in ("/x", "/y"):
        make_durable_dirs(files, directory)
    files.open("/x/a", create=True).close()
    files.sync_dir("/x")
    files.open("/y/before", create=True).close()
    files.rename("/x/a", "/y/a")
    files.open("/x/after", create=True).close()
    for found in trees(files):
        assert ("/x/a" in found) != ("/y/a" in found)
        assert "/y/before" in found or "/y/a" not in found
        assert "/x/after" not in found or "/y/a" in found
    files = files.kill()
    files.sync_dir("/x")
    assert trees(files) == {frozenset({"/y/before", "/y/a", "/x/after"})}


def test_crash_loses_a_whole_new_directory_when_its_parent_is_unsynced() -> None:
    files = fresh()
    files.make_dirs("/x/y")
    put(files, "/x/y/a", b"abc", sync=True)
    for path in ("/x/y", "/x"):
        files.sync_dir(path)
    assert trees(files) == {frozenset({"/x/y/a"})}

    files = fresh()
    files.make_dirs("/x/y")
    with closing(files.open("/x/y/a", create=True)) as file:
        file.datasync()
    files.sync_dir("/x/y")
    assert trees(files) == {frozenset(), frozenset({"/x/y/a"})}


@settings(deadline=None)
@given(
    names=st.lists(st.sampled_from(["/a", "/b", "/x/c", "/x/d", "/x/e/f"]), min_size=1, max_size=8),
    step=st.integers(1, 60),
    seed=st.integers(0, 2**32),
)
def test_synced_files_and_names_survive_when_power_goes_at_any_step(
    names: list[str], step: int, seed: int
) -> None:
    files = fresh(seed)
    files.crash_after(step)
    done: dict[str, bytes] = {}
    doing, data = "", b""
    with suppress(PowerLost):
        make_durable_dirs(files, "/x/e")
        for number, name in enumerate(names):
            doing, data = name, bytes([number]) * 1500
            write_atomic(files, doing, data)
            done[doing] = data
            doing = ""
    found = files.crash(Random(seed)).files_below()
    for path, content in done.items():
        assert found[path] == content or (path == doing and found[path] == data)
    assert doing in done or found.get(doing, data) == data
