"""Damage in files beside the segments: derived ones cost time and no data, identities give a clear error."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.topic_config import TopicConfig
from tests.support.checks import check_consistent
from tests.support.driving import fault_files, killed, next_life, restart, rewrite
from tests.support.engine import ORDERS, Engine, append, end_transaction, values_of
from tests.support.fault_files import FaultFiles

SEGMENTED = TopicConfig(segment_bytes=600, index_interval_bytes=150)


def closed_engine() -> Engine:
    engine = Engine()
    for value in (b"a", b"b"):
        append(engine.log(), value)
        engine.drain()
    engine.close()
    return engine


def with_history() -> Engine:
    """Segments, epochs, producers, aborted transactions and snapshots, some past the last checkpoint."""
    engine = Engine(topic=SEGMENTED)
    log = engine.log()
    for number in range(8):
        append(log, b"t" * 30, producer=(5, number, 0), transactional=True, epoch=0)
        append(log, b"p" * 30, b"q", producer=(1, 0, number * 2))
        end_transaction(log, 5, commit=number % 3 == 0, producer_epoch=number)
        engine.drain()
        if number == 5:
            log.files.checkpoint()
            engine.drain()
            engine.manager.directories[0].save_checkpoint()
            engine.drain()
    append(log, b"later", epoch=4)
    log.advance_high_watermark(20)
    engine.drain()
    return engine


def described(engine: Engine) -> tuple[object, ...]:
    log = engine.log()
    return (
        values_of(log),
        log.epochs.entries(),
        sorted((one.producer_id, one.producer_epoch, one.last_sequence, one.transaction_start_offset)
               for one in log.producers.describe()),
        [(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted_transactions(0, 99)],
        log.log_start_offset,
        log.end_offset,
    )  # fmt: skip


DAMAGE: dict[str, Callable[[FaultFiles, str], None]] = {
    "deleted": lambda files, path: files.delete_file(path),
    "emptied": lambda files, path: rewrite(files, path, b""),
    "cut": lambda files, path: rewrite(files, path, files.read(path)[: len(files.read(path)) // 2]),
    "flipped": lambda files, path: files.flip_bit(path, len(files.read(path)) // 2, 3),
    "garbage": lambda files, path: rewrite(files, path, Random(3).randbytes(500)),
}
DERIVED = [".index", ".txnindex", ".producers", "log-state.json", "/data/checkpoint.json"]


@pytest.mark.parametrize("how", ["clean", "unclean"])
@pytest.mark.parametrize("suffix", DERIVED)
@pytest.mark.parametrize("damage", DAMAGE)
def test_log_is_the_same_when_derived_files_are_damaged(damage: str, suffix: str, how: str) -> None:
    engine = with_history()
    expected = described(engine)
    files = fault_files(engine)
    if how == "clean":
        engine.close()
    else:
        files = files.kill()
    hit = [path for path in files.files_below("/data") if path.endswith(suffix) and files.read(path)]
    assert hit
    for path in hit:
        DAMAGE[damage](files, path)
    again = next_life(engine, files)
    assert not again.report.corrupt
    assert described(again) == expected
    check_consistent(again.log(), f"{suffix} {damage}")
    for _ in range(2):
        append(again.log(), b"goes on", epoch=5)
        again.drain()
        again.tick(31_000)
    third = killed(again)
    assert not third.report.corrupt
    assert described(third)[3] == expected[3]
    check_consistent(third.log(), f"{suffix} {damage}, once more")


def test_aborted_transactions_stay_known_when_the_active_index_is_damaged_and_work_goes_on() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"aborted", producer=(5, 0, 0), transactional=True)
    end_transaction(log, 5, commit=False)
    engine.drain()
    engine.close()
    files = fault_files(engine)
    files.flip_bit(log.active.sibling(".txnindex"), 10)
    engine = next_life(engine)
    log = engine.log()
    append(log, b"more", producer=(5, 1, 0), transactional=True)
    end_transaction(log, 5, commit=False, producer_epoch=1)
    for _ in range(3):
        engine.tick(31_000)
    for _ in range(2):
        aborted = engine.log().aborted_transactions(0, 4)
        assert [(one.first_offset, one.last_offset) for one in aborted] == [(0, 1), (2, 3)]
        engine = restart(engine)


@pytest.mark.parametrize("damage", ["emptied", "cut", "flipped", "garbage"])
@pytest.mark.parametrize("name", ["/data/orders-0/partition.json", "/data/directory.json"])
def test_opening_names_the_path_when_identity_is_damaged(name: str, damage: str) -> None:
    engine = closed_engine()
    files = fault_files(engine)
    DAMAGE[damage](files, name)
    before = files.files_below("/data/orders-0")
    try:
        # A log that nobody can name is set aside alone; without its own identity the directory is not used.
        error = next_life(engine).report.corrupt[ORDERS]
        assert name.endswith("partition.json")
    except TailraceError as stopped:
        error = stopped
    assert error.code is ErrorCode.STORAGE_CORRUPT
    assert name in str(error)
    assert files.files_below("/data/orders-0") == before


def test_opening_names_the_path_when_segments_have_no_identity() -> None:
    engine = closed_engine()
    fault_files(engine).delete_file("/data/orders-0/partition.json")
    try:
        again = next_life(engine)
        error = again.report.corrupt[ORDERS]
        again.tick(100_000)
    except TailraceError as stopped:
        error = stopped
    assert "/data/orders-0" in str(error)
    assert fault_files(engine).exists(f"/data/orders-0/{0:020d}.log")
