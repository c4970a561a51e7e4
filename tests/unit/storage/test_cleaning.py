"""Which log is cleaned and how far, and what stays of single batches."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.batch import BatchHeader, check_batch
from tailrace.cluster.common.codecs import Codec
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.control import encode_marker
from tailrace.cluster.common.records import Batch
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.cleaning import AbortedRanges, BatchFilter, Decision, Verdict, note_keys
from tailrace.cluster.storage.core.cleaning_plan import (
    Assessment,
    active_is_overdue,
    assess,
    choose,
    group_segments,
)
from tailrace.cluster.storage.core.keymap import KeyMap
from tailrace.cluster.storage.core.retention import MAX_RELATIVE_OFFSET, SegmentFacts
from tests.unit.storage.compaction_model import make_undecodable

NOW = 100_000


def five_segments() -> list[SegmentFacts]:
    """Offsets 0 to 50 in tens, 100 bytes each; the last one is active."""
    return [SegmentFacts(start, start + 10, 100, 1_000 + start, 1_000 + start) for start in range(0, 50, 10)]


def found(
    facts: list[SegmentFacts],
    *,
    checkpoint: int = 0,
    log_start: int = 0,
    last_stable_offset: int = 50,
    min_lag: int = 0,
    max_lag: int = -1,
    horizon: int | None = None,
    now_ms: int = NOW,
) -> Assessment:
    return assess(
        facts,
        checkpoint=checkpoint,
        log_start=log_start,
        last_stable_offset=last_stable_offset,
        min_compaction_lag_ms=min_lag,
        max_compaction_lag_ms=max_lag,
        next_horizon_ms=horizon,
        now_ms=now_ms,
    )


def test_assessment_ends_before_active_segment_when_all_is_stable() -> None:
    assessment = found(five_segments(), checkpoint=20)
    assert (assessment.first_dirty, assessment.end) == (20, 40)
    assert (assessment.clean_bytes, assessment.dirty_bytes) == (200, 200)
    assert assessment.dirty_ratio == 0.5


@pytest.mark.parametrize(("stable", "end"), [(40, 40), (39, 30), (30, 30), (9, 0), (0, 0)])
def test_assessment_ends_at_segment_boundary_when_last_stable_offset_lies_within(
    stable: int, end: int
) -> None:
    assert found(five_segments(), last_stable_offset=stable).end == end


def test_assessment_ends_before_young_segment_when_compaction_must_wait() -> None:
    facts = five_segments()
    assert found(facts, min_lag=50, now_ms=1_069).end == 20
    assert found(facts, min_lag=50, now_ms=1_070).end == 30
    # What has been cleaned before is cleaned again, however young.
    assert found(facts, checkpoint=30, min_lag=10_000, now_ms=1_069).end == 30
    # Without a lag, a timestamp from the future holds nothing back.
    assert found(facts, now_ms=0).end == 40


@pytest.mark.parametrize(("checkpoint", "log_start", "first_dirty"), [(20, 0, 20), (5, 10, 10), (51, 10, 10)])
def test_assessment_begins_at_log_start_when_checkpoint_is_outside_the_log(
    checkpoint: int, log_start: int, first_dirty: int
) -> None:
    assert found(five_segments(), checkpoint=checkpoint, log_start=log_start).first_dirty == first_dirty


def test_log_needs_cleaning_when_ratio_is_exceeded() -> None:
    assessment = found(five_segments(), checkpoint=20)
    assert assessment.needs_cleaning(0.49)
    assert not assessment.needs_cleaning(0.5)
    assert not found(five_segments(), checkpoint=40).needs_cleaning(0.0)


def test_log_needs_cleaning_when_a_record_waits_too_long() -> None:
    facts = five_segments()
    assert found(facts, checkpoint=20, max_lag=100, now_ms=1_121).needs_cleaning(1.0)
    assert not found(facts, checkpoint=20, max_lag=100, now_ms=1_120).needs_cleaning(1.0)
    assert not found(facts, checkpoint=40, max_lag=100, now_ms=9_999).needs_cleaning(1.0)


def test_log_needs_cleaning_when_tombstones_have_expired() -> None:
    facts = five_segments()
    assert found(facts, checkpoint=40, horizon=NOW).needs_cleaning(1.0)
    assert not found(facts, checkpoint=40, horizon=NOW + 1).needs_cleaning(1.0)


def test_choice_falls_on_overdue_log_then_on_filthiest_when_several_wait() -> None:
    facts = five_segments()
    filthy, less = found(facts), found(facts, checkpoint=10)
    overdue = found(facts, checkpoint=30, max_lag=1)
    clean = found(facts, checkpoint=40)
    assert choose({"clean": (clean, 0.1), "less": (less, 0.1), "filthy": (filthy, 0.1)}) == "filthy"
    assert choose({"filthy": (filthy, 0.1), "overdue": (overdue, 0.9)}) == "overdue"
    assert choose({"filthy": (filthy, 1.0), "less": (less, 0.7)}) == "less"
    assert choose({"clean": (clean, 0.0)}) is None


def test_active_segment_is_overdue_when_its_first_record_waits_too_long() -> None:
    active = SegmentFacts(0, 5, 10, 3_000, 1_000)
    assert active_is_overdue(active, max_compaction_lag_ms=100, now_ms=1_101)
    assert not active_is_overdue(active, max_compaction_lag_ms=100, now_ms=1_100)
    assert not active_is_overdue(active, max_compaction_lag_ms=-1, now_ms=10**9)
    assert not active_is_overdue(active._replace(size=0), max_compaction_lag_ms=100, now_ms=10**9)


def test_groups_stay_within_limits_when_neighbours_are_merged() -> None:
    facts = [segment._replace(index_bytes=10) for segment in five_segments()]

    def sizes(segment_bytes: int, index_bytes: int = -1) -> list[int]:
        groups = group_segments(facts, segment_bytes=segment_bytes, index_bytes=index_bytes)
        assert [segment for group in groups for segment in group] == facts
        return [len(group) for group in groups]

    assert sizes(500) == [5]
    assert sizes(299) == [2, 2, 1]
    assert sizes(50) == [1, 1, 1, 1, 1]
    assert sizes(500, 30) == [3, 2]
    assert group_segments([], segment_bytes=100) == []


def test_groups_split_when_relative_offsets_would_overflow() -> None:
    far = SegmentFacts(10, MAX_RELATIVE_OFFSET + 1, 1, 0)
    further = far._replace(next_offset=MAX_RELATIVE_OFFSET + 2)
    first = SegmentFacts(0, 10, 1, 0)
    assert len(group_segments([first, far], segment_bytes=100)) == 1
    assert len(group_segments([first, further], segment_bytes=100)) == 2


def batch_of(
    records: list[tuple[bytes | None, bytes | None]],
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    transactional: bool = False,
    delete_horizon: int = -1,
    codec: Codec = Codec.NONE,
) -> bytes:
    return encode_batch(
        keys=[key for key, _ in records],
        values=[value for _, value in records],
        timestamps=5,
        base_offset=base_offset,
        leader_epoch=4,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=-1 if producer_id < 0 else 70,
        transactional=transactional,
        delete_horizon=delete_horizon,
        codec=codec,
    )


def filter_with(
    latest: dict[bytes, int] | None = None,
    *,
    map_end: int = 1_000,
    pinned: frozenset[int] = frozenset(),
    aborted: list[AbortedTransaction] | None = None,
) -> BatchFilter:
    keymap = KeyMap(1 << 20)
    keymap.put_batch(list(latest or {}), list((latest or {}).values()))
    return BatchFilter(
        keymap=keymap,
        map_end=map_end,
        aborted=AbortedRanges(aborted or []),
        pinned=pinned,
        delete_retention_ms=500,
        now_ms=NOW,
    )


def retain(batches: BatchFilter, data: bytes) -> Decision:
    return batches.retain(check_batch(data), data, 0)


def rewritten(decision: Decision) -> Batch:
    assert decision.verdict is Verdict.REWRITE
    assert decision.data is not None
    return Batch(decision.data)


def test_filter_keeps_batch_as_it_is_when_no_key_is_newer() -> None:
    data = batch_of([(b"a", b"1"), (b"b", b"2")])
    assert retain(filter_with({b"a": 0, b"z": 9}), data) == Decision(Verdict.KEEP, kept=2)


@pytest.mark.parametrize("codec", list(Codec))
def test_filter_rewrites_batch_when_some_keys_are_newer(codec: Codec) -> None:
    data = batch_of([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")], base_offset=7, codec=codec)
    decision = retain(filter_with({b"a": 9}), data)
    assert (decision.kept, decision.dropped) == (2, 1)
    batch = rewritten(decision)
    assert list(batch.offsets()) == [8, 9]
    assert batch.values() == [b"2", b"3"]
    assert (batch.header.last_offset, batch.header.leader_epoch) == (9, 4)


def test_filter_drops_batch_when_all_keys_are_newer() -> None:
    data = batch_of([(b"a", b"1")])
    assert retain(filter_with({b"a": 5}), data) == Decision(Verdict.DROP, dropped=1)


def test_filter_keeps_header_when_batch_is_its_producers_last() -> None:
    data = batch_of([(b"a", b"1"), (b"a", b"2")], producer_id=3)
    empty = rewritten(retain(filter_with({b"a": 5}, pinned=frozenset({1})), data)).header
    assert (empty.record_count, empty.last_offset, empty.last_sequence) == (0, 1, 71)
    assert (empty.producer_id, empty.producer_epoch) == (3, 0)
    # Once empty it stays as it is, and goes when it is no longer the last.
    again = Batch(retain(filter_with({b"a": 5}, pinned=frozenset({1})), data).data or b"")
    assert retain(filter_with(pinned=frozenset({1})), bytes(again.data)).verdict is Verdict.KEEP
    assert retain(filter_with(), bytes(again.data)).verdict is Verdict.DROP


def test_filter_keeps_batch_when_it_ends_beyond_the_key_map() -> None:
    data = batch_of([(b"a", b"1"), (b"a", None)])
    assert retain(filter_with({b"a": 5}, map_end=1), data).verdict is Verdict.KEEP
    assert retain(filter_with({b"a": 5}, map_end=2), data).verdict is Verdict.DROP


def test_filter_stamps_horizon_when_it_first_meets_a_tombstone() -> None:
    batches = filter_with()
    stamped = rewritten(retain(batches, batch_of([(b"a", None), (b"b", b"1")])))
    assert stamped.header.delete_horizon == NOW + 500
    assert stamped.values() == [None, b"1"]
    assert batches.next_horizon_ms == NOW + 500


def test_filter_keeps_horizon_when_it_meets_a_tombstone_again() -> None:
    waiting = batch_of([(b"a", None), (b"b", b"1")], delete_horizon=NOW + 1)
    batches = filter_with()
    assert retain(batches, waiting).verdict is Verdict.KEEP
    assert batches.next_horizon_ms == NOW + 1
    smaller = rewritten(retain(filter_with({b"b": 9}), waiting))
    assert (smaller.header.delete_horizon, smaller.values()) == (NOW + 1, [None])


def test_filter_drops_tombstone_when_horizon_is_reached() -> None:
    expired = batch_of([(b"a", None), (b"b", b"1")], delete_horizon=NOW)
    batches = filter_with()
    assert rewritten(retain(batches, expired)).keys() == [b"b"]
    assert batches.next_horizon_ms is None
    only = batch_of([(b"a", None)], delete_horizon=NOW)
    assert retain(filter_with(), only).verdict is Verdict.DROP


def test_filter_stamps_nothing_when_tombstone_is_superseded() -> None:
    batches = filter_with({b"a": 9})
    smaller = rewritten(retain(batches, batch_of([(b"a", None), (b"b", b"1")])))
    assert smaller.header.delete_horizon == -1
    assert batches.next_horizon_ms is None


def test_aborted_ranges_cover_only_that_transaction_when_producer_goes_on() -> None:
    ranges = AbortedRanges([AbortedTransaction(3, 20, 29, 30), AbortedTransaction(3, 0, 5, 6)])

    def covered(base_offset: int, producer_id: int = 3, transactional: bool = True) -> bool:
        data = batch_of(
            [(b"a", b"1")], base_offset=base_offset, producer_id=producer_id, transactional=transactional
        )
        return ranges.covers(check_batch(data))

    assert [offset for offset in range(40) if covered(offset)] == [*range(6), *range(20, 30)]
    assert not covered(3, producer_id=4)
    assert not covered(3, transactional=False)


def test_filter_keeps_shared_marker_when_one_of_its_transactions_has_data() -> None:
    marker = encode_marker(
        commit=False, producers=[(1, 0), (2, 0)], coordinator_epoch=1, timestamp=5, base_offset=10
    )
    batches = filter_with()
    retain(batches, batch_of([(b"a", b"1")], producer_id=2, transactional=True))
    assert retain(batches, marker).verdict is Verdict.KEEP
    assert batches.forgotten == {(1, 11)}
    assert retain(filter_with(map_end=11), marker).verdict is Verdict.KEEP
    assert rewritten(retain(filter_with(), marker)).header.delete_horizon == NOW + 500


def test_filter_keeps_and_names_control_batch_when_it_cannot_be_decoded() -> None:
    marker = make_undecodable(
        encode_marker(commit=True, producers=[(1, 0)], coordinator_epoch=1, timestamp=5, base_offset=10)
    )
    batches = filter_with()
    assert retain(batches, marker).verdict is Verdict.KEEP
    assert [entry.base_offset for entry in batches.undecodable] == [10]


def test_filter_keeps_aborted_batch_when_pinned_even_if_undecodable() -> None:
    data = make_undecodable(batch_of([(b"a", b"1")], producer_id=1, transactional=True))
    aborted = [AbortedTransaction(1, 0, 5, 6)]
    kept = retain(filter_with(aborted=aborted, pinned=frozenset({0})), data)
    assert kept.verdict in (Verdict.KEEP, Verdict.REWRITE)
    assert retain(filter_with(aborted=aborted), data).verdict is Verdict.DROP


def test_keys_are_noted_unless_batch_is_aborted_or_undecodable_or_control() -> None:
    keymap = KeyMap(1 << 20)
    aborted = AbortedRanges([AbortedTransaction(1, 0, 5, 6)])

    def note(data: bytes) -> BatchHeader:
        header = check_batch(data)
        note_keys(keymap, header, data, 0, aborted)
        return header

    note(batch_of([(b"aborted", b"1")], producer_id=1, transactional=True))
    note(make_undecodable(batch_of([(b"hidden", b"1")])))
    note(encode_marker(commit=True, producers=[(1, 0)], coordinator_epoch=1, timestamp=5))
    assert len(keymap) == 0
    note(batch_of([(b"a", b"1"), (None, b"2"), (b"b", None)], base_offset=20))
    assert keymap.last_offsets([b"a", b"b", None]).tolist() == [20, 22, -1]


def test_keys_are_not_noted_when_values_cannot_be_decoded() -> None:
    """The checksum is right and so are the keys, but the sizes of the values do not add up."""
    from google_crc32c import value as crc32c

    data = bytearray(batch_of([(b"k", b"12"), (b"k", b"3456")]))
    sizes = data.index(bytes([2, 4]), 92 + 5 * 4)
    data[sizes : sizes + 2] = bytes([2, 5])
    data[32:36] = crc32c(bytes(data[36:])).to_bytes(4, "little")
    broken = bytes(data)
    keymap = KeyMap(1 << 20)
    header = check_batch(broken)
    assert Batch(broken).keys() == [b"k", b"k"]
    note_keys(keymap, header, broken, 0, AbortedRanges([]))
    assert len(keymap) == 0
    batches = filter_with({b"k": 9})
    assert retain(batches, broken).verdict is Verdict.KEEP
    assert [entry.base_offset for entry in batches.undecodable] == [0]
