"""Arrow in both directions, against the records that Python sees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.arrow import SCHEMA, encode_arrow, to_arrow
from tailrace.cluster.common.batch import leader_part
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch
from tests.unit.common.test_records import Row, encode, tables


def with_arrow_timestamps(rows: list[Row]) -> list[Row]:
    return [row._replace(timestamp=row.timestamp % 10**15) for row in rows]


def rows_of(table: Any) -> list[Row]:
    return [
        Row(
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"]),
        )
        for row in table.set_column(5, "timestamp", table["timestamp"].cast(pa.int64())).to_pylist()
    ]


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(tables(), st.sampled_from(list(Codec)), st.booleans()), max_size=4))
def test_to_arrow_gives_the_records_of_all_batches_when_there_are_several(
    parts: list[tuple[list[Row], Codec, bool]],
) -> None:
    batches = []
    expected = []
    offsets = []
    for number, (rows, codec, selected) in enumerate(parts):
        chosen = with_arrow_timestamps(rows)
        batch = Batch(encode(chosen, codec=codec, base_offset=number * 10_000))
        keep = np.arange(len(chosen)) % 3 != 1 if selected else np.ones(len(chosen), np.bool_)
        batches.append(Batch(batch.select(keep)))
        expected += [row for row, kept in zip(chosen, keep, strict=True) if kept]
        offsets += list(batches[-1].offsets())
    table = to_arrow(batches, "topic", 5, include_headers=True)
    table.validate(full=True)
    assert rows_of(table) == [row._replace(timestamp=row.timestamp * 1000) for row in expected]
    assert table["offset"].to_pylist() == offsets
    assert table["topic"].to_pylist() == ["topic"] * len(expected)
    assert table["partition"].to_pylist() == [5] * len(expected)
    assert table["timestampType"].to_pylist() == [0] * len(expected)


@settings(max_examples=120, deadline=None)
@given(tables(), st.sampled_from(list(Codec)), st.integers(0, 3))
def test_encode_arrow_writes_the_same_batch_as_encode_batch_when_columns_are_alike(
    rows: list[Row], codec: Codec, cut: int
) -> None:
    header_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {
        "values": pa.array([row.value for row in rows], pa.binary()),
        "keys": pa.array([row.key for row in rows], pa.large_binary()),
        "timestamps": pa.array([row.timestamp for row in rows], pa.int64()),
        "headers": pa.array(
            [[{"key": name, "value": value} for name, value in row.headers] for row in rows], header_type
        ),
    }
    if cut < len(rows):
        sliced = {name: column.slice(cut) for name, column in columns.items()}
        assert encode_arrow(**sliced, codec=codec, base_offset=3) == encode(
            rows[cut:], codec=codec, base_offset=3
        )
    chunked = {name: pa.chunked_array([column, column]) for name, column in columns.items()}
    assert encode_arrow(**chunked, codec=codec) == encode(rows * 2, codec=codec)


def test_to_arrow_has_the_columns_of_sparks_kafka_source_when_called() -> None:
    table = to_arrow([Batch(encode_batch(values=[b"v"], timestamps=0))], "t", 0)
    assert table.schema == SCHEMA
    assert [(field.name, str(field.type), field.nullable) for field in table.schema] == [
        ("key", "binary", True),
        ("value", "binary", True),
        ("topic", "string", True),
        ("partition", "int32", True),
        ("offset", "int64", True),
        ("timestamp", "timestamp[us, tz=UTC]", True),
        ("timestampType", "int32", True),
    ]
    with_headers = to_arrow([Batch(encode_batch(values=[b"v"], timestamps=0))], "t", 0, include_headers=True)
    assert str(with_headers.schema.field("headers").type) == "list<item: struct<key: string, value: binary>>"


@pytest.mark.parametrize("include_headers", [False, True])
def test_to_arrow_gives_no_rows_when_there_are_no_records(include_headers: bool) -> None:
    emptied = Batch(Batch(encode_batch(values=[b"v"], timestamps=0)).select(np.zeros(1, np.bool_)))
    for batches in ([], [emptied], [emptied, emptied]):
        table = to_arrow(batches, "t", 0, include_headers=include_headers)
        table.validate(full=True)
        assert table.num_rows == 0


@pytest.mark.parametrize("sizes", [(50, 50), (50, 60)])
@pytest.mark.parametrize("buffer", [bytes, memoryview])
def test_to_arrow_copies_no_values_when_one_batch_is_uncompressed(
    sizes: tuple[int, int], buffer: Any
) -> None:
    data = encode_batch(values=[b"v" * size for size in sizes], keys=[b"k", b"kk"], timestamps=0)
    where = np.frombuffer(data, np.uint8).ctypes.data
    table = to_arrow([Batch(buffer(data))], "t", 0)
    for name in ("key", "value"):
        address = table[name].buffers()[2].address
        assert where < address < where + len(data)
    del data
    assert table["value"].to_pylist() == [b"v" * size for size in sizes]


def test_to_arrow_marks_append_time_when_the_leader_stamped_a_batch() -> None:
    sent = encode_batch(values=[b"1", b"2"], timestamps=[10, 30])
    stamped = leader_part(size=len(sent), base_offset=0, leader_epoch=0, append_timestamp=99) + sent[32:]
    assert to_arrow([Batch(stamped)], "t", 0)["timestampType"].to_pylist() == [1, 1]
    table = to_arrow([Batch(sent), Batch(stamped)], "t", 0)
    assert table["timestampType"].to_pylist() == [0, 0, 1, 1]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [10_000, 30_000, 99_000, 99_000]


def test_to_arrow_serves_more_rows_than_it_keeps_when_batches_are_large() -> None:
    batch = Batch(encode_batch(values=[None] * 20_000, timestamps=0))
    table = to_arrow([batch], "tópico", 7)
    table.validate(full=True)
    assert set(table["topic"].to_pylist()) == {"tópico"}
    assert set(table["partition"].to_pylist()) == {7}
    assert table.num_rows == 20_000


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), 9_223_372_036_854_776])
def test_to_arrow_raises_invalid_timestamp_when_microseconds_do_not_fit(timestamp: int) -> None:
    with pytest.raises(TailraceError) as caught:
        to_arrow([Batch(encode_batch(values=[b"v"], timestamps=timestamp))], "t", 0)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_to_arrow_raises_too_large_when_a_column_would_exceed_two_gibibytes() -> None:
    batch = Batch(encode_batch(values=[bytes(1 << 20)], timestamps=0, codec=Codec.LZ4))
    with pytest.raises(TailraceError, match="pass fewer batches") as caught:
        to_arrow([batch] * 2049, "t", 0)
    assert caught.value.code is ErrorCode.RECORD_TOO_LARGE


def test_encode_arrow_takes_text_and_fixed_sizes_when_given_as_values() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary(2)):
        data = encode_arrow(values=pa.array([b"ab", None, b"cd"], pa.binary()).cast(kind), timestamps=5)
        assert Batch(data).values() == [b"ab", None, b"cd"]
    assert Batch(encode_arrow(values=pa.nulls(2), timestamps=5)).values() == [None, None]


def test_encode_arrow_hides_bytes_when_they_stand_under_nulls() -> None:
    offsets = pa.py_buffer(np.array([0, 3, 6, 9], np.int32))
    values = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\5"), offsets, pa.py_buffer(b"abcXXXdef")])
    data = encode_arrow(values=values, timestamps=5)
    assert b"XXX" not in data
    assert Batch(data).values() == [b"abc", None, b"def"]


def test_encode_arrow_takes_records_without_headers_when_their_lists_are_null() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = pa.array([None, [{"key": "h", "value": b"1"}], None], kind)
    data = encode_arrow(values=pa.nulls(3), timestamps=5, headers=headers)
    assert Batch(data).headers() == [(), (("h", b"1"),), ()]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_encode_arrow_takes_timestamps_of_any_unit_when_given_as_timestamps(unit: str) -> None:
    timestamps = pa.array([1_000, 61_000], pa.timestamp("ms", tz="UTC")).cast(pa.timestamp(unit, tz="UTC"))
    data = encode_arrow(values=pa.nulls(2), timestamps=timestamps)
    assert Batch(data).timestamps() == [1_000, 61_000]


HEADER_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"values": pa.array([1])}, "values are Arrow binary or string, not int64"),
        ({"values": pa.array([], pa.binary())}, "at least one record"),
        ({"values": [b"v"]}, "values are an Arrow array, not list"),
        ({"values": None}, "values are an Arrow array, not NoneType"),
        ({"keys": [b"k"]}, "keys are an Arrow array, not list"),
        ({"headers": [[]]}, "headers are an Arrow array, not list"),
        ({"timestamps": 1.5}, "timestamps are one integer or an array of them, not 1.5"),
        ({"timestamps": ["x"]}, "timestamps are integers"),
        ({"producer_id": "7"}, "producer_id is '7'; it must be an integer"),
        ({"keys": pa.array([1])}, "keys are Arrow binary or string, not int64"),
        ({"keys": pa.nulls(2)}, "2 keys for 1 values"),
        ({"timestamps": pa.array([1.5])}, "timestamps are integers"),
        ({"timestamps": np.array([1.5])}, "timestamps are integers"),
        ({"timestamps": pa.array([None], pa.int64())}, "never null"),
        ({"timestamps": np.array([1, 2])}, "2 timestamps for 1 values"),
        ({"headers": pa.array([["a"]])}, "headers are list<struct"),
        ({"headers": pa.array([[{"key": None, "value": b"1"}]], HEADER_TYPE)}, "never null"),
        ({"headers": pa.array([[None]], HEADER_TYPE)}, "never null"),
        ({"headers": pa.array([[{"key": b"k", "value": b"1"}]])}, "header names are Arrow strings"),
    ],
)
def test_encode_arrow_says_what_is_wrong_when_a_column_does_not_fit(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(TailraceError, match=text) as caught:
        encode_arrow(**{"values": pa.array([b"v"]), "timestamps": 0, **arguments})
    assert caught.value.code is ErrorCode.INVALID_RECORD
