"""`tailrace log verify`: what it says of segments that are missing or were cut, and of gaps between them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.topic_config import TopicConfig
from tests.support.engine import ORDERS
from tests.unit.cli.directories import (
    BASES,
    BATCH_BYTES,
    LAST,
    SMALL_SEGMENTS,
    closed_directory,
    compacted_directory,
    cut,
    fill,
    messages,
    name_of,
    of_type,
    open_engine,
    run_json,
    verify,
)


def test_verify_reports_an_error_when_the_end_of_a_closed_log_is_cut_off(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    active = partition / name_of(40)
    cut(active, active.stat().st_size - 5)
    assert verify(tmp_path) == (1, [("error", active.name)])
    cut(active, 166)
    code, found = verify(tmp_path)
    assert (code, ("error", active.name) in found) == (1, True)
    assert "synced up to offset 52" in messages(tmp_path)


@pytest.mark.parametrize(("base", "last"), [(0, 19), (20, 39), (40, LAST)])
def test_verify_reports_one_error_with_its_offsets_when_a_segment_is_missing(
    tmp_path: Path, base: int, last: int
) -> None:
    (closed_directory(tmp_path) / name_of(base)).unlink()
    assert verify(tmp_path) == (1, [("error", "orders-0")])
    assert f"{name_of(base)} is missing, with offsets {base} to {last}" in messages(tmp_path)


def test_verify_reports_each_segment_once_when_all_are_missing(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    for base in BASES:
        (partition / name_of(base)).unlink()
    assert verify(tmp_path) == (1, [("error", "orders-0")] * 3)


def test_verify_is_quiet_when_retention_has_removed_the_first_segments(tmp_path: Path) -> None:
    engine = open_engine(tmp_path, replace(SMALL_SEGMENTS, retention_bytes=2500))
    fill(engine)
    log = engine.log()
    log.advance_high_watermark(log.end_offset)
    engine.tick(400_000)
    assert log.log_start_offset == 20
    engine.close()
    assert verify(tmp_path) == (0, [("note", "orders-0")])
    assert "files that the next start removes" in messages(tmp_path)


@pytest.mark.parametrize("size", [0, 2 * BATCH_BYTES, 2 * BATCH_BYTES + 30, 3 * BATCH_BYTES - 1])
def test_verify_tells_all_that_is_lost_once_when_a_closed_segment_was_cut(tmp_path: Path, size: int) -> None:
    segment = closed_directory(tmp_path) / name_of(0)
    cut(segment, size)
    code, found = verify(tmp_path)
    assert (code, [one for one in found if one[0] == "error"]) == (1, [("error", segment.name)])
    first = 2 * (size // BATCH_BYTES)
    assert f"Offsets {first} to 19 cannot be read" in messages(tmp_path)


def test_verify_reports_an_error_when_a_segment_of_a_compacted_log_was_cut(tmp_path: Path) -> None:
    partition = compacted_directory(tmp_path)
    *_, segment, _ = sorted(path for path in partition.glob("*.log") if path.stat().st_size)
    [first, *_] = of_type(run_json("dump", segment)[1], "batch")
    cut(segment, first["size"])
    code, found = verify(tmp_path)
    assert (code, [one for one in found if one[0] != "note"]) == (1, [("error", segment.name)])
    assert f"has {first['size']} bytes, where it had" in messages(tmp_path)


def test_verify_takes_gaps_for_errors_only_when_nothing_else_explains_them(tmp_path: Path) -> None:
    topic = TopicConfig.from_mapping({"cleanup.policy": "compact", "segment.bytes": "300"})
    engine = open_engine(tmp_path, topic)
    log = engine.log()
    for base in (0, 5, 6, 20, 30, 31):
        batch = encode_batch(values=[b"v"], keys=[b"k"], timestamps=0, base_offset=base, leader_epoch=0)
        log.append_as_follower(batch, now_ms=engine.now_ms)
    engine.close()
    assert verify(tmp_path) == (0, [])
    # Without the state, which knows where each segment's records ended, the log can only look compacted.
    (tmp_path / "orders-0" / "log-state.json").unlink()
    assert verify(tmp_path) == (0, [("warning", "log-state.json"), ("warning", name_of(6))])


def test_verify_reports_an_error_when_a_gap_is_all_that_tells_of_a_missing_segment(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    (partition / "log-state.json").unlink()
    (partition / name_of(20)).unlink()
    assert verify(tmp_path) == (1, [("warning", "log-state.json"), ("error", name_of(0))])
    assert "offsets 20 to 39 behind it are missing" in messages(tmp_path)


@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("size", [0, 166, 200, 700])
def test_verify_agrees_with_recovery_when_a_segment_was_cut_by_a_crash(
    tmp_path: Path, flush: str, base: int, size: int
) -> None:
    topic = replace(SMALL_SEGMENTS, flush=flush)
    engine = open_engine(tmp_path / "data", topic)
    fill(engine)
    for name in ("journal-0", "journal-1"):
        (tmp_path / "data" / name).unlink()
    cut(tmp_path / "data" / "orders-0" / name_of(base), size)
    shutil.copytree(tmp_path / "data", tmp_path / "recovered")
    code, _ = verify(tmp_path / "data")
    said = messages(tmp_path / "data")
    recovered = open_engine(tmp_path / "recovered", topic)
    [report] = recovered.report.directories.values()
    assert (code == 1) == (ORDERS in recovered.manager.corrupt)
    assert ("The next start cuts" in said) == (report.cut_bytes > 0)
    if report.cut_bytes:
        end = recovered.log().end_offset
        assert f"cuts {report.cut_bytes} bytes from offset {end} on" in said


def test_verify_only_notes_a_missing_last_segment_when_a_recovery_under_flush_os_may_have_removed_it(
    tmp_path: Path,
) -> None:
    engine = open_engine(tmp_path, replace(SMALL_SEGMENTS, flush="os"))
    fill(engine)
    (tmp_path / "orders-0" / name_of(40)).unlink()
    code, found = verify(tmp_path)
    assert (code, found[-1]) == (0, ("note", "orders-0"))
    assert f"{name_of(40)} is missing: with flush=os" in messages(tmp_path)


def test_verify_is_quiet_when_the_cleaner_has_removed_records(tmp_path: Path) -> None:
    compacted_directory(tmp_path)
    code, lines = run_json("verify", tmp_path)
    found = of_type(lines, "finding")
    assert code == 0
    assert [one for one in found if one["severity"] != "note"] == []
    assert of_type(lines, "summary")[0]["records"] < 40
