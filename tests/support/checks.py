"""What must hold for a log, whatever happened to it before."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.cluster.common.control import decode_markers
from tailrace.cluster.storage.core.aborted import AbortedTransaction
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.log import Log


def check_consistent(log: Log, where: str) -> None:
    """The state that a log keeps beside its batches says the same as the batches."""
    epochs, states = EpochHistory(), ProducerStates()
    aborted: list[AbortedTransaction] = []
    expected = log.segments[0].base_offset
    for batch in log.batches(log.segments[0].base_offset if log.log_start_offset == expected else None):
        header = batch.header
        assert header.base_offset >= expected or expected == log.segments[0].base_offset, where
        expected = header.next_offset
        epochs.assign(header.leader_epoch, header.base_offset)
        markers = decode_markers(batch) if header.is_control else ()
        aborted += states.apply(header, now_ms=0, markers=markers)
    epochs.truncate_start(log.log_start_offset)
    # Without batches only the log's own memory tells which epochs came before.
    assert not len(epochs) or log.epochs.entries() == epochs.entries(), (
        f"{where}: {log.epochs} is not {epochs}"
    )
    if log.log_start_offset == log.segments[0].base_offset == 0:
        assert _described(log.producers) == _described(states), f"{where}: producers differ"
        found = log.aborted_transactions(0, log.end_offset)
        assert _ranges(found) == _ranges(aborted), f"{where}: aborted transactions differ"


def _described(states: ProducerStates) -> list[tuple[int, ...]]:
    return sorted(
        (one.producer_id, one.producer_epoch, one.last_sequence, one.transaction_start_offset)
        for one in states.describe()
    )


def _ranges(aborted: Sequence[AbortedTransaction]) -> list[tuple[int, int, int]]:
    return sorted((one.producer_id, one.first_offset, one.last_offset) for one in aborted)
