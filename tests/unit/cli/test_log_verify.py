"""`tailrace log verify`: each kind of damage, and what it is called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tailrace.cluster.storage.core.aborted import AbortedIndex, decode_aborted
from tailrace.cluster.storage.core.index import SparseIndex
from tests.support.engine import ORDERS
from tests.unit.cli.directories import (
    BASES,
    BATCH_BYTES,
    LAST,
    closed_directory,
    crashed_directory,
    cut,
    flip,
    messages,
    name_of,
    of_type,
    open_engine,
    run,
    run_json,
    undecodable_directory,
    verify,
)

# Healthy.


def test_verify_finds_nothing_when_the_directory_was_closed(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    code, lines = run_json("verify", tmp_path)
    [partition] = of_type(lines, "partition")
    [summary] = of_type(lines, "summary")
    assert (code, of_type(lines, "finding")) == (0, [])
    assert (partition["log"], partition["start_offset"], partition["end_offset"]) == ("orders-0", 0, LAST + 1)
    assert (summary["partitions"], summary["segments"], summary["batches"]) == (1, 3, 28)
    assert (summary["records"], summary["errors"], summary["warnings"]) == (50, 0, 0)
    assert summary["bytes"] == sum(path.stat().st_size for path in (tmp_path / "orders-0").glob("*.log"))


def test_verify_shows_a_table_when_people_read_it(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    result = run("verify", tmp_path)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].split() == ["partition", "segments", "batches", "records", "size", "errors", "warnings"]
    assert lines[1].split()[:4] == ["orders-0", "3", "28", "50"]


def test_verify_only_notes_that_recovery_is_due_when_the_directory_is_in_use(tmp_path: Path) -> None:
    crashed_directory(tmp_path)
    code, found = verify(tmp_path)
    assert (code, {severity for severity, _ in found}) == (0, {"note"})
    assert "in use" in messages(tmp_path)


def test_verify_changes_no_file_when_it_runs(tmp_path: Path) -> None:
    crashed_directory(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    run("verify", tmp_path)
    run("dump", tmp_path)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == before
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(files)


def test_verify_reads_the_checkpoint_above_when_given_one_partition(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    assert verify(partition) == (0, [])
    alone = tmp_path / "elsewhere" / "orders-0"
    shutil.copytree(partition, alone)
    assert verify(alone) == (0, [("note", "orders-0")])


# Damaged batches.


@pytest.mark.parametrize("at", [3, 9, 26, 30], ids=["offset", "size", "span", "checksum"])
def test_verify_reports_an_error_when_a_batch_header_is_damaged(tmp_path: Path, at: int) -> None:
    partition = closed_directory(tmp_path)
    flip(partition / name_of(0), 2 * BATCH_BYTES + at)
    code, lines = run_json("verify", tmp_path)
    [finding] = of_type(lines, "finding")
    assert code == 1
    assert (finding["severity"], finding["position"]) == ("error", 2 * BATCH_BYTES)
    assert "Offsets 4 to 5 cannot be read" in finding["message"]
    assert of_type(lines, "summary")[0]["batches"] == 27


@pytest.mark.parametrize("at", [34, 40, 100, BATCH_BYTES - 1])
def test_verify_reports_an_error_when_a_batch_body_is_damaged(tmp_path: Path, at: int) -> None:
    partition = closed_directory(tmp_path)
    flip(partition / name_of(20), at)
    code, lines = run_json("verify", tmp_path)
    [finding] = of_type(lines, "finding")
    assert (code, finding["severity"], finding["position"]) == (1, "error", 0)


def test_verify_reports_an_error_when_segments_overlap(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    shutil.copy(partition / name_of(0), partition / name_of(10))
    code, found = verify(tmp_path)
    assert code == 1
    assert ("error", name_of(10)) in found


def test_verify_reports_an_error_when_records_cannot_be_decoded(tmp_path: Path) -> None:
    undecodable_directory(tmp_path)
    assert verify(tmp_path) == (1, [("error", name_of(0))])
    assert "stored as it was sent" in messages(tmp_path)
    assert verify(tmp_path, "--shallow") == (0, [])


# Crashes.


def test_verify_only_notes_a_torn_end_when_the_node_crashed(tmp_path: Path) -> None:
    partition = crashed_directory(tmp_path, keep_journal=False)
    active = partition / name_of(40)
    size = active.stat().st_size
    cut(active, size - 5)
    code, lines = run_json("verify", tmp_path)
    torn = of_type(lines, "finding")[-1]
    assert (code, torn["severity"], torn["position"]) == (0, "note", size - 167)
    assert "cuts 162 bytes from offset 50 on" in torn["message"]


def test_verify_lays_the_journal_over_segments_when_the_node_crashed(tmp_path: Path) -> None:
    partition = crashed_directory(tmp_path)
    for base in BASES:
        cut(partition / name_of(base), 0)
    code, lines = run_json("verify", tmp_path)
    summary = of_type(lines, "summary")[0]
    assert (code, summary["batches"], summary["warnings"]) == (0, 28, 0)


def test_verify_only_notes_zeros_when_space_was_reserved(tmp_path: Path) -> None:
    partition = crashed_directory(tmp_path, keep_journal=False)
    active = partition / name_of(40)
    active.write_bytes(active.read_bytes() + bytes(5000))
    code, lines = run_json("verify", tmp_path)
    assert (code, of_type(lines, "summary")[0]["errors"]) == (0, 0)
    assert "5000 zero bytes" in of_type(lines, "finding")[-1]["message"]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("batch", [0, 2, 5])
@pytest.mark.parametrize("at", [1, 9, 50, 120])
def test_verify_agrees_with_recovery_when_a_bit_flips_after_a_crash(
    tmp_path: Path, base: int, batch: int, at: int
) -> None:
    partition = crashed_directory(tmp_path / "data", keep_journal=False)
    segment = partition / name_of(base)
    _, lines = run_json("dump", segment)
    flip(segment, of_type(lines, "batch")[batch]["position"] + at % of_type(lines, "batch")[batch]["size"])
    shutil.copytree(tmp_path / "data", tmp_path / "recovered")
    code, lines = run_json("verify", tmp_path / "data")
    recovered = open_engine(tmp_path / "recovered")
    [report] = recovered.report.directories.values()
    notes = [one["message"] for one in of_type(lines, "finding") if "torn end" in one["message"]]
    assert (code == 1) == (ORDERS in recovered.manager.corrupt)
    assert bool(notes) == (report.cut_bytes > 0)
    if notes:
        assert f"cuts {report.cut_bytes} bytes" in notes[0]


# Derived and state files.


def test_verify_warns_when_an_index_is_damaged_or_missing(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    flip(partition / name_of(0, ".index"), 20)
    (partition / name_of(20, ".index")).unlink()
    assert verify(tmp_path) == (0, [("warning", name_of(0, ".index")), ("warning", name_of(20))])


def test_verify_reports_an_error_when_an_index_is_whole_but_wrong(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    index = SparseIndex(0)
    index.append(0, 0, 1_000_000)
    index.append(4, 2 * BATCH_BYTES + 1, 1_000_000)
    (partition / name_of(0, ".index")).write_bytes(index.encode_frame())
    assert verify(tmp_path) == (1, [("error", name_of(0, ".index"))])
    assert "offset 4 is at byte 389" in messages(tmp_path)


def test_verify_warns_when_a_transaction_index_is_damaged_or_missing(tmp_path: Path) -> None:
    path = closed_directory(tmp_path) / name_of(20, ".txnindex")
    flip(path, 12)
    assert verify(tmp_path) == (0, [("warning", path.name)])
    path.unlink()
    assert verify(tmp_path) == (0, [("warning", path.name)])


def test_verify_reports_errors_when_a_transaction_index_is_whole_but_wrong(tmp_path: Path) -> None:
    path = closed_directory(tmp_path) / name_of(20, ".txnindex")
    [aborted] = decode_aborted(path.read_bytes())[0]
    index = AbortedIndex()
    index.append(aborted._replace(producer_id=9))
    path.write_bytes(index.encode_frame())
    assert verify(tmp_path) == (1, [("error", path.name)] * 2)
    assert "does not list the transaction of producer 8" in messages(tmp_path)
    assert "lists a transaction of producer 9" in messages(tmp_path)


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("directory.json", "error"),
        ("checkpoint.json", "warning"),
        ("orders-0/partition.json", "error"),
        ("orders-0/log-state.json", "warning"),
        (f"orders-0/{name_of(40, '.producers')}", "warning"),
    ],
)
@pytest.mark.parametrize("at", [1, 40, -3])
def test_verify_tells_which_file_when_a_state_file_is_damaged(
    tmp_path: Path, name: str, severity: str, at: int
) -> None:
    closed_directory(tmp_path)
    flip(tmp_path / name, at)
    code, found = verify(tmp_path)
    assert code == (1 if severity == "error" else 0)
    assert (severity, Path(name).name) in found
    assert {one for one, _ in found} <= {severity, "note"}


def test_verify_reports_an_error_when_partition_json_is_missing(tmp_path: Path) -> None:
    (closed_directory(tmp_path) / "partition.json").unlink()
    assert verify(tmp_path) == (1, [("error", "partition.json")])


def test_verify_names_what_it_leaves_out_when_partitions_were_set_aside(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    shutil.copytree(partition, tmp_path / "orders-0.0-corrupt")
    shutil.copytree(partition, tmp_path / "orders-1.abc-delete")
    (partition / (name_of(0) + ".deleted")).write_bytes(b"")
    code, found = verify(tmp_path)
    assert code == 0
    assert found == [("note", "orders-0.0-corrupt"), ("note", "orders-1.abc-delete"), ("note", "orders-0")]


# Asking wrongly.


def test_verify_says_what_it_wants_when_the_path_is_no_log(tmp_path: Path) -> None:
    missing = run("verify", tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert f"{tmp_path / 'nowhere'} does not exist. Give a log directory" in missing.stderr
    empty = run("verify", tmp_path)
    assert (empty.exit_code, "holds no log" in empty.stderr) == (2, True)
    (tmp_path / "notes.txt").write_text("hello")
    other = run("verify", tmp_path / "notes.txt")
    assert (other.exit_code, "not a segment" in other.stderr) == (2, True)

    nothing = run("verify", "")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "the path is empty. Give a log directory" in nothing.stderr
