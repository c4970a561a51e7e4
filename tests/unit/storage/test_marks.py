"""Sync marks: read by the log that wrote them, and by nobody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tailrace.cluster.common.batch import BatchHeader, check_batch, leader_part
from tailrace.cluster.storage.core.marks import SyncMarks
from tests.support.engine import Engine, append, batch_of, values_of

OWN = SyncMarks(b"secret", b"t" * 16, 3)


def header_with(mark: int, base_offset: int) -> BatchHeader:
    batch = batch_of(b"v")
    head = leader_part(size=len(batch), base_offset=base_offset, leader_epoch=0, sync_mark=mark)
    return check_batch(head + batch[len(head) :])


@given(st.integers(0, 2**60), st.integers(0, 2**32 - 2))
def test_mark_tells_the_synced_end_when_read_by_its_own_log(base: int, span: int) -> None:
    synced = max(base - span, 0)
    assert OWN.synced_before(header_with(OWN.mark(base, synced), base)) == synced


def test_mark_proves_nothing_when_the_span_did_not_fit() -> None:
    base = 2**40
    for span in (2**32 - 1, 2**32, 2**39):
        assert OWN.synced_before(header_with(OWN.mark(base, base - span), base)) == 0


def test_mark_proves_nothing_when_another_log_or_directory_wrote_it() -> None:
    others = [
        SyncMarks(b"other", b"t" * 16, 3),
        SyncMarks(b"secret", b"u" * 16, 3),
        SyncMarks(b"secret", b"t" * 16, 4),
    ]
    wrong = sum(
        other.synced_before(header_with(OWN.mark(base, base), base)) > base - 1_000_000
        for other in others
        for base in range(10_000_000, 10_000_300)
    )
    assert wrong <= 3  # A mask agrees in its upper bits by chance, one time in some thousand.


def test_waiters_are_all_told_when_one_of_them_raises() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"a")
    told: list[int] = []

    def broken(error: Exception | None) -> None:
        raise ValueError("a caller's mistake")

    log.when_durable(1, broken)
    log.when_durable(1, lambda error: told.append(1))
    engine.drain()
    assert told == [1]
    assert values_of(log) == [(0, b"a")]
