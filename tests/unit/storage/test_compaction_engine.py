"""Compaction as the engine does it: beside appends, truncations and retention, and cut off at every step."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.runtime.blocking import Job
from tests.support.compacting import CLEANING, COMPACTED, KeyedLog
from tests.support.driving import (
    check_invariants,
    fault_files,
    killed,
    next_life,
    offsets_of,
    power_lost,
    restart,
)
from tests.support.engine import Engine, append, end_transaction, values_of
from tests.support.fault_files import FaultFiles, PowerLost, on
from tests.support.fault_plan import When


def keyed(topic: TopicConfig = COMPACTED, files: FaultFiles | None = None) -> KeyedLog:
    keyed_log = KeyedLog(Engine(files, config=CLEANING, topic=topic))
    assert keyed_log.log.end_offset == 0
    keyed_log.engine.drain()
    return keyed_log


def records(keyed_log: KeyedLog) -> int:
    return len(values_of(keyed_log.log))


def test_cleaning_keeps_the_last_value_of_each_key_when_ticks_go_by() -> None:
    one = keyed()
    one.fill(12)
    one.commit()
    before, size = one.log.end_offset, one.log.size
    one.engine.tick()
    assert records(one) < before
    assert one.log.size < size
    assert one.log.end_offset == before
    one.check(one.log, "live")
    check_invariants(one.log)
    kept = offsets_of(one.log)
    for end_life in (restart, killed, power_lost):
        one.engine = end_life(one.engine)
        assert not one.engine.report.corrupt
        assert offsets_of(one.log) == kept
        one.check(one.log, end_life.__name__)


def test_nothing_is_cleaned_when_it_lies_above_the_last_stable_offset() -> None:
    one = keyed()
    one.fill(4)
    append(one.log, b"t", keys=[b"k0"], producer=(9, 0, 0), transactional=True)
    one.engine.drain()
    one.fill(8)
    one.engine.drain()
    one.engine.tick()
    assert records(one) == one.log.end_offset, "nothing is committed yet"
    one.log.advance_high_watermark(one.log.end_offset)
    stable = one.log.last_stable_offset
    assert stable == 12
    one.engine.tick()
    assert [offset for offset in offsets_of(one.log) if offset >= stable] == list(
        range(stable, one.log.end_offset)
    )
    assert len([offset for offset in offsets_of(one.log) if offset < stable]) < stable


def test_appends_and_reads_go_on_when_a_cleaning_is_under_way() -> None:
    one = keyed()
    one.fill(10)
    one.commit()
    engine = one.engine
    engine.now_ms += 1000
    engine.manager.tick(engine.now_ms)
    steps = 0
    while engine.blocking.run_one():
        steps += 1
        if steps < 30:
            one.put(b"k%d" % (steps % 5))
        one.check(one.log, f"after job {steps}")
        check_invariants(one.log)
        assert offsets_of(one.log)[-1] == one.log.end_offset - 1
    assert records(one) < one.log.end_offset
    one.engine = power_lost(engine)
    one.check(one.log, "after power loss")


def begin_cleaning(one: KeyedLog, jobs: int) -> None:
    """Start a cleaning and run so many of the jobs that belong to it."""
    one.engine.now_ms += 1000
    one.engine.manager.tick(one.engine.now_ms)
    for _ in range(jobs):
        one.engine.blocking.run_one()


@pytest.mark.parametrize("jobs", range(6))
@pytest.mark.parametrize("offset", [0, 4, 13, 20, 25, 29])
def test_truncation_wins_when_a_cleaning_is_under_way(jobs: int, offset: int) -> None:
    one = keyed()
    one.fill(10)
    one.log.advance_high_watermark(20)
    begin_cleaning(one, jobs)
    end = one.log.truncate_to(offset, now_ms=one.engine.now_ms)
    assert end <= offset
    one.forget_from(end)
    if offset < 20:
        # After an unclean election: older values may have been cleaned away for newer ones that go now.
        one.acknowledged.clear()
    check_invariants(one.log)
    one.put(b"k0", epoch=1)
    one.engine.drain()
    check_invariants(one.log)
    one.check(one.log, "live")
    for end_life in (killed, power_lost, restart):
        one.engine = end_life(one.engine)
        assert not one.engine.report.corrupt
        one.check(one.log, end_life.__name__)
        check_invariants(one.log)
    assert not [
        name for name in fault_files(one.engine).files_below("/data") if name.endswith((".cleaned", ".swap"))
    ]


@pytest.mark.parametrize("jobs", range(6))
def test_retention_and_cleaning_agree_when_both_are_under_way(jobs: int) -> None:
    one = keyed(replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_bytes=900))
    one.fill(10)
    one.commit()
    begin_cleaning(one, jobs)
    one.engine.manager.enforce_retention(one.engine.now_ms)
    one.log.delete_records(min(20, one.log.high_watermark))
    one.engine.drain()
    for _ in range(4):
        one.engine.tick(2000)
        check_invariants(one.log)
    assert one.log.log_start_offset >= 20
    assert not one.engine.offline
    assert one.log.size <= 900 + 500
    expected = offsets_of(one.log)
    for end_life in (restart, killed):
        one.engine = end_life(one.engine)
        assert offsets_of(one.log) == expected
        one.check(one.log, end_life.__name__)


@pytest.mark.parametrize("jobs", range(6))
def test_deletion_of_the_log_ends_a_cleaning_when_one_is_under_way(jobs: int) -> None:
    one = keyed()
    one.fill(10)
    one.commit()
    begin_cleaning(one, jobs)
    one.engine.manager.delete(one.log.topic_partition)
    one.engine.drain()
    fresh = KeyedLog(one.engine)
    fresh.put(b"new")
    one.engine.drain()
    for _ in range(3):
        one.engine.tick(2000)
    assert not one.engine.offline
    again = killed(one.engine)
    assert [offset for offset, _ in values_of(again.log())] == [0]
    fresh.check(again.log(), "created anew")


def test_close_waits_for_a_cleaning_when_one_is_under_way() -> None:
    for jobs in range(6):
        one = keyed()
        one.fill(10)
        one.commit()
        begin_cleaning(one, jobs)
        one.engine.close()
        one.engine = next_life(one.engine)
        assert one.engine.report.directories["/data"].clean
        one.check(one.log, f"closed after {jobs} jobs")
        leftovers = [name for name in fault_files(one.engine).files_below("/data") if ".cleaned" in name]
        assert leftovers == []


@pytest.mark.parametrize(
    "failing", [on("create", ".log.cleaned"), on("datasync", ".log.cleaned"), on("write", ".index.cleaned")]
)
def test_log_stays_as_it_is_and_in_use_when_its_cleaning_fails(failing: When) -> None:
    one = keyed()
    one.fill(10)
    one.commit()
    fault = fault_files(one.engine).fail(errno.EIO, failing, times=None)
    one.engine.tick()
    assert fault.hits
    assert records(one) == 30
    assert not one.engine.offline, "the log itself is whole"
    one.put(b"k0")
    one.engine.drain()
    one.check(one.log, "live")


def test_tombstones_go_after_their_time_when_the_log_is_quiet() -> None:
    one = keyed()
    one.fill(3)
    one.put(b"k0", tombstone=True)
    one.commit()
    one.log.roll(now_ms=one.engine.now_ms)
    one.engine.drain()
    one.engine.tick()
    assert [value for _, value in values_of(one.log)].count(None) == 1
    one.engine.tick(9000)
    assert [value for _, value in values_of(one.log)].count(None) == 1
    for _ in range(2):
        one.engine.tick(2000)
    assert [value for _, value in values_of(one.log)].count(None) == 0
    one.check(one.log, "live")


@pytest.mark.parametrize("end_life", [restart, killed])
def test_tombstones_go_after_their_time_when_the_process_restarted_meanwhile(
    end_life: Callable[[Engine], Engine],
) -> None:
    one = keyed()
    one.fill(3)
    one.put(b"k0", tombstone=True)
    one.commit()
    one.log.roll(now_ms=one.engine.now_ms)
    one.engine.drain()
    one.engine.tick()
    for _ in range(3):
        one.engine.tick(1000)
    one.engine = end_life(one.engine)
    for _ in range(5):
        one.engine.tick(6000)
    assert [value for _, value in values_of(one.log)].count(None) == 0
    one.check(one.log, end_life.__name__)


def test_aborted_records_are_never_the_last_value_when_cleaned() -> None:
    one = keyed()
    one.put(b"k")
    one.engine.drain()
    for epoch in range(4):
        append(one.log, b"aborted" * 9, keys=[b"k"], producer=(7, epoch, 0), transactional=True)
        end_transaction(one.log, 7, commit=False, producer_epoch=epoch)
        one.engine.drain()
    for _ in range(8):
        append(one.log, b"filler" * 9, keys=[b"f"])
        one.engine.drain()
    one.commit()
    for _ in range(3):
        one.engine.tick()
    visible = []
    aborted = {(entry.producer_id, entry.first_offset): entry.last_offset
               for entry in one.log.aborted_transactions(0, one.log.end_offset)}  # fmt: skip
    for batch in one.log.batches():
        header = batch.header
        hidden = any(
            producer == header.producer_id and first <= header.base_offset <= last
            for (producer, first), last in aborted.items()
        )
        if not header.is_control and not hidden:
            visible += [
                offset for offset, key in zip(batch.offsets(), batch.keys(), strict=True) if key == b"k"
            ]
    assert visible == [0]


def test_recovery_point_is_not_moved_into_a_cleaned_segment_when_its_checkpoint_ends_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer is slow to say that a checkpoint is done; a cleaning of the same segment overtakes it."""
    one = keyed(replace(COMPACTED, segment_bytes=2000))
    engine, log = one.engine, one.log
    append(log, b"x" * 300, keys=[b"k"])
    engine.drain()
    log.files.checkpoint()
    late: list[Job] = []
    with monkeypatch.context() as patch:
        patch.setattr(engine.blocking, "post", late.append)
        engine.drain()
    log.roll(now_ms=engine.now_ms)
    append(log, b"y" * 350, keys=[b"k"])
    append(log, b"z" * 350, keys=[b"l"])
    log.roll(now_ms=engine.now_ms)
    append(log, b"active", keys=[b"m"])
    engine.drain()
    log.advance_high_watermark(log.end_offset)
    engine.tick()
    assert offsets_of(log) == [1, 2, 3], "the first record is cleaned away"
    for call in late:
        call()
    engine.drain()
    engine.manager.directories[0].save_checkpoint()
    engine.drain()
    again = killed(engine)
    assert not again.report.corrupt
    assert offsets_of(again.log()) == [1, 2, 3]


