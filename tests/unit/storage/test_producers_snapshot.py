"""The snapshot file of producer states: complete, compact, and damaged in every way."""

from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.common.control import Marker
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.core.producers import ProducerStates
from tests.unit.storage.test_producers import LAST_SEQUENCE, append, control, end, header, refusal


def sample() -> ProducerStates:
    """Every kind of thing that a snapshot holds; the log ends at 30."""
    states = ProducerStates()
    for number in range(6):
        append(states, header(number, producer=1, sequence=number, append_timestamp=50 + number), now_ms=100)
    states.apply(header(6, producer=2**62, epoch=2**31 - 1, sequence=LAST_SEQUENCE, records=4), now_ms=200)
    append(states, header(10, producer=4, transactional=True), now_ms=300)
    append(states, header(11, producer=3, transactional=True), now_ms=300)
    append(states, header(12, producer=5, transactional=True), now_ms=300)
    end(states, 13, Marker(4, 1, 6, False), Marker(9, 0, 6, False), now_ms=400)
    end(states, 20, Marker(5, 1, 7, True), now_ms=400)
    return states


def observed(states: ProducerStates) -> tuple[object, ...]:
    return (
        states.describe(),
        states.last_batch_offsets(),
        [states.first_unstable_offset(watermark) for watermark in range(31)],
        [states.copy().expire(now_ms, 100) for now_ms in range(0, 600, 50)],
        [states.check(header(30, producer=1, sequence=n), now_ms=0) for n in range(1, 7)],
    )


def signed(body: bytes) -> bytes:
    """A snapshot with this content and the checksum that goes with it."""
    return struct.pack("<4sHHI", b"TRPS", 1, 0, google_crc32c.value(body)) + body


def corruption(data: bytes) -> str:
    with pytest.raises(TailraceError, match="snapshot of producer states is damaged") as caught:
        ProducerStates.decode(data)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT
    return str(caught.value)


def test_states_are_the_same_when_read_back() -> None:
    states = sample()
    for data in (states.encode(30), bytearray(states.encode(30)), memoryview(states.encode(30))):
        decoded, map_end = ProducerStates.decode(data)
        assert map_end == 30
        assert observed(decoded) == observed(states)
        assert decoded.encode(30) == states.encode(30)


def test_decoded_states_go_on_like_the_original_when_the_log_goes_on() -> None:
    pair = (sample(), ProducerStates.decode(sample().encode(30))[0])
    for states in pair:
        append(states, header(30, producer=2**62, epoch=2**31 - 1, sequence=3), now_ms=500)
        append(states, header(31, producer=3, sequence=1, transactional=True), now_ms=500)
        append(states, header(32, producer=4, epoch=1, transactional=True), now_ms=500)
        assert refusal(states, header(33, producer=5, sequence=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
        aborted = states.apply(control(33), now_ms=500, markers=[Marker(3, 1, 8, False)])
        assert [tuple(each) for each in aborted] == [(3, 11, 33, 32)]
    assert observed(pair[0]) == observed(pair[1])


def test_delayed_marker_is_still_refused_when_the_states_come_from_a_snapshot() -> None:
    states = ProducerStates.decode(sample().encode(30))[0]
    append(states, header(30, producer=4, epoch=1, transactional=True))
    with pytest.raises(TailraceError) as caught:
        states.check_marker(Marker(4, 1, 6, False))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_snapshot_is_small_when_there_is_nothing_to_keep() -> None:
    data = ProducerStates().encode(12)
    assert len(data) == 32
    states, map_end = ProducerStates.decode(data)
    assert (len(states), map_end) == (0, 12)


def test_snapshot_takes_less_than_200_bytes_a_producer_when_all_remember_five_batches() -> None:
    states = ProducerStates()
    for number in range(500):
        states.apply(header(number, producer=number % 100, sequence=number // 100), now_ms=0)
    assert len(states.encode(500)) < 200 * 100


def test_encode_raises_when_the_log_has_been_applied_further() -> None:
    with pytest.raises(ValueError, match="would lack batches up to 21"):
        sample().encode(20)


def test_apply_raises_when_a_batch_lies_below_the_snapshot() -> None:
    states = ProducerStates.decode(sample().encode(30))[0]
    with pytest.raises(ValueError, match="lies below 30"):
        states.apply(header(29, producer=1, sequence=6), now_ms=0)


def test_decode_reports_corruption_when_the_file_is_cut_anywhere() -> None:
    data = sample().encode(30)
    for size in range(len(data)):
        corruption(data[:size])
    corruption(data + b"\0")


def test_decode_reports_corruption_when_any_byte_is_changed() -> None:
    data = sample().encode(30)
    for at in [*range(6), *range(8, len(data))]:
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        corruption(bytes(damaged))


@given(st.binary(max_size=300))
def test_decode_reports_corruption_when_given_garbage(garbage: bytes) -> None:
    corruption(garbage)


@given(st.data())
def test_decode_reports_corruption_or_usable_states_when_numbers_are_wrong_under_a_right_checksum(
    data: st.DataObject,
) -> None:
    body = bytearray(sample().encode(30)[12:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        states, map_end = ProducerStates.decode(signed(bytes(body)))
    except TailraceError as corrupt:
        assert corrupt.code is ErrorCode.STORAGE_CORRUPT
    else:
        assert ProducerStates.decode(states.encode(map_end))[0].describe() == states.describe()
        assert states.last_stable_offset(map_end) <= map_end


def test_decode_names_the_contradiction_when_the_checksum_is_right() -> None:
    body = sample().encode(30)[12:]
    assert "instead of" in corruption(signed(body + b"\0"))
    assert "contradict" in corruption(signed(struct.pack("<q", 5) + body[8:]))
    assert "only 3 bytes" in corruption(b"abc")
    assert "version 9" in corruption(b"TRPS\x09\x00" + sample().encode(30)[6:])


def test_oldest_transaction_comes_first_when_its_producer_was_met_last() -> None:
    states = ProducerStates()
    append(states, header(0, producer=1, transactional=True))
    end(states, 1, Marker(1, 1, 0, True))
    append(states, header(2, producer=2, transactional=True))
    append(states, header(3, producer=1, epoch=1, transactional=True))
    decoded = ProducerStates.decode(states.encode(4))[0]
    decoded.on_high_watermark(4)
    assert decoded.first_unstable_offset(4) == 2
    end(decoded, 4, Marker(2, 1, 0, True))
    decoded.on_high_watermark(5)
    assert decoded.first_unstable_offset(5) == 3
