"""The sparse index against linear search, and its file format against damage."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.storage.core.index import IndexEntry, IndexFullError, SparseIndex, decode_index

Batch = tuple[int, int, int]  # offset, position, own largest timestamp


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, list[Batch], list[bool]]:
    """A segment's base offset, its batches, and which of them are indexed."""
    base = draw(st.integers(0, 2**40))
    steps = draw(
        st.lists(
            st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(-1, 12), st.booleans()), max_size=25
        )
    )
    offset, position = base + draw(st.integers(0, 3)), 0
    batches, indexed = [], []
    for offset_step, size, timestamp, is_indexed in steps:
        batches.append((offset, position, timestamp))
        indexed.append(is_indexed)
        offset += offset_step
        position += size
    return base, batches, indexed


def build(base: int, batches: list[Batch], indexed: list[bool]) -> SparseIndex:
    index = SparseIndex(base)
    largest = -1
    for (offset, position, timestamp), is_indexed in zip(batches, indexed, strict=True):
        largest = max(largest, timestamp)
        if is_indexed:
            index.append(offset, position, largest)
    return index


def sample(base: int = 100, count: int = 6) -> SparseIndex:
    index = SparseIndex(base)
    for number in range(count):
        index.append(base + 10 * number, 4096 * number, 1000 + number // 2)
    return index


@given(segments(), st.integers(-3, 150))
def test_floor_offset_equals_linear_search_when_offset_is_anywhere(
    segment: tuple[int, list[Batch], list[bool]], relative: int
) -> None:
    base, batches, indexed = segment
    below = [
        (offset, position)
        for (offset, position, _), is_indexed in zip(batches, indexed, strict=True)
        if is_indexed and offset <= base + relative
    ]
    assert build(*segment).floor_offset(base + relative) == (below[-1] if below else None)


@given(segments(), st.integers(-3, 250))
def test_floor_position_equals_linear_search_when_position_is_anywhere(
    segment: tuple[int, list[Batch], list[bool]], position: int
) -> None:
    _, batches, indexed = segment
    below = [
        (offset, at)
        for (offset, at, _), is_indexed in zip(batches, indexed, strict=True)
        if is_indexed and at <= position
    ]
    assert build(*segment).floor_position(position) == (below[-1] if below else None)


@given(segments(), st.integers(-2, 14))
def test_first_reaching_never_steps_over_the_first_batch_when_timestamps_are_in_any_order(
    segment: tuple[int, list[Batch], list[bool]], timestamp: int
) -> None:
    _, batches, indexed = segment
    found = build(*segment).first_reaching(timestamp)
    start = found[1] if found else 0
    sought = next((position for _, position, own in batches if own >= timestamp), None)
    scanned = next((position for _, position, own in batches if position >= start and own >= timestamp), None)
    assert scanned == sought
    if sought is not None:
        # It is as near as a sparse index can be: no other entry lies between the start and the batch sought.
        entries = [at for (_, at, _), is_indexed in zip(batches, indexed, strict=True) if is_indexed]
        assert not [at for at in entries if start < at < sought]


@given(segments(), st.integers(-3, 150))
def test_truncate_leaves_what_was_appended_before_when_offset_is_anywhere(
    segment: tuple[int, list[Batch], list[bool]], relative: int
) -> None:
    base, batches, indexed = segment
    index = build(*segment)
    index.truncate(base + relative)
    kept = [batch for batch in batches if batch[0] < base + relative]
    expected = build(base, kept, indexed[: len(kept)])
    assert list(index.entries()) == list(expected.entries())
    assert index.last == expected.last
    index.append(base + 1000, 5000, 100)
    assert index.last == IndexEntry(base + 1000, 5000, 100)


@given(segments(), st.lists(st.integers(0, 25), max_size=4))
def test_index_is_read_back_when_written_in_any_frames(
    segment: tuple[int, list[Batch], list[bool]], cuts: list[int]
) -> None:
    base, batches, indexed = segment
    bounds = [*sorted(min(cut, len(batches)) for cut in cuts), len(batches)]
    data, written = b"", 0
    for bound in bounds:
        index = build(base, batches[:bound], indexed[:bound])
        data += index.encode_frame(written)
        written = len(index)
    decoded, valid = decode_index(data, base, 10**6)
    assert list(decoded.entries()) == list(build(*segment).entries())
    assert valid == len(data)


@pytest.mark.parametrize(
    ("offset", "position", "timestamp"), [(150, 99999, 2000), (99999, 20480, 2000), (99999, 99999, 1001)]
)
def test_append_refuses_when_an_entry_does_not_follow(offset: int, position: int, timestamp: int) -> None:
    index = sample()
    with pytest.raises(ValueError, match="does not follow"):
        index.append(offset, position, timestamp)
    assert list(index.entries()) == list(sample().entries())


@pytest.mark.parametrize(
    ("relative", "position", "fits"),
    [
        (2**32 - 1, 2**32 - 1, True),
        (2**32, 0, False),
        (0, 2**32, False),
        (-1, 0, False),
        (0, -1, False),
    ],
)
def test_append_refuses_an_entry_when_32_bits_do_not_hold_it(
    relative: int, position: int, fits: bool
) -> None:
    index = SparseIndex(77)
    if fits:
        index.append(77 + relative, position, 0)
        assert index.floor_offset(2**60) == (77 + relative, position)
    else:
        with pytest.raises(IndexFullError, match="segment at 77"):
            index.append(77 + relative, position, 0)
        assert len(index) == 0


def test_look_ups_name_no_entry_when_the_index_is_empty() -> None:
    index = SparseIndex(5)
    assert index.last is None
    assert index.floor_offset(9) is index.floor_position(9) is index.first_reaching(9) is None
    assert index.encode_frame() == b""


def test_decode_takes_whole_frames_only_when_the_file_is_cut_anywhere() -> None:
    index = sample()
    frames = [sample(count=number + 2).encode_frame(number) for number in range(0, 6, 2)]
    data = b"".join(frames)
    for size in range(len(data) + 1):
        decoded, valid = decode_index(data[:size], 100, 10**6)
        whole = size // len(frames[0])
        assert valid == whole * len(frames[0])
        assert list(decoded.entries()) == list(index.entries())[: 2 * whole]


def test_decode_stops_before_the_frame_when_any_bit_is_flipped() -> None:
    first, second = sample(count=3).encode_frame(), sample(count=5).encode_frame(3)
    for at in range(len(second)):
        for bit in range(8):
            damaged = bytearray(second)
            damaged[at] ^= 1 << bit
            decoded, valid = decode_index(first + damaged, 100, 10**6)
            assert (len(decoded), valid) == (3, len(first))


def test_decode_stops_when_frames_do_not_continue_each_other() -> None:
    frame = sample().encode_frame()
    assert decode_index(frame + frame, 100, 10**6)[1] == len(frame)
    earlier = SparseIndex(100)
    earlier.append(10**6, 10**6, 0)  # a later place, but an earlier running maximum
    assert decode_index(frame + earlier.encode_frame(), 100, 10**9)[1] == len(frame)


def test_decode_stops_when_entries_within_a_checked_frame_are_not_in_order() -> None:
    for column in ("_offsets", "_positions", "_timestamps"):
        broken = sample()
        values = getattr(broken, column)
        values[1], values[4] = values[4], values[1]
        decoded, valid = decode_index(broken.encode_frame(), 100, 10**6)
        assert (len(decoded), valid) == (0, 0)


def test_decode_stops_when_positions_lie_beyond_the_log() -> None:
    data = sample(count=3).encode_frame() + sample(count=6).encode_frame(3)
    assert len(decode_index(data, 100, 5 * 4096 + 1)[0]) == 6
    assert len(decode_index(data, 100, 5 * 4096)[0]) == 3
    assert len(decode_index(data, 100, 0)[0]) == 0


def test_decode_refuses_a_frame_when_it_belongs_to_another_segment() -> None:
    decoded, valid = decode_index(sample(base=100).encode_frame(), 101, 10**6)
    assert (len(decoded), valid) == (0, 0)


@given(st.binary(max_size=200), st.booleans())
def test_decode_never_raises_when_given_garbage(garbage: bytes, after_a_frame: bool) -> None:
    frame = sample().encode_frame() if after_a_frame else b""
    for data in (frame + garbage, bytearray(frame + garbage), memoryview(frame + garbage)):
        decoded, valid = decode_index(data, 100, 10**6)
        assert valid == len(frame)
        assert len(decoded) == (6 if after_a_frame else 0)
    assert decode_index(frame + bytes(64), 100, 10**6)[1] == len(frame)


@given(segments())
def test_decoded_index_goes_on_growing_when_appended_to(segment: tuple[int, list[Batch], list[bool]]) -> None:
    base = segment[0]
    decoded, _ = decode_index(build(*segment).encode_frame(), base, 10**6)
    decoded.append(base + 5000, 5000, 50)
    entries = list(decoded.entries())
    assert entries[-1] == (base + 5000, 5000, 50)
    assert all(a.offset < b.offset and a.position < b.position for a, b in pairwise(entries))
