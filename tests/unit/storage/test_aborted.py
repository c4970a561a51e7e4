"""The index of aborted transactions against a list, and its file format against damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.storage.core.aborted import AbortedIndex, AbortedTransaction, decode_aborted


@st.composite
def histories(draw: st.DrawFn) -> list[AbortedTransaction]:
    """The aborted transactions of a log in which up to four producers take turns, by definition."""
    open_since: dict[int, int] = {}
    aborted = []
    turns = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
    for offset, (producer_id, outcome) in enumerate(turns):
        if producer_id not in open_since:
            open_since[producer_id] = offset
        elif outcome <= 1:
            first = open_since.pop(producer_id)
            if outcome == 0:
                stable = min(open_since.values(), default=offset + 1)
                aborted.append(AbortedTransaction(producer_id, first, offset, stable))
    return aborted


def build(transactions: list[AbortedTransaction]) -> AbortedIndex:
    index = AbortedIndex()
    for transaction in transactions:
        index.append(transaction)
    return index


SAMPLE = [
    AbortedTransaction(1, 0, 5, 3),
    AbortedTransaction(2, 3, 7, 6),
    AbortedTransaction(1, 6, 12, 10),
    AbortedTransaction(3, 10, 12, 13),
]


@given(histories(), st.integers(0, 41), st.integers(0, 41))
def test_overlapping_equals_linear_search_when_the_range_is_any(
    transactions: list[AbortedTransaction], start: int, end: int
) -> None:
    expected = [each for each in transactions if each.last_offset >= start and each.first_offset < end]
    assert build(transactions).overlapping(start, end) == expected


@given(histories(), st.integers(0, 40), st.integers(0, 41), st.integers(0, 41))
def test_segments_until_settled_find_all_when_the_log_is_split_anywhere(
    transactions: list[AbortedTransaction], split: int, start: int, end: int
) -> None:
    older = build([each for each in transactions if each.last_offset < split])
    newer = build([each for each in transactions if each.last_offset >= split])
    found = older.overlapping(start, end)
    if not older.settles(end):
        found += newer.overlapping(start, end)
    assert found == build(transactions).overlapping(start, end)


@given(histories(), st.integers(0, 41))
def test_truncate_keeps_markers_below_when_offset_is_anywhere(
    transactions: list[AbortedTransaction], offset: int
) -> None:
    index = build(transactions)
    index.truncate(offset)
    assert list(index) == [each for each in transactions if each.last_offset < offset]


@given(histories(), st.lists(st.integers(0, 40), max_size=3))
def test_index_is_read_back_when_written_in_any_frames(
    transactions: list[AbortedTransaction], cuts: list[int]
) -> None:
    data, written = b"", 0
    for bound in [*sorted(cuts), len(transactions)]:
        index = build(transactions[:bound])
        data += index.encode_frame(written)
        written = max(written, len(index))
    decoded, valid = decode_aborted(data)
    assert (list(decoded), valid) == (transactions, len(data))


@pytest.mark.parametrize(
    "transaction",
    [
        AbortedTransaction(-1, 13, 20, 21),
        AbortedTransaction(1, 20, 20, 21),
        AbortedTransaction(1, 13, 20, 22),
        AbortedTransaction(1, 12, 20, 21),
        AbortedTransaction(1, 13, 20, 12),
        AbortedTransaction(1, 5, 11, 12),
    ],
)
def test_append_and_decode_refuse_when_a_transaction_does_not_follow(transaction: AbortedTransaction) -> None:
    index = build(SAMPLE)
    good = index.encode_frame()
    with pytest.raises(ValueError, match="does not follow"):
        index.append(transaction)
    assert list(index) == SAMPLE
    index._entries.append(transaction)
    decoded, valid = decode_aborted(good + index.encode_frame(len(SAMPLE)))
    assert (list(decoded), valid) == (SAMPLE, len(good))


def test_decode_takes_whole_frames_only_when_the_file_is_cut_anywhere() -> None:
    data = build(SAMPLE[:2]).encode_frame() + build(SAMPLE).encode_frame(2)
    half = len(data) // 2
    for size in range(len(data) + 1):
        decoded, valid = decode_aborted(data[:size])
        assert valid == size // half * half
        assert list(decoded) == SAMPLE[: 2 * (size // half)]


def test_decode_stops_before_the_frame_when_any_byte_is_changed() -> None:
    first, second = build(SAMPLE[:2]).encode_frame(), build(SAMPLE).encode_frame(2)
    for at in range(len(second)):
        damaged = bytearray(second)
        damaged[at] ^= 0x40
        decoded, valid = decode_aborted(first + damaged)
        assert (list(decoded), valid) == (SAMPLE[:2], len(first))


@given(st.binary(max_size=200))
def test_decode_never_raises_when_given_garbage(garbage: bytes) -> None:
    frame = build(SAMPLE).encode_frame()
    for data in (garbage, frame + garbage, memoryview(frame + garbage)):
        assert decode_aborted(data)[1] in (0, len(frame))
    assert list(decode_aborted(frame + garbage)[0]) == SAMPLE


def test_index_settles_nothing_when_it_is_empty() -> None:
    index = AbortedIndex()
    assert not index.settles(0)
    assert index.overlapping(0, 100) == []
    assert index.encode_frame() == b""
    assert len(index) == 0


def test_search_goes_on_when_the_stable_offset_left_behind_is_the_last_one_sought() -> None:
    index = build(SAMPLE)
    assert index.overlapping(0, 4) == SAMPLE[:2]
    assert index.overlapping(0, 3) == SAMPLE[:1]
    assert build(SAMPLE[:1]).settles(3)
    assert not build(SAMPLE[:1]).settles(4)
