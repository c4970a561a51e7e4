"""Producer states against models that keep the whole history and search it from the start."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.common.batch import BatchHeader
from tailrace.cluster.common.control import Marker
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.producers import Duplicate, ProducerStates
from tests.unit.storage.test_producers import control, header

SEQUENCES = 2**31


class Accepted(NamedTuple):
    producer: int
    epoch: int
    first: int
    """The sequence as it would be if sequences never began anew at 0."""
    records: int
    offset: int


def verdict(log: list[Accepted], batch: Accepted) -> Duplicate | ErrorCode | None:
    """What must become of a batch, by the whole history."""
    own = [each for each in log if each.producer == batch.producer]
    if not own:
        return None if batch.first == 0 else ErrorCode.UNKNOWN_PRODUCER_ID
    current = own[-1].epoch
    if batch.epoch < current:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if batch.epoch > current:
        return None if batch.first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE
    own = [each for each in own if each.epoch == current]
    for each in own[-5:]:
        if (each.first, each.records) == (batch.first, batch.records):
            return Duplicate(each.offset, each.offset + each.records - 1, -1)
    if batch.first == own[-1].first + own[-1].records:
        return None
    forgotten = own[-5:][0].first
    return (
        ErrorCode.DUPLICATE_SEQUENCE
        if batch.first + batch.records <= forgotten
        else ErrorCode.OUT_OF_ORDER_SEQUENCE
    )


def answer(states: ProducerStates, batch: Accepted) -> Duplicate | ErrorCode | None:
    try:
        return states.check(as_header(batch), now_ms=0)
    except TailraceError as refused:
        return refused.code


def as_header(batch: Accepted, *, transactional: bool = False) -> BatchHeader:
    return header(
        batch.offset,
        producer=batch.producer,
        epoch=batch.epoch,
        sequence=batch.first % SEQUENCES,
        records=batch.records,
        transactional=transactional,
    )


attempts = st.lists(
    st.tuples(
        st.integers(0, 1),  # producer
        st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]),  # epoch, from the current one
        st.sampled_from([0, 0, 0, 0, 1, 2, -1, -2, -3, -5, -8, -12]),  # sequence, from the next one
        st.integers(1, 3),  # records
        st.sampled_from(["", "", "", "copy", "snapshot"]),
    ),
    max_size=60,
)


@given(attempts, st.sampled_from([0, SEQUENCES - 8, SEQUENCES - 1]))
def test_accepted_batches_have_no_gap_and_no_duplicate_when_anything_is_sent(
    tries: list[tuple[int, int, int, int, str]], first: int
) -> None:
    states = ProducerStates()
    log: list[Accepted] = []
    if first:
        # A producer known from a log whose beginning is gone, about to wrap.
        log.append(Accepted(0, 3, first, 1, 0))
        states.apply(as_header(log[0]), now_ms=0)
    for producer, epoch_step, sequence_step, records, upkeep in tries:
        if upkeep == "copy":
            states = states.copy()
        elif upkeep == "snapshot":
            states = ProducerStates.decode(states.encode(len(log) * 3))[0]
        own = [each for each in log if each.producer == producer]
        epoch = max(0, (own[-1].epoch if own else 0) + epoch_step)
        same = [each for each in own if each.epoch == epoch]
        following = same[-1].first + same[-1].records if same else 0
        batch = Accepted(producer, epoch, max(0, following + sequence_step), records, 3 * len(log))
        expected = verdict(log, batch)
        assert answer(states, batch) == expected
        if expected is None:
            log.append(batch)
            states.apply(as_header(batch), now_ms=0)
    for producer in (0, 1):
        for one, next_one in pairwise(each for each in log if each.producer == producer):
            assert next_one.epoch >= one.epoch
            assert next_one.first == (one.first + one.records if next_one.epoch == one.epoch else 0)


class Transaction(NamedTuple):
    producer: int
    first: int
    marker: int | None
    commit: bool


def stable_below(transactions: list[Transaction], watermark: int) -> int | None:
    return min(
        (each.first for each in transactions if each.marker is None or each.marker >= watermark), default=None
    )


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 4)),
        st.tuples(st.just("commit"), st.sets(st.integers(0, 4), min_size=1)),
        st.tuples(st.just("abort"), st.sets(st.integers(0, 4), min_size=1)),
        st.tuples(st.just("watermark"), st.integers(0, 6)),
        st.tuples(st.sampled_from(["copy", "snapshot"]), st.just(0)),
    ),
    max_size=50,
)


@given(steps)
def test_stability_and_aborts_equal_those_of_the_whole_history_when_transactions_mix(
    actions: list[tuple[str, int | set[int]]],
) -> None:
    states = ProducerStates()
    epochs = dict.fromkeys(range(5), 0)
    written = dict.fromkeys(range(5), 0)
    transactions: list[Transaction] = []
    offset = watermark = 0
    for action, argument in actions:
        if action == "copy":
            states = states.copy()
        elif action == "snapshot":
            states, end = ProducerStates.decode(states.encode(offset))
            assert end == offset
        elif action == "watermark":
            assert isinstance(argument, int)
            watermark = max(watermark, offset - argument)
            states.on_high_watermark(watermark)
        elif action == "write":
            assert isinstance(argument, int)
            batch = Accepted(argument, epochs[argument], written[argument], 1, offset)
            assert states.check(as_header(batch, transactional=True), now_ms=0) is None
            assert states.apply(as_header(batch, transactional=True), now_ms=0) == []
            written[argument] += 1
            if not any(each.producer == argument and each.marker is None for each in transactions):
                transactions.append(Transaction(argument, offset, None, False))
            offset += 1
        else:
            assert isinstance(argument, set)
            markers = [Marker(producer, epochs[producer] + 1, 0, action == "commit") for producer in argument]
            marker_offset = offset + len(markers) - 1
            expected = []
            for marker in markers:
                states.check_marker(marker)
                epochs[marker.producer_id] += 1
                written[marker.producer_id] = 0
                for number, each in enumerate(transactions):
                    if each.producer == marker.producer_id and each.marker is None:
                        transactions[number] = each._replace(marker=marker_offset, commit=marker.commit)
                        oldest = min((e.first for e in transactions if e.marker is None), default=None)
                        lso = marker_offset + 1 if oldest is None else oldest
                        expected.append(AbortedTransaction(each.producer, each.first, marker_offset, lso))
            found = states.apply(control(offset, len(markers)), now_ms=0, markers=markers)
            assert found == ([] if action == "commit" else expected)
            offset = marker_offset + 1
        for possible in range(watermark, offset + 1):
            first = stable_below(transactions, possible)
            assert states.first_unstable_offset(possible) == first
            assert states.last_stable_offset(possible) == min(possible, possible if first is None else first)
