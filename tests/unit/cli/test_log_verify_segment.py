"""`tailrace log verify` on one segment file: in its place in a log, and as a copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailrace.cluster.storage.core.index import SparseIndex
from tests.unit.cli.directories import (
    BASES,
    BATCH_BYTES,
    closed_directory,
    crashed_directory,
    cut,
    flip,
    messages,
    name_of,
    of_type,
    run,
    run_json,
    verify,
)


@pytest.mark.parametrize(("base", "batches"), list(zip(BASES, (10, 12, 6), strict=True)))
def test_verify_counts_one_file_when_a_segment_is_whole(tmp_path: Path, base: int, batches: int) -> None:
    segment = closed_directory(tmp_path) / name_of(base)
    code, lines = run_json("verify", segment)
    [counted, summary] = lines
    assert (code, counted["type"], counted["name"]) == (0, "segment", segment.name)
    assert (counted["start_offset"], counted["batches"]) == (base, batches)
    assert (summary["partitions"], summary["segments"]) == (0, 1)
    assert summary["bytes"] == segment.stat().st_size
    assert "1 segment" in run("verify", segment).stdout


def test_verify_says_the_same_of_a_segment_as_of_its_directory_when_a_batch_is_damaged(
    tmp_path: Path,
) -> None:
    partition = closed_directory(tmp_path)
    flip(partition / name_of(20), 100)
    alone = of_type(run_json("verify", partition / name_of(20))[1], "finding")
    assert alone == of_type(run_json("verify", tmp_path)[1], "finding")
    assert (alone[0]["severity"], alone[0]["position"]) == ("error", 0)
    assert verify(partition / name_of(0)) == (0, [])


def test_verify_checks_the_indexes_beside_a_segment_when_they_are_there(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    wrong = SparseIndex(0)
    wrong.append(4, 2 * BATCH_BYTES + 1, 1_000_000)
    (partition / name_of(0, ".index")).write_bytes(wrong.encode_frame())
    flip(partition / name_of(20, ".txnindex"), 12)
    assert verify(partition / name_of(0)) == (1, [("error", name_of(0, ".index"))])
    assert verify(partition / name_of(20)) == (0, [("warning", name_of(20, ".txnindex"))])


def test_verify_tells_all_that_is_lost_when_a_segment_was_cut(tmp_path: Path) -> None:
    segment = closed_directory(tmp_path) / name_of(0)
    cut(segment, 2 * BATCH_BYTES)
    code, found = verify(segment)
    assert (code, found[-1]) == (1, ("error", segment.name))
    assert "Offsets 4 to 19 cannot be read" in messages(segment)


def test_verify_only_notes_a_torn_end_of_a_segment_when_its_node_crashed(tmp_path: Path) -> None:
    active = crashed_directory(tmp_path, keep_journal=False) / name_of(40)
    cut(active, active.stat().st_size - 5)
    assert verify(active) == (0, [("note", active.name)])
    assert "The next start cuts 162 bytes from offset 50 on" in messages(active)


def test_verify_leaves_out_what_is_wrong_with_other_files_when_given_a_segment(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    (partition / name_of(20)).unlink()
    flip(tmp_path / "checkpoint.json", 40)
    flip(partition / "partition.json", 40)
    assert verify(partition / name_of(40)) == (0, [])


@pytest.mark.parametrize("name", [name_of(20), name_of(20) + ".deleted", name_of(20) + ".swap"])
def test_verify_calls_everything_broken_an_error_when_the_segment_is_a_copy(
    tmp_path: Path, name: str
) -> None:
    away = tmp_path / "away" / name
    away.parent.mkdir()
    shutil.copy(closed_directory(tmp_path / "data") / name_of(20), away)
    assert verify(away) == (0, [])
    whole = away.read_bytes()
    away.write_bytes(whole + bytes(300))
    assert verify(away) == (0, [("note", name)])
    assert messages(away) == "300 zero bytes at the end are space reserved for writes, or a torn end"
    away.write_bytes(whole[:-5])
    assert verify(away) == (1, [("error", name)])
    flip(away, 100)
    assert verify(away) == (1, [("error", name)] * 2)


def test_verify_looks_at_the_log_around_it_when_the_path_is_only_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = closed_directory(tmp_path)
    monkeypatch.chdir(partition)
    assert verify(Path()) == (0, [])
    cut(partition / name_of(0), 0)
    code, found = verify(Path(name_of(0)))
    assert (code, found[-1]) == (1, ("error", name_of(0)))
    assert "Offsets 0 to 19 cannot be read" in messages(Path(name_of(0)))
