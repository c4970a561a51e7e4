"""Round trips of everything a batch can hold, against a plain model."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.batch import check_batch, leader_part
from tailrace.cluster.common.codecs import Codec, decompress
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch, Record, RecordHeaders, iterate_batches

INT64 = st.integers(-(2**63), 2**63 - 1)
STRINGS = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=250, max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
TIMESTAMPS = st.one_of(st.integers(1_700_000_000_000, 1_700_000_000_300), INT64)


class Row(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows, often many of them alike, so that constants and both sides of the size limits are met."""
    row = st.builds(
        Row,
        draw(st.sampled_from([st.just(7), TIMESTAMPS])),
        draw(st.sampled_from([st.none(), st.just(b"key"), STRINGS])),
        draw(st.sampled_from([st.none(), st.just(b"value"), STRINGS])),
        draw(st.sampled_from([st.just(()), HEADERS])),
    )
    rows = draw(st.lists(row, min_size=1, max_size=12))
    return rows * draw(st.sampled_from([1, 1, 7, 60]))


def encode(rows: list[Row], **fields: Any) -> bytes:
    return encode_batch(
        values=[row.value for row in rows],
        keys=[row.key for row in rows],
        timestamps=[row.timestamp for row in rows],
        headers=[row.headers for row in rows],
        **fields,
    )


def rows_of(batch: Batch) -> list[Row]:
    columns = batch.timestamps(), batch.keys(), batch.values(), batch.headers()
    return list(map(Row, *columns))


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from(list(Codec)), st.sampled_from([bytes, bytearray, memoryview]))
def test_batch_returns_the_same_records_when_encoded_and_decoded(
    rows: list[Row], codec: Codec, buffer: Any
) -> None:
    data = encode(rows, codec=codec, base_offset=5)
    header = check_batch(data)
    assert header.size == len(data)
    assert header.record_count == len(rows)
    if rows:
        assert header.base_timestamp == min(row.timestamp for row in rows)
        assert header.max_timestamp == max(row.timestamp for row in rows)
    batch = Batch(buffer(data))
    assert rows_of(batch) == rows
    expected = [Record("t", 3, 5 + index, *row) for index, row in enumerate(rows)]
    assert batch.records("t", 3) == expected
    assert all(type(record) is Record for record in batch.records("t", 3))


@settings(max_examples=150, deadline=None)
@given(tables(), st.sampled_from(list(Codec)), st.data())
def test_select_keeps_records_and_offsets_when_others_are_removed_again_and_again(
    rows: list[Row], codec: Codec, data: st.DataObject
) -> None:
    batch = Batch(
        encode(
            rows,
            codec=codec,
            base_offset=50,
            producer_id=4,
            producer_epoch=1,
            base_sequence=9,
            leader_epoch=2,
        )
    )
    original = batch.header
    alive = list(enumerate(rows, 50))
    for horizon in (1234, None):
        chosen = data.draw(st.lists(st.booleans(), min_size=len(alive), max_size=len(alive)))
        alive = [row for row, keep in zip(alive, chosen, strict=True) if keep]
        batch = Batch(batch.select(np.array(chosen, np.bool_), delete_horizon=horizon))
        assert list(batch.offsets()) == [offset for offset, _ in alive]
        assert rows_of(batch) == [row for _, row in alive]
        header = batch.header
        assert header.delete_horizon == 1234
        assert header.record_count == len(alive)
        for field in (
            "base_offset",
            "last_offset_delta",
            "leader_epoch",
            "producer_id",
            "producer_epoch",
            "base_sequence",
        ):
            assert getattr(header, field) == getattr(original, field)


def test_select_keeps_the_header_when_no_record_is_left() -> None:
    batch = Batch(
        encode_batch(
            values=[b"1", b"2"],
            timestamps=[10, 20],
            producer_id=3,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
            codec=Codec.LZ4,
        )
    )
    empty = Batch(batch.select(np.zeros(2, np.bool_)))
    assert (empty.header.record_count, empty.header.last_offset_delta, empty.header.last_sequence) == (
        0,
        1,
        1,
    )
    assert (empty.header.base_timestamp, empty.header.max_timestamp) == (10, 20)
    assert empty.header.is_transactional
    assert empty.records("t", 0) == []
    assert (empty.keys(), empty.values(), empty.timestamps(), empty.headers()) == ([], [], [], [])
    assert Batch(empty.select(np.zeros(0, np.bool_))).header == empty.header


