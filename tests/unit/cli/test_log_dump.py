"""`tailrace log dump`: what it shows of healthy logs, and how it gets past damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.clients.cli.output import human_size, iso_time, readable
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.types import TopicPartition
from tests.unit.cli.directories import (
    BASES,
    BATCH_BYTES,
    LAST,
    closed_directory,
    crashed_directory,
    cut,
    fill,
    flip,
    name_of,
    of_type,
    open_engine,
    run,
    run_json,
    undecodable_directory,
)


def test_dump_shows_every_batch_when_given_a_log_directory(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    fill(engine)
    fill(engine, TopicPartition("payments", 3))
    engine.close()
    code, lines = run_json("dump", tmp_path)
    batches = [line for line in of_type(lines, "batch") if line["log"] == "orders-0"]
    assert code == 0
    assert [line["log"] for line in of_type(lines, "partition")] == ["orders-0", "payments-3"]
    assert [line["base_offset"] for line in of_type(lines, "segment")] == [*BASES, *BASES]
    assert batches[0]["base_offset"] == 0
    assert [later["base_offset"] for later in batches[1:]] == [one["last_offset"] + 1 for one in batches[:-1]]
    assert batches[-1]["last_offset"] == LAST
    assert all(line["crc_ok"] and line["problem"] is None for line in batches)


def test_dump_gives_a_line_for_people_when_nothing_else_is_asked(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    lines = run("dump", tmp_path).stdout.splitlines()
    assert lines[0].startswith(f"orders-0  {tmp_path}/orders-0  topic id ")
    assert lines[1] == "segment 00000000000000000000.log  1.9 KiB"
    assert lines[2] == (
        "  offset 0-1  at 0  size 194  count 2  time 1970-01-01T00:16:40.000Z  codec none  "
        "producer 7 epoch 0 sequence 0-1  leader epoch 0  crc ok"
    )


def test_dump_decodes_markers_when_transactions_ended(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    _, lines = run_json("dump", tmp_path)
    assert [(one["offset"], one["kind"], one["producer_id"]) for one in of_type(lines, "marker")] == [
        (26, "abort", 8),
        (27, "commit", 9),
    ]
    text = run("dump", tmp_path).stdout
    assert "      26  abort  producer 8 epoch 0  coordinator epoch 0\n" in text
    assert "leader epoch 0  control  crc ok" in text
    assert "leader epoch 0  transactional  crc ok" in text


@pytest.mark.parametrize(
    ("format_name", "shown"),
    [("text", '{"n":0}'), ("json", {"n": 0}), ("hex", b'{"n":0}'.hex()), ("base64", "eyJuIjowfQ==")],
)
def test_dump_shows_values_as_asked_when_records_are_wanted(
    tmp_path: Path, format_name: str, shown: object
) -> None:
    closed_directory(tmp_path)
    _, lines = run_json("dump", tmp_path, "--records", "--value", format_name, "--key", "hex")
    records = of_type(lines, "record")
    assert (records[0]["offset"], records[0]["value"]) == (0, shown)
    assert (records[0]["key"], records[1]["key"]) == (b"key-0".hex(), None)
    assert len(records) == 50


def test_dump_shows_text_when_a_value_is_not_the_json_that_was_asked_for(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    _, lines = run_json("dump", tmp_path, "--records", "--value", "json", "--from", "1", "--limit", "1")
    assert [one["value"] for one in of_type(lines, "record")] == ["v" * 60]


def test_dump_keeps_to_the_range_when_offsets_are_given(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    _, lines = run_json("dump", tmp_path, "--from", "17", "--to", "23")
    assert [one["base_offset"] for one in of_type(lines, "batch")] == [16, 18, 20, 22]
    _, lines = run_json("dump", tmp_path, "--from", "17", "--to", "23", "--records")
    assert [one["offset"] for one in of_type(lines, "record")] == list(range(17, 23))
    _, lines = run_json("dump", tmp_path, "--from", "45")
    assert [one["base_offset"] for one in of_type(lines, "segment")] == [40]


def test_dump_stops_when_the_limit_is_reached(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    assert len(of_type(run_json("dump", tmp_path, "--limit", "12")[1], "batch")) == 12
    assert len(of_type(run_json("dump", tmp_path, "--limit", "3", "--records")[1], "record")) == 3


def test_dump_shows_derived_files_when_asked(tmp_path: Path) -> None:
    closed_directory(tmp_path)
    _, lines = run_json("dump", tmp_path, "--indexes", "--epochs", "--producers", "--limit", "1000")
    assert [(one["epoch"], one["start_offset"]) for one in of_type(lines, "epoch")] == [(0, 0), (3, 28)]
    entries = of_type(lines, "index_entry")
    positions = {(one["base_offset"], one["position"]) for one in of_type(lines, "batch")}
    assert {(one["offset"], one["position"]) for one in entries} <= positions
    [aborted] = of_type(lines, "aborted_transaction")
    assert (aborted["producer_id"], aborted["first_offset"], aborted["last_offset"]) == (8, 24, 26)
    assert [one["offset"] for one in of_type(lines, "snapshot")] == [20, 40, LAST + 1]
    assert {one["producer_id"] for one in of_type(lines, "producer")} == {7, 8, 9}
    text = run("dump", tmp_path, "--indexes", "--epochs", "--producers").stdout
    assert "  aborted transaction  producer 8  offset 24-26  last stable offset 25\n" in text
    assert "  leader epoch 3  from offset 28\n" in text


def test_dump_shows_headers_codecs_and_append_times_when_batches_have_them(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    batch = encode_batch(
        values=[b"v", None],
        timestamps=[1_700_000_000_000, 1_700_000_000_007],
        headers=[[("trace", b"abc"), ("empty", None)], []],
        codec=Codec.ZSTD,
    )
    engine.log().append_as_leader(batch, leader_epoch=2, now_ms=1_700_000_000_000)
    engine.close()
    text = run("dump", tmp_path, "--records").stdout
    assert "time 2023-11-14T22:13:20.000Z..2023-11-14T22:13:20.007Z  codec zstd  leader epoch 2" in text
    assert "      0  2023-11-14T22:13:20.000Z  key null  value v  headers trace=abc, empty=null\n" in text
    assert "      1  2023-11-14T22:13:20.007Z  key null  value null\n" in text


def test_dump_reads_one_file_when_given_a_segment(tmp_path: Path) -> None:
    segment = closed_directory(tmp_path) / name_of(20)
    _, lines = run_json("dump", segment)
    assert {line["type"] for line in lines} == {"segment", "batch", "marker"}
    assert of_type(lines, "batch")[0]["base_offset"] == 20
    away = tmp_path / (name_of(20) + ".deleted")
    segment.rename(away)
    assert len(of_type(run_json("dump", away)[1], "batch")) == len(of_type(lines, "batch"))


# Damage.


def test_dump_goes_on_behind_it_when_a_header_is_damaged(tmp_path: Path) -> None:
    segment = closed_directory(tmp_path) / name_of(0)
    flip(segment, BATCH_BYTES)
    code, lines = run_json("dump", tmp_path)
    [damage] = of_type(lines, "damage")
    assert code == 1
    assert (damage["path"], damage["position"]) == (str(segment), BATCH_BYTES)
    assert (damage["code"], damage["resumes_at"]) == ("STORAGE_CORRUPT", 2 * BATCH_BYTES)
    assert [one["base_offset"] for one in of_type(lines, "batch")[:3]] == [0, 4, 6]
    text = run("dump", tmp_path).stdout
    assert f"DAMAGED {segment.name} at byte {BATCH_BYTES}: STORAGE_CORRUPT: the batch has header" in text
    assert f"the next batch found is at byte {2 * BATCH_BYTES}\n" in text


def test_dump_finds_the_next_batch_when_not_even_the_size_is_right(tmp_path: Path) -> None:
    segment = closed_directory(tmp_path) / name_of(0)
    data = segment.read_bytes()
    segment.write_bytes(data[:BATCH_BYTES] + b"\xff" * 301 + data[BATCH_BYTES + 301 :])
    code, lines = run_json("dump", segment)
    [damage] = of_type(lines, "damage")
    assert (code, damage["resumes_at"]) == (1, 3 * BATCH_BYTES)
    assert [one["base_offset"] for one in of_type(lines, "batch")] == [0, *range(6, 20, 2)]


def test_dump_marks_the_batch_and_shows_none_of_its_records_when_a_body_is_damaged(tmp_path: Path) -> None:
    segment = closed_directory(tmp_path) / name_of(0)
    flip(segment, 2 * BATCH_BYTES - 1)
    code, lines = run_json("dump", segment, "--records")
    bad = of_type(lines, "batch")[1]
    assert (code, bad["crc_ok"], "checksum" in bad["problem"]) == (1, False, True)
    assert (bad["path"], bad["position"], bad["code"]) == (str(segment), BATCH_BYTES, "STORAGE_CORRUPT")
    assert of_type(lines, "batch")[0]["code"] is None
    assert [one["offset"] for one in of_type(lines, "record")] == [0, 1, *range(4, 20)]
    shown = f"crc BAD  DAMAGED {segment.name} at byte {BATCH_BYTES}: STORAGE_CORRUPT: the batch has checksum"
    assert shown in run("dump", segment).stdout


def test_dump_does_not_blame_the_storage_when_a_batch_was_sent_so_that_nobody_can_decode_it(
    tmp_path: Path,
) -> None:
    undecodable_directory(tmp_path)
    code, lines = run_json("dump", tmp_path, "--records")
    [damage] = of_type(lines, "damage")
    assert (code, damage["code"], damage["position"]) == (1, "CORRUPT_BATCH", 0)
    assert "its checksum is right" in damage["problem"]


def test_dump_shows_the_torn_end_when_a_write_was_interrupted(tmp_path: Path) -> None:
    active = crashed_directory(tmp_path) / name_of(40)
    cut(active, active.stat().st_size - 100)
    code, lines = run_json("dump", active)
    [damage] = of_type(lines, "damage")
    assert (code, damage["resumes_at"]) == (1, None)
    assert damage["problem"] == "67 bytes are too few for a batch"
    active.write_bytes(active.read_bytes()[: damage["position"]] + bytes(4096))
    code, lines = run_json("dump", active)
    assert (code, of_type(lines, "damage"), of_type(lines, "reserved")[0]["size"]) == (0, [], 4096)


def test_dump_names_the_damage_when_derived_files_are_damaged(tmp_path: Path) -> None:
    partition = closed_directory(tmp_path)
    names = ["partition.json", "log-state.json"]
    names += [name_of(20, suffix) for suffix in (".producers", ".index", ".txnindex")]
    for name in names:
        flip(partition / name, 30)
    code, lines = run_json("dump", tmp_path, "--indexes", "--epochs", "--producers")
    assert code == 1
    assert [Path(one["path"]).name for one in of_type(lines, "damage")] == names
    assert len(of_type(lines, "batch")) == 28


# Asking wrongly.


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--from", "5", "--to", "5"], "must be larger than --from"),
        (["--from", "-1"], "--from"),
        (["--limit", "0"], "--limit"),
        (["--value", "xml"], "--value"),
        (["--what"], "--what"),
    ],
)
def test_dump_says_which_option_is_wrong_when_one_is(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    closed_directory(tmp_path)
    result = run("dump", tmp_path, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_dump_says_what_it_wants_when_there_is_no_such_path(tmp_path: Path) -> None:
    result = run("dump", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"tailrace: {tmp_path / 'nowhere'} does not exist. Give a log directory")
    empty = run("dump", "")
    assert (empty.exit_code, empty.stdout) == (2, "")
    assert empty.stderr.startswith("tailrace: the path is empty. Give a log directory")


# Showing.


def test_text_is_harmless_when_it_holds_control_characters() -> None:
    assert readable("\x1b[31mred\n\u202e\u00fc") == "\\x1b[31mred\\n\\u202eü"


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (2**62, f"{2**62}ms"),
    ],
)
def test_time_is_utc_or_the_number_when_no_calendar_has_it(timestamp: int, shown: str) -> None:
    assert iso_time(timestamp) == shown


def test_sizes_get_units_when_they_are_large() -> None:
    assert [human_size(size) for size in (0, 1023, 1024, 3 << 29, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "5.0 TiB",
    ]
