"""Crash points, planned faults, rot and statistics of the file system that tests use."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import closing, suppress
from random import Random

import pytest

from tests.support.fault_files import FaultFiles, PowerLost, on
from tests.unit.storage.test_power_loss import fresh, outcomes, put

# Death of the process, crash points.


def test_kill_keeps_everything_written_when_nothing_was_synced() -> None:
    files = fresh()
    put(files, "/a", b"abc", sync=False)
    assert None in outcomes(files.kill(), "/a"), "what was unsynced still is"
    killed = files.kill()
    assert killed.files_below() == {"/a": b"abc"}
    with closing(killed.open("/a", write=True)) as file:
        file.pwritev([b"xyz"], 0)
    assert files.kill().read("/a") == b"abc"


def test_kill_finds_a_write_cut_short_when_it_was_struck() -> None:
    found = set()
    for seed in range(50):
        files = fresh(seed)
        put(files, "/a", b"ab", sync=True)
        files.crash_after(files.steps + 1)
        with pytest.raises(PowerLost), closing(files.open("/a", write=True)) as file:
            file.pwritev([b"cd", b"ef"], 2)
        found.add(files.kill().read("/a"))
    assert found == {b"ab", b"abc", b"abcd", b"abcde", b"abcdef"}


def test_old_handles_and_locks_are_dead_when_power_was_lost() -> None:
    files = fresh()
    held = files.lock("/.lock")
    file = files.open("/a", create=True)
    after = files.crash()
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pread_cached(1, 0),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
        lambda: file.allocate(1),
        file.datasync,
        file.size,
        lambda: files.open("/a"),
        lambda: files.read("/a"),
        lambda: files.list("/"),
        lambda: files.exists("/a"),
        lambda: files.make_dirs("/d"),
        lambda: files.rename("/a", "/b"),
        lambda: files.remove("/a"),
        lambda: files.remove_tree("/d"),
        lambda: files.sync_dir("/"),
        lambda: files.lock("/other"),
    ]
    for call in calls:
        with pytest.raises(PowerLost):
            call()
    file.close()
    held.close()
    after.lock("/.lock").close()
    assert after.open_handles == 0


def everything(files: FaultFiles) -> None:
    files.make_dirs("/d/e")
    with closing(files.open("/d/a", create=True)) as file:
        file.pwritev([b"abc"], 0)
        file.truncate(1)
        file.allocate(9)
        file.datasync()
    files.sync_dir("/d")
    files.rename("/d/a", "/d/b")
    files.remove("/d/missing")
    files.open("/d/e/c", create=True).close()
    files.open("/d/e/c", create=True).close()
    files.remove("/d/b")
    files.remove_tree("/d")


def test_steps_count_each_change_when_made() -> None:
    files = fresh()
    everything(files)
    # Two directories; create, write, truncate, allocate, sync, sync of names; rename, create, remove; the
    # tree: c, e and d.
    assert files.steps == 2 + 6 + 3 + 3


def test_crash_point_stops_everything_when_reached() -> None:
    for step in range(1, 15):
        seen = set()
        for seed in range(10):
            files = fresh(seed)
            files.crash_after(step)
            with pytest.raises(PowerLost):
                everything(files)
            assert files.steps == step
            with pytest.raises(PowerLost):
                files.list("/")
            seen.add((files.kill().exists("/d"), *sorted(files.kill().files_below().items())))
        assert len(seen) >= (2 if step not in (2, 7, 8, 13) else 1), step


def test_runs_are_equal_when_seeds_are() -> None:
    def run() -> dict[str, bytes]:
        files = fresh(7)
        files.fail(errno.EIO, on("write"), skip=1)
        with closing(files.open("/a", create=True)) as file:
            file.pwritev([b"x" * 4000], 0)
            with suppress(OSError):
                file.pwritev([b"y" * 4000], 2000)
        return files.crash().files_below()

    assert run() == run()


# Faults.


def test_write_fails_after_a_part_when_told_to() -> None:
    sizes = set()
    for seed in range(40):
        files = fresh(seed)
        fault = files.fail(errno.ENOSPC, on("write", ".log"), skip=1, times=2)
        with (
            closing(files.open("/a.log", create=True)) as file,
            closing(files.open("/b", create=True)) as other,
        ):
            file.pwritev([b"ok"], 0)
            other.pwritev([b"ok"], 0)
            for _ in range(2):
                with pytest.raises(OSError, match="No space left") as caught:
                    file.pwritev([b"1234"], 2)
                assert caught.value.filename == "/a.log"
            sizes.add(file.size())
            file.pwritev([b"1234"], 2)
        assert fault.hits == 2
        assert files.read("/a.log") == b"ok1234"
    assert sizes == {2, 3, 4, 5, 6}


def test_disk_is_full_when_capacity_is_used_and_not_when_files_go() -> None:
    files = FaultFiles(Random(1), capacity=10)
    put(files, "/a", b"12345678", sync=True)
    with closing(files.open("/b", create=True)) as file:
        with pytest.raises(OSError, match="No space left"):
            file.pwritev([b"abcd"], 0)
        assert file.pread(9, 0) == b"ab"
        with pytest.raises(OSError, match="No space left"):
            file.allocate(3)
        file.pwritev([b"AB"], 0)
        with closing(files.open("/a")):
            files.remove("/a")
            with pytest.raises(OSError, match="No space left"):
                file.allocate(3)
        file.allocate(10)
        file.truncate(1)
        file.pwritev([b"123456789"], 1)
    after = files.kill()
    with pytest.raises(OSError, match="No space left"):
        put(after, "/c", b"x", sync=False)


def test_failed_datasync_loses_its_writes_when_a_later_one_succeeds() -> None:
    files = fresh()
    put(files, "/a", b"1", sync=True)
    files.fail(errno.EIO, on("datasync", "/a"))
    with closing(files.open("/a", write=True)) as file:
        file.pwritev([b"2"], 1)
        with pytest.raises(OSError, match="Input/output"):
            file.datasync()
        file.datasync()
        assert file.pread(9, 0) == b"12"
        assert outcomes(files, "/a") == {b"1"}
    after = files.kill()
    with closing(after.open("/a", write=True)) as file:
        file.pwritev([b"3"], 2)
        file.datasync()
    assert after.read("/a") == b"123"
    assert outcomes(after, "/a") == {b"1\x003"}


def test_calls_fail_without_effect_when_told_to() -> None:
    files = fresh()
    put(files, "/a", b"abc", sync=True)
    file = files.open("/a", write=True)
    calls: dict[str, Callable[[], object]] = {
        "open": lambda: files.open("/a"),
        "create": lambda: files.open("/b", create=True),
        "read": lambda: file.pread(1, 0),
        "truncate": lambda: file.truncate(0),
        "allocate": lambda: file.allocate(99),
        "list": lambda: files.list("/"),
        "mkdir": lambda: files.make_dirs("/d"),
        "rename": lambda: files.rename("/a", "/b"),
        "remove": lambda: files.remove("/a"),
        "sync_dir": lambda: files.sync_dir("/"),
    }
    steps = files.steps
    for name, call in calls.items():
        fault = files.fail(errno.EIO, lambda made, _, name=name: made == name, times=None)  # type: ignore[misc]
        with pytest.raises(OSError, match="Input/output"):
            call()
        assert fault.hits == 1
        files.clear_faults()
    assert files.files_below() == {"/a": b"abc"}
    assert files.steps == steps


def test_flipped_bit_is_read_and_survives_when_power_is_lost() -> None:
    files = fresh()
    put(files, "/a", b"aa", sync=True)
    with closing(files.open("/a", write=True)) as file:
        file.pwritev([b"b"], 2)
    files.flip_bit("/a", 1, 1)
    files.flip_bit("/a", 2, 0)
    assert files.read("/a") == b"acc"
    assert outcomes(files, "/a") == {b"ac", b"acc", b"ac\0"}
    with pytest.raises(ValueError, match="no byte at 9"):
        files.kill().flip_bit("/a", 9)


def test_deleted_file_is_gone_for_good_when_power_is_lost() -> None:
    files = fresh()
    put(files, "/a", b"a", sync=True)
    files.delete_file("/a")
    assert outcomes(files, "/a") == {None}


def test_pread_cached_gives_none_when_told_that_nothing_is_in_memory() -> None:
    files = fresh()
    put(files, "/cold.log", b"abc", sync=False)
    files.uncached = lambda path: path.endswith(".log")
    with closing(files.open("/cold.log")) as file:
        assert file.pread_cached(3, 0) is None
        assert file.pread(3, 0) == b"abc"


def test_sync_hook_sees_the_path_and_may_fail_when_called() -> None:
    files = fresh()
    seen = []

    def hook(path: str) -> None:
        seen.append(path)
        if len(seen) == 2:
            raise OSError(errno.EIO, "injected")

    files.before_sync = hook
    with closing(files.open("/a", create=True)) as file:
        file.datasync()
        with pytest.raises(OSError, match="injected"):
            file.datasync()
    assert seen == ["/a", "/a"]
    assert files.datasyncs["/a"] == 1


def test_statistics_count_bytes_syncs_and_handles_when_used() -> None:
    files = fresh()
    handles = [files.open(f"/{name}", create=True) for name in "abc"]
    handles[0].pwritev([b"12", b"345"], 0)
    handles[0].datasync()
    handles[1].datasync()
    files.sync_dir("/")
    for handle in handles:
        handle.close()
        handle.close()
    assert files.bytes_written == 5
    assert files.datasyncs == {"/a": 1, "/b": 1}
    assert files.dir_syncs == {"/": 1}
    assert (files.open_handles, files.max_open_handles) == (0, 3)


def test_small_writes_with_syncs_are_fast_when_many() -> None:
    files = fresh()
    start = time.process_time()
    with closing(files.open("/a", create=True)) as file:
        for number in range(10_000):
            file.pwritev([b"header", bytes(1000)], number * 1006)
            file.datasync()
    # About 0.05 s; the bound only catches a cost that grows with the size of the file.
    assert time.process_time() - start < 2
