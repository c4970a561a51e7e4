"""Producer states: the rules of SEMANTICS one by one."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.batch import CONTROL, TRANSACTIONAL, BatchHeader
from tailrace.cluster.common.control import Marker
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.producers import Duplicate, ProducerDescription, ProducerStates

LAST_SEQUENCE = 2**31 - 1


def header(
    base_offset: int,
    *,
    producer: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    records: int = 1,
    transactional: bool = False,
    append_timestamp: int = -1,
) -> BatchHeader:
    return _header(
        base_offset,
        records,
        TRANSACTIONAL if transactional else 0,
        append_timestamp,
        (producer, epoch, sequence),
    )


def control(base_offset: int, records: int = 1) -> BatchHeader:
    return _header(base_offset, records, CONTROL, -1, (-1, -1, -1))


def _header(
    base_offset: int, records: int, attributes: int, append_timestamp: int, producer: tuple[int, int, int]
) -> BatchHeader:
    return BatchHeader(
        base_offset=base_offset,
        size=100,
        leader_epoch=0,
        append_timestamp=append_timestamp,
        sync_mark=0,
        header_crc=0,
        crc=0,
        version=1,
        attributes=attributes,
        columns=0,
        record_count=records,
        last_offset_delta=records - 1,
        base_timestamp=500,
        max_timestamp=600,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        delete_horizon=-1,
        uncompressed_size=0,
    )


def append(states: ProducerStates, batch: BatchHeader, now_ms: int = 0) -> None:
    """What a leader does with a batch that it accepts."""
    assert states.check(batch, now_ms=now_ms) is None
    assert states.apply(batch, now_ms=now_ms) == []


def end(
    states: ProducerStates, base_offset: int, *markers: Marker, now_ms: int = 0
) -> list[AbortedTransaction]:
    for marker in markers:
        states.check_marker(marker)
    return states.apply(control(base_offset, len(markers)), now_ms=now_ms, markers=markers)


def refusal(states: ProducerStates, batch: BatchHeader) -> ErrorCode:
    with pytest.raises(TailraceError, match=f"producer {batch.producer_id}, epoch") as caught:
        states.check(batch, now_ms=0)
    return caught.value.code


def marker_refusal(states: ProducerStates, marker: Marker) -> ErrorCode:
    with pytest.raises(TailraceError, match=f"marker for producer {marker.producer_id}") as caught:
        states.check_marker(marker)
    return caught.value.code


def after(*batches: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        append(states, batch)
    return states


def seven_batches() -> ProducerStates:
    """Batches of ten records, sequences 0 to 69, at offsets 1000 to 1069."""
    return after(*(header(1000 + 10 * n, sequence=10 * n, records=10, append_timestamp=n) for n in range(7)))


# Idempotence.


def test_batches_pass_when_they_have_no_producer() -> None:
    states = after(
        header(0, producer=-1, epoch=-1, sequence=-1), header(1, producer=-1, epoch=-1, sequence=-1)
    )
    assert len(states) == 0


def test_duplicate_gets_the_original_offsets_when_among_the_last_five() -> None:
    states = seven_batches()
    for n in range(2, 7):
        again = header(9999, sequence=10 * n, records=10)
        assert states.check(again, now_ms=0) == Duplicate(1000 + 10 * n, 1009 + 10 * n, n)


@pytest.mark.parametrize(
    ("sequence", "records", "code"),
    [
        (71, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (2**30, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (10, 10, ErrorCode.DUPLICATE_SEQUENCE),
        (0, 20, ErrorCode.DUPLICATE_SEQUENCE),
        (19, 1, ErrorCode.DUPLICATE_SEQUENCE),
        (19, 2, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (60, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (65, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (60, 20, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (-1, 1, ErrorCode.INVALID_RECORD),
    ],
)
def test_batch_is_refused_when_it_neither_follows_nor_repeats(
    sequence: int, records: int, code: ErrorCode
) -> None:
    states = seven_batches()
    assert refusal(states, header(2000, sequence=sequence, records=records)) is code
    append(states, header(2000, sequence=70))


def test_unknown_producer_is_refused_when_it_does_not_begin_at_zero() -> None:
    states = ProducerStates()
    assert refusal(states, header(0, sequence=1)) is ErrorCode.UNKNOWN_PRODUCER_ID
    append(states, header(0, epoch=3, sequence=0))


def test_second_batch_cannot_overtake_the_first_when_both_are_in_flight_to_a_new_partition() -> None:
    states = ProducerStates()
    assert refusal(states, header(0, sequence=5)) is ErrorCode.UNKNOWN_PRODUCER_ID
    append(states, header(0, sequence=0, records=5))
    append(states, header(5, sequence=5))


def test_batch_is_refused_when_its_epoch_is_older() -> None:
    states = after(header(0, epoch=4))
    assert refusal(states, header(1, epoch=3, sequence=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(1, epoch=3, sequence=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(1, epoch=-1, sequence=0)) is ErrorCode.INVALID_RECORD


def test_new_epoch_starts_at_zero_when_the_producer_bumps_it() -> None:
    states = after(header(0, epoch=4), header(1, epoch=4, sequence=1))
    assert refusal(states, header(2, epoch=5, sequence=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    append(states, header(2, epoch=5))
    append(states, header(3, epoch=5, sequence=1))
    assert states.check(header(4, epoch=5, sequence=0), now_ms=0) == Duplicate(2, 2, -1)


def test_sequences_go_on_at_zero_when_they_have_reached_the_largest() -> None:
    states = ProducerStates()
    states.apply(header(0, sequence=LAST_SEQUENCE - 9, records=5), now_ms=0)
    append(states, header(5, sequence=LAST_SEQUENCE - 4, records=5))
    append(states, header(10, sequence=0, records=3))
    assert states.check(header(13, sequence=LAST_SEQUENCE - 4, records=5), now_ms=0) == Duplicate(5, 9, -1)
    assert refusal(states, header(13, sequence=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    assert refusal(states, header(13, sequence=LAST_SEQUENCE - 30, records=5)) is ErrorCode.DUPLICATE_SEQUENCE


def test_sequences_wrap_within_a_batch_when_it_crosses_the_largest() -> None:
    states = ProducerStates()
    states.apply(header(0, sequence=LAST_SEQUENCE - 1, records=1), now_ms=0)
    append(states, header(1, sequence=LAST_SEQUENCE, records=4))
    assert states.check(header(9, sequence=LAST_SEQUENCE, records=4), now_ms=0) == Duplicate(1, 4, -1)
    append(states, header(5, sequence=3))


def test_follower_takes_what_the_leader_accepted_when_it_knew_more_or_less() -> None:
    states = ProducerStates()
    states.apply(header(50, epoch=3, sequence=40, records=10), now_ms=0)
    assert states.check(header(60, epoch=3, sequence=50), now_ms=0) is None
    states.apply(header(60, epoch=2, sequence=0), now_ms=0)
    assert states.check(header(61, epoch=2, sequence=1), now_ms=0) is None


def test_apply_raises_when_a_batch_would_count_twice() -> None:
    states = after(header(10, records=5))
    with pytest.raises(ValueError, match="offset 14 lies below 15"):
        states.apply(header(14, sequence=5), now_ms=0)


# Transactions.


def test_first_unstable_is_the_oldest_open_transaction_when_several_are_open() -> None:
    states = after(
        header(0, producer=1),
        header(1, producer=2, transactional=True),
        header(2, producer=3, transactional=True),
        header(3, producer=2, sequence=1, transactional=True),
    )
    assert states.first_unstable_offset(4) == 1
    assert states.last_stable_offset(4) == 1
    assert states.last_stable_offset(0) == 0
    assert (states.open_transaction(1), states.open_transaction(3)) == (None, 2)


def test_commit_becomes_stable_when_its_marker_is_below_the_high_watermark() -> None:
    states = after(header(0, producer=2, transactional=True), header(1, producer=-1, epoch=-1, sequence=-1))
    assert end(states, 2, Marker(2, 1, 0, True)) == []
    assert [states.last_stable_offset(watermark) for watermark in range(4)] == [0, 0, 0, 3]
    states.on_high_watermark(2)
    assert states.first_unstable_offset(2) == 0
    states.on_high_watermark(3)
    assert states.first_unstable_offset(3) is None


def test_abort_is_listed_when_its_transaction_had_records_here() -> None:
    states = after(
        header(0, producer=1, transactional=True),
        header(1, producer=2, transactional=True),
        header(2, producer=3, transactional=True),
    )
    markers = [Marker(producer, 1, 5, False) for producer in (1, 3, 4)]
    assert end(states, 3, *markers) == [AbortedTransaction(1, 0, 5, 1), AbortedTransaction(3, 2, 5, 1)]
    assert end(states, 6, Marker(2, 1, 5, False)) == [AbortedTransaction(2, 1, 6, 7)]


def test_zombie_is_refused_when_a_marker_has_raised_the_epoch() -> None:
    states = after(header(0, transactional=True))
    end(states, 1, Marker(7, 1, 0, False))
    assert refusal(states, header(2, sequence=1, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(2, epoch=1, sequence=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE
    append(states, header(2, epoch=1, transactional=True))


def test_zombie_is_refused_when_the_marker_came_before_any_of_its_records() -> None:
    states = ProducerStates()
    assert end(states, 0, Marker(7, 3, 0, False)) == []
    assert refusal(states, header(1, epoch=2, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_is_refused_when_a_newer_coordinator_has_written_one() -> None:
    states = ProducerStates()
    end(states, 0, Marker(7, 3, 9, True))
    assert marker_refusal(states, Marker(7, 4, 8, True)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    states.check_marker(Marker(7, 4, 9, True))
    states.check_marker(Marker(7, 4, 10, True))


def test_marker_is_refused_when_its_producer_epoch_is_older() -> None:
    states = after(header(0, epoch=3, transactional=True))
    assert marker_refusal(states, Marker(7, 2, 0, False)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.open_transaction(7) == 0


def test_delayed_marker_cannot_decide_the_next_transaction_when_it_carries_the_bumped_epoch() -> None:
    states = after(header(0, epoch=3, transactional=True))
    end(states, 1, Marker(7, 4, 0, False))
    states.check_marker(Marker(7, 4, 0, False))  # Again at once: nothing is open, so it harms nothing.
    append(states, header(2, epoch=4, transactional=True))
    assert marker_refusal(states, Marker(7, 4, 0, False)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(states, 3, Marker(7, 5, 0, True)) == []
    assert states.open_transaction(7) is None


def test_delayed_marker_cannot_decide_the_next_transaction_when_it_carries_the_old_epoch() -> None:
    states = after(header(0, epoch=3, transactional=True))
    end(states, 1, Marker(7, 3, 0, True))
    append(states, header(2, epoch=4, transactional=True))
    assert marker_refusal(states, Marker(7, 3, 0, True)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_new_epoch_must_wait_when_the_older_transaction_has_not_ended() -> None:
    states = after(header(0, transactional=True))
    early = header(1, epoch=1, transactional=True)
    assert refusal(states, early) is ErrorCode.CONCURRENT_TRANSACTIONS
    end(states, 1, Marker(7, 1, 0, True))
    append(states, header(2, epoch=1, transactional=True))
    assert states.open_transaction(7) == 2


def test_plain_batch_is_refused_when_a_transaction_is_open() -> None:
    states = after(header(0, transactional=True))
    assert refusal(states, header(1, sequence=1)) is ErrorCode.INVALID_TRANSACTION_STATE
    append(states, header(1, sequence=1, transactional=True))


# Housekeeping.


def test_expire_forgets_idle_producers_when_they_have_no_open_transaction() -> None:
    states = ProducerStates()
    append(states, header(0, producer=1), now_ms=1000)
    append(states, header(1, producer=2, transactional=True), now_ms=1000)
    append(states, header(2, producer=3), now_ms=1500)
    assert states.expire(1999, 1000) == []
    assert states.expire(2000, 1000) == [1]
    assert states.expire(9000, 1000) == [3]
    assert 2 in states
    assert refusal(states, header(3, producer=1, sequence=1)) is ErrorCode.UNKNOWN_PRODUCER_ID
    end(states, 3, Marker(2, 1, 0, True), now_ms=9000)
    assert states.expire(10000, 1000) == [2]


def test_producer_counts_as_alive_when_it_repeats_a_batch() -> None:
    states = ProducerStates()
    append(states, header(0), now_ms=1000)
    assert states.check(header(1), now_ms=5000) == Duplicate(0, 0, -1)
    assert states.expire(5500, 1000) == []


def test_duplicate_is_still_known_when_retention_has_removed_the_original() -> None:
    states = after(header(0, records=10), header(10, sequence=10))
    states.drop_below(11)
    assert states.check(header(11, records=10), now_ms=0) == Duplicate(0, 9, -1)
    append(states, header(11, sequence=11))


def test_first_unstable_is_not_below_the_log_start_when_that_has_moved_into_a_transaction() -> None:
    states = after(header(0, transactional=True, records=10))
    states.drop_below(6)
    assert states.last_stable_offset(10) == 6
    assert end(states, 10, Marker(7, 1, 0, False)) == [AbortedTransaction(7, 0, 10, 11)]
    states.drop_below(11)
    assert states.first_unstable_offset(5) is None


def test_cleaner_keeps_the_last_batch_or_marker_when_asked() -> None:
    states = after(header(0, producer=1, records=3), header(3, producer=1, sequence=3, records=2), header(5))
    assert states.last_batch_offsets() == {1: 4, 7: 5}
    end(states, 6, Marker(7, 0, 0, True))
    assert states.last_batch_offsets() == {1: 4, 7: 5}
    end(states, 7, Marker(7, 1, 0, True), Marker(9, 0, 0, True))
    assert states.last_batch_offsets() == {1: 4, 7: 8, 9: 8}


def test_describe_tells_each_producer_when_some_have_transactions() -> None:
    states = after(
        header(0, producer=1, epoch=2, records=4), header(4, transactional=True, append_timestamp=900)
    )
    end(states, 5, Marker(8, 6, 3, True))
    assert states.describe() == [
        ProducerDescription(1, 2, 3, 600, -1, -1),
        ProducerDescription(7, 0, 0, 900, -1, 4),
        ProducerDescription(8, 6, -1, -1, 3, -1),
    ]


def test_copy_is_independent_when_the_original_changes() -> None:
    states = after(header(0, transactional=True))
    copied = states.copy()
    append(states, header(1, sequence=1, transactional=True))
    end(states, 2, Marker(7, 1, 0, True))
    append(copied, header(1, sequence=1, transactional=True))
    assert copied.open_transaction(7) == 0
    assert copied.first_unstable_offset(2) == 0
