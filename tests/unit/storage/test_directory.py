"""A log directory as a whole: identity, lock, creation and deletion of logs, and what crashes leave."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.storage.files import OsFiles
from tailrace.cluster.storage.statefile import write_state
from tests.support.driving import (
    DIRECT,
    fault_files,
    killed,
    next_life,
    offsets_of,
    power_lost,
    restart,
    rewrite,
    waiters,
)
from tests.support.engine import ORDERS, START_MS, TOPIC_ID, Engine, append, values_of
from tests.support.fault_files import FaultFiles, PowerLost

OTHER = TopicPartition("other", 3)
EndLife = Callable[[Engine], Engine]

SHORT_DELAY = TopicConfig(file_delete_delay_ms=2000)


def test_second_process_is_refused_when_directory_is_in_use() -> None:
    engine = Engine()
    with pytest.raises(TailraceError) as refusal:
        next_life(engine)
    assert refusal.value.code is ErrorCode.STORAGE_ERROR
    assert "/data/.lock" in str(refusal.value)
    engine.close()
    assert next_life(engine).report.directories["/data"].clean


def test_second_process_is_refused_when_directory_is_on_a_real_disk(tmp_path: Path) -> None:
    config = StorageConfig(log_dir=f"{tmp_path}/data")
    engine = Engine(OsFiles(), config=config)
    append(engine.log(), b"v")
    engine.drain()
    with pytest.raises(TailraceError, match="locked by process"):
        Engine(OsFiles(), config=config)
    engine.close()
    again = Engine(OsFiles(), config=config)
    assert values_of(again.log()) == [(0, b"v")]
    again.close()


def test_directory_keeps_its_id_when_it_is_opened_again() -> None:
    engine = Engine()
    identity = engine.manager.directories[0].id
    for end_life in (restart, killed, power_lost):
        engine = end_life(engine)
        assert engine.manager.directories[0].id == identity


def test_log_takes_appends_at_once_when_it_was_just_created() -> None:
    engine = Engine()
    log = engine.log()
    told = waiters()
    assert append(log, b"v").base_offset == 0
    told.wait(log, 1)
    assert values_of(log) == [(0, b"v")]
    engine.drain()
    assert told.told == [(1, None)]
    assert values_of(power_lost(engine).log()) == [(0, b"v")]


def test_log_starts_where_it_was_told_to_when_created_with_an_offset() -> None:
    engine = Engine()
    log = engine.manager.create(ORDERS, TOPIC_ID, now_ms=START_MS, start_offset=77)
    engine.drain()
    for _ in range(2):
        assert (log.log_start_offset, log.end_offset) == (77, 77)
        engine = killed(engine)
        log = engine.log()
    assert append(log, b"v").base_offset == 77


@pytest.mark.parametrize("kill", [False, True])
def test_directory_works_for_ever_after_when_power_is_cut_at_any_step_of_a_creation(kill: bool) -> None:
    def life(files: FaultFiles) -> None:
        engine = Engine(files, config=DIRECT)
        append(engine.log(OTHER, UUID(int=3)), b"other")
        engine.drain()
        append(engine.log(), b"v")
        engine.drain()

    whole = FaultFiles(Random(0))
    life(whole)
    for step in range(1, whole.steps + 1):
        files = FaultFiles(Random(0))
        files.crash_after(step)
        with contextlib.suppress(PowerLost):
            life(files)
        for draw in range(1 if kill else 3):
            disk = files.kill() if kill else files.crash(Random(draw))
            engine = Engine(disk, config=DIRECT)
            # Before anything periodic has had the time to clear away what the crash left.
            log = engine.log()
            base = append(log, b"again", epoch=1).base_offset
            engine.drain()
            for _ in range(3):
                engine.tick(40_000)
            where = f"step {step}, draw {draw}"
            assert not engine.offline, where
            assert log.durable_end == base + 1, where
            again = restart(engine)
            assert values_of(again.log())[-1] == (base, b"again"), where


def test_foreign_directories_are_left_alone_when_a_directory_is_opened() -> None:
    engine = Engine()
    engine.drain()
    files = fault_files(engine)
    files.make_dirs("/data/lost+found")
    files.make_dirs("/data/my backup")
    files.make_dirs("/data/my-notes/sub")
    rewrite(files, "/data/my backup/precious.txt", b"do not touch")
    rewrite(files, "/data/README", b"a file")
    engine.close()
    engine = next_life(engine)
    append(engine.log(), b"v")
    for _ in range(3):
        engine.tick(100_000)
    assert not engine.offline
    assert files.read("/data/my backup/precious.txt") == b"do not touch"
    assert files.exists("/data/my-notes/sub")
    assert files.read("/data/README") == b"a file"


# Deletion.


def test_deleted_log_is_gone_and_its_waiters_are_told_when_it_is_deleted() -> None:
    engine = Engine(topic=SHORT_DELAY)
    log = engine.log()
    engine.drain()
    append(log, b"v")
    told = waiters()
    told.wait(log, 1)
    engine.manager.delete(ORDERS)
    assert told.told == [(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    with pytest.raises(TailraceError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        append(log, b"more")
    with pytest.raises(TailraceError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        engine.manager.delete(ORDERS)
    engine.drain()
    files = fault_files(engine)
    assert not files.exists("/data/orders-0")
    assert [name for name in files.files_below("/data") if "-delete/" in name]
    engine.tick(1999)
    assert [name for name in files.files_below("/data") if "-delete/" in name]
    engine.tick(2)
    assert not [name for name in files.files_below("/data") if "-delete" in name]
    assert not engine.offline


@pytest.mark.parametrize("end_life", [killed, power_lost, restart])
def test_deleted_log_stays_away_when_the_process_ends_before_its_files_are_removed(end_life: EndLife) -> None:
    engine = Engine()
    append(engine.log(), b"v")
    append(engine.log(OTHER, UUID(int=3)), b"other")
    engine.drain()
    engine.manager.delete(ORDERS)
    engine.drain()
    again = end_life(engine)
    assert again.manager.get(ORDERS) is None
    again.tick(1)
    again.tick(1)
    assert not again.offline
    assert not [name for name in fault_files(again).files_below("/data") if "orders-0" in name]
    assert offsets_of(again.log(OTHER)) == [0]


@pytest.mark.parametrize("same_id", [False, True], ids=["new id", "same id"])
@pytest.mark.parametrize("end_life", [killed, power_lost, restart])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_new_log_holds_only_its_own_records_when_the_topic_was_deleted_and_created_anew(
    same_id: bool, end_life: EndLife, checkpointed: bool
) -> None:
    engine = Engine(config=StorageConfig(log_dir="/data", log_checkpoint_interval_ms=1000))
    old = engine.log()
    for number in range(9):
        append(old, b"old%d" % number, epoch=5, producer=(1, 0, number))
        engine.drain()
    for _ in range(3):
        engine.tick(1000)
    engine.manager.delete(ORDERS)
    new = engine.log(topic_id=TOPIC_ID if same_id else UUID(int=8))
    expected = []
    for number in range(5):
        append(new, b"new%d" % number, epoch=1)
        expected.append((number, b"new%d" % number))
        engine.drain()
    if checkpointed:
        # The log's own state is saved, the directory's checkpoint is still the one of the old log.
        new.files.checkpoint()
        engine.drain()
    again = end_life(engine)
    assert not again.report.corrupt
    log = again.log()
    assert values_of(log) == expected
    assert [tuple(entry) for entry in log.epochs.entries()] == [(1, 0)]
    assert list(log.producers.describe()) == []


def test_directory_stays_online_when_a_replica_comes_and_goes_within_the_delay() -> None:
    engine = Engine()
    for number in range(4):
        append(engine.log(), b"%d" % number)
        if number % 2:
            engine.drain()
        engine.manager.delete(ORDERS)
        if number % 2:
            engine.drain()
    engine.drain()
    assert not engine.offline
    engine.tick(200_000)
    assert not [name for name in fault_files(engine).files_below("/data") if "orders" in name]
    append(engine.log(), b"last")
    engine.drain()
    assert values_of(killed(engine).log()) == [(0, b"last")]


# Checkpoints.


def test_high_watermark_survives_when_it_was_checkpointed() -> None:
    engine = Engine()
    log = engine.log()
    append(log, b"a", b"b", b"c")
    engine.drain()
    log.advance_high_watermark(2)
    for _ in range(3):
        engine.tick(31_000)
    assert killed(engine).log().high_watermark == 2


def test_directory_is_unclean_from_the_first_moment_when_it_was_opened() -> None:
    engine = Engine()
    append(engine.log(), b"v")
    again = restart(engine)
    assert again.report.directories["/data"].clean
    third = killed(again)
    assert not third.report.directories["/data"].clean
    assert values_of(third.log()) == [(0, b"v")]


def test_newer_state_is_refused_when_a_later_version_wrote_it() -> None:
    engine = Engine()
    append(engine.log(), b"v")
    engine.drain()
    engine.close()
    write_state(fault_files(engine), "/data/checkpoint.json", "checkpoint", 99, {"anything": 1})
    with pytest.raises(TailraceError) as refusal:
        next_life(engine)
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert "/data/checkpoint.json" in str(refusal.value)
