"""Looking into log directories from outside: what a path is, what a walk finds, what a redo would restore."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.batch import leader_part
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.core.marks import SyncMarks
from tailrace.cluster.storage.files import Files
from tailrace.cluster.storage.inspect import (
    WINDOW_BYTES,
    Damage,
    FoundBatch,
    Kind,
    Source,
    find,
    is_zero_from,
    list_partition,
    lone_segment,
    position_before,
    proof_behind,
    read_index,
    walk,
)
from tailrace.cluster.storage.swap import SwapGroup
from tests.support.engine import Engine, append, batch_of
from tests.support.fault_files import FaultFiles


def put(files: Files, path: str, data: bytes = b"") -> None:
    files.make_dirs(path.rpartition("/")[0])
    file = files.open(path, create=True)
    file.truncate(0)
    file.pwritev([data], 0)
    file.close()


def source_of(data: bytes, patches: list[tuple[int, bytes]] | None = None) -> Source:
    files = FaultFiles(Random(0))
    put(files, "/x/file", data)
    return Source(files.open("/x/file"), patches or ())


def batch_at(offset: int, *values: bytes, mark: int = 0) -> bytes:
    batch = batch_of(*(values or (b"value",)))
    head = leader_part(size=len(batch), base_offset=offset, leader_epoch=0, sync_mark=mark)
    return head + batch[len(head) :]


def log_of(count: int, size: int = 40) -> tuple[bytes, list[int]]:
    """`count` batches of one record each, and where they begin."""
    parts = [batch_at(number, bytes([65 + number % 26]) * size) for number in range(count)]
    positions = [0]
    for part in parts:
        positions.append(positions[-1] + len(part))
    return b"".join(parts), positions


# What a path is.


def test_find_tells_the_kinds_apart_when_paths_are_of_a_log() -> None:
    engine = Engine()
    append(engine.log(), b"v")
    engine.close()
    files = engine.files
    directory = find(files, "/data/")
    partition = find(files, "/data/orders-0")
    segment = find(files, "/data/orders-0/00000000000000000000.log")
    assert (directory.kind, directory.partitions) == (Kind.DIRECTORY, ["/data/orders-0"])
    assert (partition.kind, partition.directory) == (Kind.PARTITION, "/data")
    assert partition.partitions == ["/data/orders-0"]
    assert (segment.kind, segment.directory, segment.partitions) == (Kind.SEGMENT, "/data", [])
    assert lone_segment(files, segment.path).index_path == "/data/orders-0/00000000000000000000.index"


def test_find_takes_an_empty_log_directory_when_no_partition_is_there_yet() -> None:
    engine = Engine()
    engine.close()
    assert find(engine.files, "/data").partitions == []


def test_find_leaves_out_what_is_no_log_when_it_lies_in_a_log_directory() -> None:
    files = FaultFiles(Random(0))
    put(files, "/data/directory.json")
    put(files, "/data/a-0/00000000000000000000.log")
    put(files, "/data/b-0.1234-delete/partition.json")
    put(files, "/data/c-0.0-corrupt/partition.json")
    put(files, "/data/d-0/other.txt")
    target = find(files, "/data")
    assert target.partitions == ["/data/a-0"]
    assert target.set_aside == ["b-0.1234-delete", "c-0.0-corrupt", "d-0"]


@pytest.mark.parametrize("path", ["/nowhere", "/other", "/other/notes.txt"])
def test_find_refuses_with_a_hint_when_the_path_is_no_log(path: str) -> None:
    files = FaultFiles(Random(0))
    put(files, "/other/notes.txt")
    with pytest.raises(TailraceError) as caught:
        find(files, path)
    assert caught.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    assert caught.value.args[0].startswith(path)
    assert "such as orders-0" in caught.value.args[0]


def test_listing_shows_swaps_as_done_when_a_crash_interrupted_one() -> None:
    files = FaultFiles(Random(0))
    base, middle, last = (f"/p/{number:020d}" for number in (0, 10, 20))
    put(files, f"/p/{0:020d}-{20:020d}.log.swap", b"cleaned")
    put(files, f"{base}.index.cleaned", b"new index")
    put(files, f"{base}.log", b"old")
    put(files, f"{base}.index", b"old index")
    put(files, f"{middle}.log", b"old")
    put(files, f"{last}.log", b"active")
    put(files, f"/p/{7:020d}.producers")
    listing = list_partition(files, "/p")
    assert [(one.base_offset, one.path) for one in listing.segments] == [
        (0, f"/p/{0:020d}-{20:020d}.log.swap"),
        (20, f"{last}.log"),
    ]
    assert listing.segments[0].index_path == f"{base}.index.cleaned"
    assert (listing.swaps, listing.snapshots) == ([SwapGroup(0, 20)], [7])
    assert len(listing.leftovers) == 3


# Walking.


def test_walk_finds_every_batch_when_a_batch_exceeds_the_window() -> None:
    large = batch_at(1, b"x" * (2 * WINDOW_BYTES))
    data = batch_at(0) + large + batch_at(2)
    found = list(walk(source_of(data)))
    assert [one.header.base_offset for one in found if isinstance(one, FoundBatch)] == [0, 1, 2]
    assert all(isinstance(one, FoundBatch) and one.problem is None for one in found)


def test_walk_trusts_the_size_when_a_broken_batch_holds_what_looks_like_batches() -> None:
    inner = batch_at(7, b"a batch inside a value")
    outer = bytearray(batch_at(1, inner))
    outer[0] ^= 0x80
    found = list(walk(source_of(batch_at(0) + bytes(outer) + batch_at(2))))
    assert [type(one) for one in found] == [FoundBatch, Damage, FoundBatch]
    assert isinstance(found[2], FoundBatch)
    assert found[2].header.base_offset == 2


def test_walk_names_the_problem_when_offsets_go_back() -> None:
    found = list(walk(source_of(batch_at(5) + batch_at(3) + batch_at(6))))
    problems = [one.problem for one in found]
    assert problems == [None, "offset 3 where 6 or more was due", None]
    assert isinstance(found[1], FoundBatch)
    assert found[1].intact


def test_walk_finds_the_next_batch_when_damage_is_longer_than_the_window() -> None:
    data = batch_at(0) + b"\x01" * (2 * WINDOW_BYTES + 17) + batch_at(1)
    first, damage, last = walk(source_of(data))
    assert isinstance(damage, Damage)
    assert isinstance(last, FoundBatch)
    assert (damage.end, last.position, last.header.base_offset) == (
        last.position,
        len(data) - len(batch_at(1)),
        1,
    )
    assert first.problem is None


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_walk_covers_every_byte_once_and_loses_no_whole_batch_when_bytes_are_changed(
    data: st.DataObject,
) -> None:
    log, positions = log_of(8)
    damaged = bytearray(log)
    start = data.draw(st.integers(0, len(log) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=300))[: len(log) - start]
    damaged[start : start + len(noise)] = noise
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(1, len(damaged))) :]
    found = list(walk(source_of(bytes(damaged))))
    ends = [one.end if isinstance(one, Damage) else one.position + one.header.size for one in found]
    assert [one.position for one in found] == [0, *ends[:-1]]
    assert ends[-1] == len(damaged)
    whole = {one.position for one in found if isinstance(one, FoundBatch) and one.problem is None}
    untouched = {
        at for at, end in pairwise(positions) if end <= len(damaged) and damaged[at:end] == log[at:end]
    }
    assert untouched <= whole


# Sources.


def test_source_shows_what_a_redo_would_write_when_it_has_patches() -> None:
    source = source_of(b"abcdefgh", [(2, b"XY"), (10, b"END")])
    assert source.size == 13
    assert source.read(0, 13) == b"abXYefgh\0\0END"
    assert source.read(3, 2) == b"Ye"
    assert source.read(11, 100) == b"ND"


def test_zeros_are_told_from_data_when_they_reach_the_end() -> None:
    source = source_of(b"data" + bytes(2 * WINDOW_BYTES))
    assert is_zero_from(source, 4)
    assert not is_zero_from(source, 3)


def test_proof_is_found_when_a_later_batch_was_written_after_the_sync() -> None:
    garbage = b"\xff" * (WINDOW_BYTES - 50)
    marks = SyncMarks(b"secret", b"t" * 16, 0)
    source = source_of(garbage + batch_at(9, mark=marks.mark(9, synced_end=7)))
    proof = proof_behind(source, 0, 6, marks)
    assert proof is not None
    assert proof.base_offset == 9
    assert proof_behind(source, 0, 7, marks) is None
    assert proof_behind(source, 0, 6, SyncMarks(b"other", b"t" * 16, 0)) is None


def test_walk_starts_at_the_indexed_batch_when_an_offset_is_sought() -> None:
    engine = Engine()
    log = engine.log()
    for _ in range(100):
        append(log, b"v" * 400)
    engine.close()
    [segment] = list_partition(engine.files, "/data/orders-0").segments
    index, valid, size = read_index(engine.files, segment)
    source = Source(engine.files.open(segment.path))
    position = position_before(source, index, 60)
    first = next(iter(walk(source, start=position)))
    assert (valid, valid > 0) == (size, True)
    assert isinstance(first, FoundBatch)
    assert 40 < first.header.base_offset <= 60
    index.append(1000, segment.size, 2**62)
    assert position_before(source, index, 1000) == 0
