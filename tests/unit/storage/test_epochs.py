"""The history of leader epochs against a log that remembers the epoch of each record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.core.epochs import EpochHistory

# The epoch of each record of a log, which begins at some offset: never falling, with gaps.
logs = st.tuples(st.integers(0, 5), st.lists(st.integers(0, 9), max_size=15).map(sorted), st.integers(0, 20))
Log = tuple[int, list[int], int]


def history(*pairs: tuple[int, int]) -> EpochHistory:
    built = EpochHistory()
    for epoch, start in pairs:
        built.assign(epoch, start)
    return built


def replayed(start: int, epochs: list[int]) -> EpochHistory:
    return history(*((epoch, start + number) for number, epoch in enumerate(epochs)))


KNOWN = ((2, 10), (4, 20), (7, 30))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (7, (7, 45)),
        (8, (-1, -1)),
        (-1, (-1, -1)),
        (4, (4, 30)),
        (2, (2, 20)),
        (3, (2, 20)),
        (5, (4, 30)),
        (6, (4, 30)),
        (1, (1, 10)),
        (0, (0, 10)),
    ],
)
def test_end_offset_is_that_of_kip_101_and_279_when_epoch_is(epoch: int, answer: tuple[int, int]) -> None:
    assert history(*KNOWN).end_offset_for(epoch, 45) == answer


def test_end_offset_is_undefined_when_history_is_empty() -> None:
    assert EpochHistory().end_offset_for(0, 45) == (-1, -1)


@given(logs)
def test_end_offset_equals_that_of_the_records_when_epoch_is_any(log: Log) -> None:
    start, epochs, _ = log
    known = replayed(start, epochs)
    end = start + len(epochs)
    for requested in range(-1, 11):
        if requested == -1 or not epochs or requested > max(epochs):
            expected = (-1, -1)
        else:
            floor = max((epoch for epoch in epochs if epoch <= requested), default=requested)
            expected = (floor, start + sum(epoch <= requested for epoch in epochs))
        assert known.end_offset_for(requested, end) == expected


@given(logs)
def test_epoch_at_equals_that_of_the_record_when_offset_is_any(log: Log) -> None:
    start, epochs, _ = log
    known = replayed(start, epochs)
    assert known.latest == (epochs[-1] if epochs else -1)
    assert [known.epoch_at(offset) for offset in range(start)] == [-1] * start
    assert [known.epoch_at(start + number) for number in range(len(epochs))] == epochs
    assert known.epoch_at(start + len(epochs)) == known.latest


@given(logs)
def test_truncate_end_equals_a_shorter_log_when_offset_is_anywhere(log: Log) -> None:
    start, epochs, offset = log
    known = replayed(start, epochs)
    before = known.copy()
    changed = known.truncate_end(offset)
    assert known == replayed(start, epochs[: max(0, offset - start)])
    assert changed is (known != before)


@given(logs)
def test_truncate_start_equals_a_later_log_when_offset_is_within(log: Log) -> None:
    start, epochs, offset = log
    known = replayed(start, epochs)
    before = known.copy()
    changed = known.truncate_start(offset)
    if offset >= start + len(epochs):
        # Nothing is left but the epoch itself, which goes on at the new start.
        expected = history((epochs[-1], offset)) if epochs else EpochHistory()
    else:
        expected = replayed(max(start, offset), epochs[max(0, offset - start) :])
    assert known == expected
    assert changed is (known != before)


def test_assign_changes_nothing_when_the_latest_epoch_writes_more() -> None:
    known = history(*KNOWN)
    assert not known.assign(7, 30)
    assert not known.assign(7, 99)
    assert known.entries() == list(KNOWN)


def test_assign_replaces_the_latest_epoch_when_that_wrote_nothing() -> None:
    known = history(*KNOWN)
    assert known.assign(9, 30)
    assert known.entries() == [(2, 10), (4, 20), (9, 30)]


@pytest.mark.parametrize(("epoch", "start"), [(6, 40), (7, 29), (8, 29), (4, 20), (-1, 50)])
def test_assign_raises_when_epoch_or_offset_goes_back(epoch: int, start: int) -> None:
    known = history(*KNOWN)
    with pytest.raises(ValueError, match="go back"):
        known.assign(epoch, start)
    assert known.entries() == list(KNOWN)


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -1)])
def test_assign_raises_when_a_number_is_negative(epoch: int, start: int) -> None:
    with pytest.raises(ValueError, match="negative"):
        EpochHistory().assign(epoch, start)


def test_copy_is_independent_when_the_original_changes() -> None:
    known = history(*KNOWN)
    copied = known.copy()
    known.assign(8, 40)
    known.truncate_start(25)
    assert copied.entries() == list(KNOWN)
    assert known.entries() == [(4, 25), (7, 30), (8, 40)]
    assert len(known) == 3


@given(logs)
def test_history_is_read_back_when_stored_as_json(log: Log) -> None:
    known = replayed(*log[:2])
    assert EpochHistory.from_json(json.loads(json.dumps(known.to_json()))) == known


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"version": 2, "epochs": []},
        {"version": 1},
        {"version": 1, "epochs": {}},
        {"version": 1, "epochs": [1]},
        {"version": 1, "epochs": [[1, 2, 3]]},
        {"version": 1, "epochs": [["1", 2]]},
        {"version": 1, "epochs": [[True, 2]]},
        {"version": 1, "epochs": [[1.0, 2]]},
        {"version": 1, "epochs": [[-1, 0]]},
        {"version": 1, "epochs": [[0, -1]]},
        {"version": 1, "epochs": [[1, 5], [1, 6]]},
        {"version": 1, "epochs": [[1, 5], [2, 5]]},
        {"version": 1, "epochs": [[2, 5], [1, 6]]},
    ],
)
def test_from_json_reports_corruption_when_the_value_is_not_a_history(value: object) -> None:
    with pytest.raises(TailraceError, match="rebuilt from the log") as caught:
        EpochHistory.from_json(value)
    assert caught.value.code is ErrorCode.STORAGE_CORRUPT


def test_two_logs_agree_on_where_they_part_when_they_share_no_latest_epoch() -> None:
    # KIP-279: after two fast leader changes, the follower asks again with the epoch that the leader named.
    leader, leader_end = history((0, 0), (3, 10)), 30
    follower, follower_end = history((0, 0), (1, 10), (2, 20)), 25
    epoch, end = leader.end_offset_for(follower.latest, leader_end)
    assert (epoch, end) == (0, 10)
    assert min(end, follower.end_offset_for(epoch, follower_end)[1]) == 10