def test_select_keeps_own_and_append_timestamps_when_the_leader_stamped_the_batch() -> None:
    sent = encode_batch(values=[b"1", b"2", b"3"], timestamps=[10, 30, 20])
    stored = leader_part(size=len(sent), base_offset=0, leader_epoch=0, append_timestamp=99) + sent[32:]
    batch = Batch(stored)
    assert batch.timestamps() == [99, 99, 99]
    assert batch.timestamp_array().tolist() == [99, 99, 99]
    kept = Batch(batch.select(np.array([True, False, True])))
    assert kept.timestamps() == [99, 99]
    assert (kept.header.base_timestamp, kept.header.max_timestamp) == (10, 20)


def test_select_changes_the_codec_when_asked() -> None:
    batch = Batch(encode_batch(values=[b"v" * 100] * 10, timestamps=0, codec=Codec.GZIP))
    assert Batch(batch.select(np.ones(10, np.bool_))).header.codec == Codec.GZIP
    assert Batch(batch.select(np.ones(10, np.bool_), codec=Codec.NONE)).header.codec == Codec.NONE


def test_select_refuses_a_mask_when_it_has_another_length() -> None:
    with pytest.raises(ValueError, match="2 elements for 1 records"):
        Batch(encode_batch(values=[b"v"], timestamps=0)).select(np.ones(2, np.bool_))


def test_iterate_batches_gives_each_batch_when_several_stand_together() -> None:
    emptied = Batch(encode_batch(values=[b"v"], timestamps=0)).select(np.zeros(1, np.bool_))
    parts = [emptied] + [
        encode_batch(values=[b"%d" % n] * n, timestamps=n, base_offset=n, codec=Codec(n % 5))
        for n in range(1, 9)
    ]
    for buffer in (b"".join(parts), memoryview(b"".join(parts)), bytearray(b"".join(parts))):
        batches = list(iterate_batches(buffer))
        assert [bytes(batch.data) for batch in batches] == parts
        assert [batch.values() for batch in batches] == [[b"%d" % n] * n for n in range(9)]
        assert [len(batch) for batch in batches] == list(range(9))
    assert list(iterate_batches(b"")) == []


def test_iterate_batches_raises_when_the_last_batch_is_not_whole() -> None:
    data = encode_batch(values=[b"v"], timestamps=0)
    for cut in range(1, len(data)):
        iterator = iterate_batches(data + data[:cut])
        assert next(iterator).values() == [b"v"]
        with pytest.raises(TailraceError, match="cut off") as caught:
            next(iterator)
        assert caught.value.code is ErrorCode.CORRUPT_BATCH


def test_batch_decompresses_once_when_several_columns_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from tailrace.cluster.common import records

    calls = []

    def counting(codec: int, data: Any, size: int) -> bytes:
        calls.append(size)
        return decompress(codec, data, size)

    monkeypatch.setattr(records, "decompress", counting)
    batch = Batch(encode_batch(values=[b"v" * 50] * 9, keys=[b"k"] * 9, timestamps=0, codec=Codec.ZSTD))
    assert calls == []
    batch.records("t", 0)
    batch.values()
    assert len(calls) == 1


def test_batch_trusts_a_given_header_when_the_caller_has_checked_it() -> None:
    data = bytearray(encode_batch(values=[b"value"], timestamps=0))
    header = check_batch(data)
    data[-1] ^= 1
    assert Batch(data, header).values() == [b"valud"]
    with pytest.raises(TailraceError, match="cut off"):
        Batch(data[:-1], header)
    with pytest.raises(TailraceError, match="checksum"):
        Batch(data)


def test_batch_says_what_it_is_when_printed() -> None:
    batch = Batch(encode_batch(values=[b"v"] * 3, timestamps=0, base_offset=7))
    assert repr(batch) == "Batch(3 records, offsets 7 to 9)"