def test_no_second_cleaning_touches_the_log_when_the_swap_of_the_one_before_waits() -> None:
    """The writer is busy, so a cleaned segment has its place in memory but not yet its name on the disk."""
    one = keyed()
    engine = one.engine
    one.fill(6)
    one.commit()
    engine.manager.tick(engine.now_ms + 1000)
    jobs = engine.blocking._queue
    clean = jobs.popleft()
    one.fill(6)
    one.commit()
    before = offsets_of(one.log)
    clean()
    engine.blocking.run_one()
    assert offsets_of(one.log) != before, "the result has been put in place, and its swap is queued"
    swap = jobs.popleft()
    for second in range(2, 5):
        engine.manager.tick(engine.now_ms + 1000 * second)
        while engine.blocking.run_one():
            pass
        one.check(one.log, "while the swap waits")
    swap()
    engine.drain()
    assert not engine.offline
    one.check(one.log, "after the swap")
    for _ in range(3):
        engine.tick(5000)
    one.check(one.log, "after another cleaning")
    assert records(one) < 12
    one.engine = power_lost(engine)
    assert not one.engine.report.corrupt
    one.check(one.log, "after power loss")


# Power cuts.


def life_with_cleaning(files: FaultFiles, one: list[KeyedLog]) -> None:
    """Two cleanings with appends between, tombstones, checkpoints, and the removal of old files."""
    keyed_log = KeyedLog(Engine(files, config=CLEANING, topic=COMPACTED))
    one.append(keyed_log)
    keyed_log.fill(5)
    keyed_log.commit()
    keyed_log.engine.tick()
    keyed_log.put(b"k1", tombstone=True)
    keyed_log.fill(4, keys=2)
    keyed_log.commit()
    begin_cleaning(keyed_log, 2)
    keyed_log.put(b"k2")
    keyed_log.engine.drain()
    for _ in range(3):
        keyed_log.engine.tick(2000)


