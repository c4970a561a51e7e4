"""Histories in which random crashes (`python -m tests.crash`) found the engine wrong, made short."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tailrace.cluster.common.topic_config import TopicConfig
from tests.support.compacting import CLEANING, COMPACTED, KeyedLog
from tests.support.driving import (
    LosesUnsynced,
    fault_files,
    killed,
    numbered,
    offsets_of,
    power_lost,
    restart,
)
from tests.support.engine import START_MS, Engine, append, end_transaction, values_of
from tests.support.fault_files import FaultFiles, PowerLost


def test_epoch_stays_known_when_cleaning_removed_all_its_batches_and_the_process_is_killed() -> None:
    engine = Engine(topic=COMPACTED, config=replace(CLEANING, log_checkpoint_interval_ms=10**8))
    keyed = KeyedLog(engine)
    for number in range(6):
        keyed.put(b"a%d" % number, epoch=1)
    for epoch in (2, 3):
        for _ in range(9):
            keyed.put(b"same", epoch=epoch)
    keyed.commit()
    engine.tick(2000)
    engine.tick(2000)
    assert not set(offsets_of(keyed.log)) & set(range(6, 15)), "nothing is left of epoch 2"
    assert keyed.log.end_offset_for_epoch(1) == (1, 6)
    assert killed(engine).log().end_offset_for_epoch(1) == (1, 6)


def interrupted(life: Callable[[FaultFiles], object], step: int) -> FaultFiles:
    files = FaultFiles(Random(step))
    files.crash_after(step)
    with contextlib.suppress(PowerLost):
        life(files)
    return files


def test_log_start_never_goes_back_when_a_reset_after_retention_is_cut_short() -> None:
    topic = TopicConfig(segment_bytes=300, retention_bytes=600)
    starts: list[int] = []

    def life(files: FaultFiles) -> None:
        engine = Engine(files, topic=topic)
        log = engine.log()
        for _ in range(8):
            append(log, b"x" * 100)
            engine.drain()
        log.advance_high_watermark(8)
        engine.manager.enforce_retention(START_MS)
        engine.drain()
        starts.append(files.steps)
        log.reset_to(20, now_ms=START_MS)
        engine.drain()

    whole = FaultFiles(Random(1))
    life(whole)
    for step in range(starts[0] + 1, whole.steps + 1):
        log = Engine(interrupted(life, step).kill(), topic=topic).log()
        assert log.log_start_offset >= 4, f"step {step}"


def waiting_to_be_cleaned() -> tuple[Engine, KeyedLog]:
    engine = Engine(topic=COMPACTED, config=CLEANING)
    keyed = KeyedLog(engine)
    keyed.fill(10)
    keyed.commit()
    return engine, keyed


def check_is_cleaned(engine: Engine, keyed: KeyedLog) -> None:
    keyed.fill(10)
    keyed.commit()
    for _ in range(3):
        engine.tick(2000)
    assert len(offsets_of(keyed.log)) < 30


def test_log_is_cleaned_again_when_a_reset_took_the_files_of_a_cleaning() -> None:
    engine, keyed = waiting_to_be_cleaned()
    engine.now_ms += 1000
    engine.manager.tick(engine.now_ms)
    cleaning = engine.blocking._queue.popleft()
    keyed.log.reset_to(keyed.log.end_offset, now_ms=engine.now_ms)
    keyed.forget_from(0)
    engine.drain()
    cleaning()
    engine.drain()
    check_is_cleaned(engine, keyed)


def test_log_is_cleaned_when_its_new_segment_has_no_file_yet() -> None:
    engine, keyed = waiting_to_be_cleaned()
    keyed.log.roll(now_ms=engine.now_ms)
    engine.now_ms += 1000
    engine.manager.tick(engine.now_ms)
    engine.blocking._queue.pop()()
    engine.drain()
    check_is_cleaned(engine, keyed)


def test_nothing_is_scanned_and_no_epoch_lost_when_a_log_was_rolled_and_stopped_cleanly() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"a")
    log.begin_epoch(4)
    log.files.checkpoint()
    log.roll(now_ms=START_MS)
    engine.drain()
    again = restart(engine)
    assert again.log().epochs == log.epochs
    assert again.report.directories["/data"].scanned_bytes == 0


def lose_snapshots(files: FaultFiles, *, above: int) -> None:
    """As a loss of power does: they are not synced."""
    for path in files.files_below("/data"):
        name = path.rpartition("/")[2]
        if name.endswith(".producers") and int(name.split(".")[0]) > above:
            files.delete_file(path)


def test_transaction_is_not_open_again_when_retention_removed_its_marker_but_not_an_older_snapshot() -> None:
    engine = Engine(topic=TopicConfig(segment_bytes=300, retention_bytes=600))
    log = engine.log()
    append(log, b"t", producer=(9, 0, 0), transactional=True)
    log.files.checkpoint()
    end_transaction(log, 9, commit=False)
    for _ in range(8):
        append(log, b"x" * 100)
        engine.drain()
    log.advance_high_watermark(10)
    engine.manager.enforce_retention(START_MS)
    engine.drain()
    assert log.log_start_offset > 1
    lose_snapshots(fault_files(engine), above=1)
    assert killed(engine).log().producers.open_transaction(9) is None


def test_transaction_is_not_open_again_when_cleaning_removed_its_marker_but_not_an_older_snapshot() -> None:
    engine = Engine(topic=COMPACTED, config=CLEANING)
    keyed, log = KeyedLog(engine), engine.log()
    append(log, b"t", keys=[b"t"], producer=(9, 0, 0), transactional=True)
    log.roll(now_ms=START_MS)
    end_transaction(log, 9, commit=False)
    engine.drain()
    log.advance_high_watermark(2)
    log.delete_records(1)
    keyed.fill(10)
    keyed.commit()
    for _ in range(10):
        engine.tick(4000)
    assert offsets_of(log)[0] > 1, "the marker is gone"
    lose_snapshots(fault_files(engine), above=1)
    assert killed(engine).log().producers.open_transaction(9) is None


def test_lost_end_is_no_gap_when_power_goes_during_the_first_roll_of_a_compacted_log() -> None:
    topic = replace(COMPACTED, flush="os", segment_bytes=300)

    def life(files: FaultFiles) -> None:
        keyed = KeyedLog(Engine(files, topic=topic))
        for number in range(5):
            keyed.put(b"k%d" % number)
            keyed.engine.drain()

    whole = FaultFiles(Random(1))
    life(whole)
    for step in range(1, whole.steps + 1):
        log = Engine(interrupted(life, step).crash(LosesUnsynced()), topic=topic).log()
        assert offsets_of(log) == list(range(log.end_offset)), f"step {step}"


def test_log_directory_survives_power_loss_when_the_start_that_made_it_was_killed() -> None:
    for step in range(1, 6):
        for seed in range(4):
            files = FaultFiles(Random(seed))
            files.crash_after(step)
            with contextlib.suppress(PowerLost):
                Engine(files)
            engine = Engine(files.kill())
            append(engine.log(), b"safe")
            engine.drain()
            assert values_of(power_lost(engine).log()) == [(0, b"safe")], f"step {step}, seed {seed}"


def test_sealed_segment_has_no_reserved_tail_when_power_is_lost_behind_its_end() -> None:
    topic = TopicConfig(segment_bytes=300, preallocate=True, flush="os")
    engine = Engine(topic=topic)
    log = engine.log()
    append(log, b"x" * 100)
    log.files.checkpoint()
    engine.drain()
    engine.manager.directories[0].save_checkpoint()
    log.roll(now_ms=START_MS)
    append(log, b"x")
    append(log, b"y")
    log.truncate_to(2, now_ms=START_MS)
    engine.drain()
    again = power_lost(engine)
    assert not again.report.corrupt
    assert values_of(again.log())[:1] == [(0, b"x" * 100)]


@pytest.mark.parametrize("preallocate", [False, True])
def test_log_is_whole_after_a_kill_when_it_was_cut_into_a_gap_and_an_append_was_torn(
    preallocate: bool,
) -> None:
    topic = TopicConfig(segment_bytes=2000, preallocate=preallocate)

    def life(files: FaultFiles) -> None:
        engine = Engine(files, topic=topic)
        log = engine.log()
        log.append_as_follower(numbered(0, b"a") + numbered(5, b"b"), now_ms=START_MS)
        log.files.checkpoint()
        engine.drain()
        log.truncate_to(3, now_ms=START_MS)
        log.append_as_follower(numbered(3, b"c"), now_ms=START_MS)
        engine.drain()

    whole = FaultFiles(Random(1))
    life(whole)
    for step in range(1, whole.steps + 1):
        again = Engine(interrupted(life, step).kill(), topic=topic)
        assert not again.report.corrupt, f"step {step}: {again.report.corrupt}"


def test_log_takes_appends_when_it_was_cut_twice_in_a_gap_at_its_beginning() -> None:
    engine = Engine()
    log = engine.log()
    log.append_as_follower(numbered(9, b"a"), now_ms=START_MS)
    log.truncate_to(5, now_ms=START_MS)
    log.roll(now_ms=START_MS)
    log.truncate_to(4, now_ms=START_MS)
    assert append(log, b"b").base_offset == 4
    engine.drain()
    assert values_of(killed(engine).log()) == [(4, b"b")]


def test_log_is_whole_after_a_kill_when_a_truncation_was_cut_short_before_a_gap() -> None:
    topic = TopicConfig(segment_bytes=300, flush="os")

    def life(files: FaultFiles) -> None:
        engine = Engine(files, topic=topic)
        log = engine.log()
        for base in (0, 2, 5, 7):
            log.append_as_follower(numbered(base, b"x" * 200), now_ms=START_MS)
            log.files.checkpoint()
            engine.drain()
        log.truncate_to(2, now_ms=START_MS)
        engine.drain()

    whole = FaultFiles(Random(1))
    life(whole)
    for step in range(1, whole.steps + 1):
        again = Engine(interrupted(life, step).kill(), topic=topic)
        assert not again.report.corrupt, f"step {step}: {again.report.corrupt}"
