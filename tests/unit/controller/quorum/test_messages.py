"""The codec: exact shapes come back, everything else is malformed, and nothing else is ever raised."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.controller.quorum.frames import Entry
from tailrace.cluster.controller.quorum.messages import (
    LARGEST,
    AppendEntries,
    AppendResult,
    HandOver,
    MalformedMessageError,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    SnapshotChunk,
    SnapshotProgress,
    StaleTerm,
    VoteGranted,
    VoteRequest,
    decode,
    encode,
)

numbers = st.integers(0, LARGEST)
phases = st.integers(0, 2)


@st.composite
def appends(draw: st.DrawFn) -> AppendEntries:
    prev_index, prev_term = draw(st.integers(1, 2**40)), draw(st.integers(0, 9))
    terms = sorted(draw(st.lists(st.integers(prev_term, 20), max_size=4)))
    entries = tuple(
        Entry(draw(st.binary(min_size=1, max_size=40)), prev_index + number, term)
        for number, term in enumerate(terms, 1)
    )
    return AppendEntries(20, draw(numbers), prev_index, prev_term, draw(st.booleans()), entries)


messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(PreVoteRequest, numbers, numbers, numbers, phases),
    st.builds(PreVoteResponse, numbers, numbers, st.booleans(), phases),
    st.builds(VoteRequest, numbers, numbers, numbers, phases),
    st.builds(VoteGranted, numbers),
    st.builds(AppendResult, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(SnapshotProgress, numbers, numbers, numbers),
    st.builds(HandOver, numbers),
    st.builds(StaleTerm, numbers),
    st.builds(SnapshotChunk, numbers, numbers, numbers, numbers, numbers, numbers, st.binary(max_size=60)),
    appends(),
)


@settings(deadline=None, max_examples=300)
@given(messages)
def test_message_comes_back_when_decoded(message: Message) -> None:
    decoded = decode(encode(message))
    assert decoded == message
    assert type(decoded) is type(message)


@settings(deadline=None, max_examples=300)
@given(messages, st.data())
def test_message_is_malformed_when_cut_off_or_followed_by_more(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for wrong in (whole[:cut], whole + b"\0"):
        with pytest.raises(MalformedMessageError):
            decode(wrong)


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=120) | st.binary(max_size=60).map(lambda rest: b"\x05" + rest))
def test_decode_gives_a_message_or_malformed_when_the_bytes_are_anything(data: bytes) -> None:
    try:
        message = decode(data)
    except MalformedMessageError:
        return
    assert encode(message) == data


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\x00",
        b"\x0b" + bytes(8),
        encode(VoteGranted(7))[:-1] + b"\xff",  # A term that is too large.
        encode(AppendResult(1, 2, True, True))[:-1] + b"\x02",  # Neither true nor false.
        encode(PreVoteRequest(1, 2, 3, 0))[:-1] + b"\x03",  # No such phase.
        b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix",  # The beginning of a pickle.
    ],
)
def test_message_is_malformed_when_its_kind_or_a_field_is_impossible(wrong: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode(wrong)


@pytest.mark.parametrize(
    "entries",
    [
        (Entry(b"x", 6, 9),),  # A term above the message's.
        (Entry(b"x", 6, 1),),  # A term below that of the entry before.
        (Entry(b"x", 6, 4), Entry(b"x", 7, 3)),
        (Entry(b"", 6, 4),),
    ],
)
def test_append_is_malformed_when_its_entries_cannot_be_true(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(MalformedMessageError):
        decode(encode(AppendEntries(5, 1, 5, 3, False, entries)))


def test_encode_refuses_when_the_entries_have_a_gap() -> None:
    with pytest.raises(ValueError, match="does not follow"):
        encode(AppendEntries(5, 1, 5, 3, False, (Entry(b"x", 7, 4),)))


def test_encode_refuses_when_given_something_else() -> None:
    with pytest.raises(KeyError):
        encode({"type": "append_entries"})  # type: ignore[arg-type]
