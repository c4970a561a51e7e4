"""What every file system must do, checked on the real one and on the one that tests use in its place."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.files import (
    IOV_MAX,
    Entry,
    Files,
    OsFiles,
    make_durable_dirs,
    parent_of,
    storage_error,
    write_atomic,
)
from tests.support.fault_files import FaultFiles, on


@pytest.fixture(params=["os", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles() if request.param == "os" else FaultFiles(Random(1))


@pytest.fixture
def base(files: Files, tmp_path: Path) -> str:
    path = f"{tmp_path}/base"
    files.make_dirs(path)
    return path


def put(files: Files, path: str, data: bytes) -> None:
    with closing(files.open(path, create=True)) as file:
        file.truncate(0)
        file.pwritev([data], 0)


class TestConformance:
    def test_open_raises_file_not_found_when_missing(self, files: Files, base: str) -> None:
        for write in (False, True):
            with pytest.raises(FileNotFoundError) as caught:
                files.open(f"{base}/a", write=write)
            assert caught.value.filename == f"{base}/a"
        with pytest.raises(FileNotFoundError):
            files.open(f"{base}/no/a", create=True)

    def test_open_keeps_content_when_created_again(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"abc")
        with closing(files.open(f"{base}/a", create=True)) as file:
            assert file.pread(10, 0) == b"abc"
            assert file.path == f"{base}/a"

    def test_pread_is_short_only_at_the_end_when_reading(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"0123456789")
        with closing(files.open(f"{base}/a")) as file:
            for read in (file.pread, file.pread_cached):
                assert read(4, 2) == b"2345"
                assert read(20, 7) == b"789"
                assert read(5, 10) == b""
                assert read(5, 99) == b""
                assert read(0, 3) == b""

    def test_pwritev_writes_all_when_given_more_buffers_than_one_call_takes(
        self, files: Files, base: str
    ) -> None:
        buffers = [bytes([i % 251]) * (i % 5) for i in range(3 * IOV_MAX + 7)]
        expected = b"".join(buffers)
        with closing(files.open(f"{base}/a", create=True)) as file:
            assert file.pwritev(buffers, 5) == len(expected)
            assert file.pread(len(expected) + 10, 0) == bytes(5) + expected
            assert file.size() == len(expected) + 5

    def test_pwritev_takes_every_kind_of_buffer_when_mixed(self, files: Files, base: str) -> None:
        with closing(files.open(f"{base}/a", create=True)) as file:
            assert file.pwritev([b"ab", b"", bytearray(b"cd"), memoryview(b"xefx")[1:3]], 0) == 6
            assert file.pwritev([], 0) == 0
            assert file.pwritev([b""], 50) == 0
            assert file.pwritev([b"C"], 2) == 1
            assert file.pread(10, 0) == b"abCdef"

    def test_truncate_cuts_and_grows_with_zeros_when_called(self, files: Files, base: str) -> None:
        with closing(files.open(f"{base}/a", create=True)) as file:
            file.pwritev([b"abcdef"], 0)
            file.truncate(2)
            file.truncate(4)
            assert file.pread(10, 0) == b"ab\0\0"

    def test_allocate_grows_with_zeros_and_never_cuts_when_called(self, files: Files, base: str) -> None:
        with closing(files.open(f"{base}/a", create=True)) as file:
            file.pwritev([b"abc"], 0)
            file.allocate(6)
            file.allocate(2)
            file.allocate(0)
            assert file.pread(10, 0) == b"abc\0\0\0"

    def test_datasync_succeeds_when_file_is_open_in_either_mode(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"x")
        for write in (False, True):
            with closing(files.open(f"{base}/a", write=write)) as file:
                file.datasync()
        files.sync_dir(base)

    def test_changes_are_refused_when_open_for_reading(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"abc")
        changes: list[Callable[[Any], Any]] = [
            lambda file: file.pwritev([b"x"], 0),
            lambda file: file.truncate(0),
            lambda file: file.allocate(9),
        ]
        with closing(files.open(f"{base}/a")) as file:
            for change in changes:
                with pytest.raises(OSError, match="a'") as caught:
                    change(file)
                assert caught.value.filename == f"{base}/a"
        assert files.read(f"{base}/a") == b"abc"

    def test_calls_raise_bad_descriptor_when_closed(self, files: Files, base: str) -> None:
        file = files.open(f"{base}/a", create=True)
        file.close()
        file.close()
        calls: list[Callable[[], Any]] = [
            lambda: file.pread(1, 0),
            lambda: file.pread_cached(1, 0),
            lambda: file.pwritev([b"x"], 0),
            lambda: file.truncate(0),
            lambda: file.allocate(5),
            file.datasync,
            file.size,
        ]
        for call in calls:
            with pytest.raises(OSError, match="a'") as caught:
                call()
            assert caught.value.errno == errno.EBADF

    def test_list_gives_names_sizes_and_kinds_when_directory_is_mixed(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"abc")
        put(files, f"{base}/b", b"")
        files.make_dirs(f"{base}/d/e")
        assert sorted(files.list(base)) == [Entry("a", 3, False), Entry("b", 0, False), Entry("d", 0, True)]
        assert files.list(f"{base}/d/e") == []
        with pytest.raises(FileNotFoundError):
            files.list(f"{base}/none")
        with pytest.raises(NotADirectoryError):
            files.list(f"{base}/a")

    def test_exists_tells_files_and_directories_when_asked(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"")
        assert files.exists(base)
        assert files.exists(f"{base}/a")
        assert not files.exists(f"{base}/b")
        assert not files.exists(f"{base}/b/c")
        assert not files.exists(f"{base}/a/c")

    def test_make_dirs_is_fine_when_directory_exists(self, files: Files, base: str) -> None:
        files.make_dirs(f"{base}/d")
        files.make_dirs(f"{base}/d")
        put(files, f"{base}/a", b"")
        with pytest.raises(FileExistsError):
            files.make_dirs(f"{base}/a")

    def test_rename_replaces_and_open_handles_follow_when_target_exists(
        self, files: Files, base: str
    ) -> None:
        put(files, f"{base}/a", b"new")
        put(files, f"{base}/b", b"old")
        with closing(files.open(f"{base}/a")) as moved, closing(files.open(f"{base}/b")) as replaced:
            files.rename(f"{base}/a", f"{base}/b")
            assert moved.pread(9, 0) == b"new"
            assert replaced.pread(9, 0) == b"old"
        assert files.read(f"{base}/b") == b"new"
        assert not files.exists(f"{base}/a")
        with pytest.raises(FileNotFoundError):
            files.rename(f"{base}/a", f"{base}/c")

    def test_rename_moves_the_tree_when_given_a_directory(self, files: Files, base: str) -> None:
        files.make_dirs(f"{base}/d")
        put(files, f"{base}/d/a", b"abc")
        files.rename(f"{base}/d", f"{base}/e")
        assert files.read(f"{base}/e/a") == b"abc"
        files.make_dirs(f"{base}/full/x")
        with pytest.raises(OSError, match="not empty"):
            files.rename(f"{base}/e", f"{base}/full")

    def test_rename_moves_between_directories_when_they_differ(self, files: Files, base: str) -> None:
        files.make_dirs(f"{base}/d")
        put(files, f"{base}/a", b"abc")
        files.rename(f"{base}/a", f"{base}/d/b")
        assert files.read(f"{base}/d/b") == b"abc"
        assert [entry.name for entry in files.list(base)] == ["d"]

    def test_remove_is_fine_when_missing_and_keeps_open_handles_usable(self, files: Files, base: str) -> None:
        put(files, f"{base}/a", b"abc")
        with closing(files.open(f"{base}/a")) as file:
            files.remove(f"{base}/a")
            files.remove(f"{base}/a")
            files.remove(f"{base}/none/a")
            assert file.pread(3, 0) == b"abc"
        assert files.list(base) == []

    def test_remove_tree_takes_all_when_nested_and_is_fine_when_missing(
        self, files: Files, base: str
    ) -> None:
        files.make_dirs(f"{base}/d/e")
        put(files, f"{base}/d/a", b"abc")
        put(files, f"{base}/d/e/b", b"abc")
        files.remove_tree(f"{base}/d")
        files.remove_tree(f"{base}/d")
        assert files.list(base) == []

    def test_read_gives_the_whole_file_when_large(self, files: Files, base: str) -> None:
        data = bytes(range(256)) * 1000
        put(files, f"{base}/a", data)
        assert files.read(f"{base}/a") == data
        with pytest.raises(FileNotFoundError):
            files.read(f"{base}/b")
        with pytest.raises(IsADirectoryError):
            files.read(base)

    def test_lock_is_refused_with_holder_when_held_and_free_when_closed(
        self, files: Files, base: str
    ) -> None:
        held = files.lock(f"{base}/.lock")
        with pytest.raises(
            TailraceError, match=rf"{base}/\.lock is locked by process {os.getpid()}"
        ) as caught:
            files.lock(f"{base}/.lock")
        assert caught.value.code is ErrorCode.STORAGE_ERROR
        held.close()
        files.lock(f"{base}/.lock").close()

    def test_write_atomic_replaces_and_leaves_no_temporary_when_done(self, files: Files, base: str) -> None:
        put(files, f"{base}/a.tmp", b"left behind by a crash, and longer")
        write_atomic(files, f"{base}/a", b"one")
        assert files.read(f"{base}/a") == b"one"
        write_atomic(files, f"{base}/a", b"two", sync=False)
        assert files.read(f"{base}/a") == b"two"
        assert [entry.name for entry in files.list(base)] == ["a"]

    def test_make_durable_dirs_makes_all_levels_when_missing(self, files: Files, base: str) -> None:
        make_durable_dirs(files, f"{base}/x/y/z")
        make_durable_dirs(files, f"{base}/x/y/z")
        assert files.list(f"{base}/x/y/z") == []


def test_write_atomic_keeps_old_content_when_disk_is_full() -> None:
    files = FaultFiles(Random(1))
    write_atomic(files, "/a", b"old")
    files.fail(errno.ENOSPC, on("write", ".tmp"))
    with pytest.raises(OSError, match="No space left"):
        write_atomic(files, "/a", b"new")
    assert files.files_below() == {"/a": b"old"}


def test_os_pwritev_continues_when_writes_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def short_pwritev(fd: int, buffers: list[Any], position: int) -> int:
        data = b"".join(buffers)[:7]
        calls.append(len(data))
        return os.pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwritev", short_pwritev)
    buffers = [b"abc", b"", b"defghijklm", b"nopqrstuvwxyz", b"0123456789"]
    with closing(OsFiles().open(f"{tmp_path}/a", create=True)) as file:
        assert file.pwritev(buffers, 0) == 36
        assert file.pread(99, 0) == b"".join(buffers)
    assert calls == [7, 7, 7, 7, 7, 1]


def test_os_pwritev_raises_when_no_progress_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: 0)
    with (
        closing(OsFiles().open(f"{tmp_path}/a", create=True)) as file,
        pytest.raises(OSError, match="accepted no bytes"),
    ):
        file.pwritev([b"x"], 0)


def test_os_pread_continues_when_reads_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(OsFiles(), f"{tmp_path}/a", b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    with closing(OsFiles().open(f"{tmp_path}/a")) as file:
        assert file.pread(8, 1) == b"12345678"
        assert file.pread(80, 1) == b"123456789"
    assert OsFiles().read(f"{tmp_path}/a") == b"0123456789"


@pytest.mark.parametrize(
    ("error", "expected"),
    [(errno.EAGAIN, None), (errno.EOPNOTSUPP, b"0123")],
    ids=["would_block", "unsupported"],
)
def test_os_pread_cached_answers_when_kernel_declines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, expected: bytes | None
) -> None:
    def decline(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    put(OsFiles(), f"{tmp_path}/a", b"0123456789")
    monkeypatch.setattr(os, "preadv", decline)
    with closing(OsFiles().open(f"{tmp_path}/a")) as file:
        assert file.pread_cached(4, 0) == expected


def test_os_pread_cached_gives_none_when_only_a_part_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(OsFiles(), f"{tmp_path}/a", b"0123456789")
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda fd, buffers, at, flags: preadv(fd, [memoryview(buffers[0])[:2]], at)
    )
    with closing(OsFiles().open(f"{tmp_path}/a")) as file:
        assert file.pread_cached(4, 0) is None
        assert file.pread_cached(4, 8) == b"89"


def test_os_lock_is_refused_when_another_process_holds_it(tmp_path: Path) -> None:
    program = (
        "import sys; from tailrace.cluster.storage.files import OsFiles\n"
        "lock = OsFiles().lock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", program, f"{tmp_path}/.lock"],
        cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(TailraceError, match=f"locked by process {process.pid}"):
            OsFiles().lock(f"{tmp_path}/.lock")
        process.kill()
        process.wait()
    OsFiles().lock(f"{tmp_path}/.lock").close()


def test_os_list_skips_a_name_when_it_points_nowhere(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "a").write_bytes(b"abc")
    assert OsFiles().list(str(tmp_path)) == [Entry("a", 3, False)]


def test_storage_error_says_what_where_and_what_to_do_when_disk_is_full() -> None:
    error = storage_error("writing a segment", OSError(errno.ENOSPC, "No space left on device", "/d/x.log"))
    assert error.code is ErrorCode.STORAGE_ERROR
    assert "writing a segment failed at /d/x.log: No space left on device. Free space" in str(error)
    assert "at /other: odd. Check that" in str(storage_error("reading", OSError("odd"), "/other"))


def test_parent_of_names_the_directory_when_path_is_bare_or_nested() -> None:
    assert parent_of("/a/b") == "/a"
    assert parent_of("/a") == "/"
    assert parent_of("a") == "."