@pytest.mark.parametrize("kill", [False, True], ids=["power", "kill"])
def test_last_acknowledged_value_survives_when_power_is_cut_at_every_step_of_a_cleaning(kill: bool) -> None:
    whole = FaultFiles(Random(1))
    life_with_cleaning(whole, [])
    for step in range(1, whole.steps + 1):
        files = FaultFiles(Random(1))
        files.crash_after(step)
        lives: list[KeyedLog] = []
        with contextlib.suppress(PowerLost):
            life_with_cleaning(files, lives)
        if not lives:
            continue
        for draw in range(1 if kill else 2):
            disk = files.kill() if kill else files.crash(Random(draw))
            engine = Engine(disk, config=CLEANING, topic=COMPACTED, now_ms=lives[0].engine.now_ms)
            where = f"step {step}, draw {draw}, kill {kill}"
            assert not engine.report.corrupt, f"{where}: {engine.report.corrupt}"
            log = engine.log()
            lives[0].check(log, where)
            check_invariants(log)
            for _ in range(2):
                log.advance_high_watermark(log.end_offset)
                engine.tick(2000)
            assert not engine.offline, where
            lives[0].check(log, f"{where}, cleaned again")
            names = [
                name for name in disk.files_below("/data") if name.endswith((".cleaned", ".swap", ".tmp"))
            ]
            assert not names, where
