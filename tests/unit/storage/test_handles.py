from __future__ import annotations

import errno
import resource
import threading
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.cluster.storage.files import File
from tailrace.cluster.storage.handles import HANDLES_MAX, HandleCache, default_handle_limit
from tests.support.fault_files import FaultFile, FaultFiles, on

NAMES = ["/a", "/b", "/c", "/d", "/e", "/t/f", "/t/g"]


@pytest.fixture
def files() -> FaultFiles:
    return prepared()


def prepared() -> FaultFiles:
    files = FaultFiles(Random(1))
    files.make_dirs("/t")
    for name in NAMES:
        file = files.open(name, create=True)
        file.pwritev([name.encode()], 0)
        file.close()
    return files


def use(cache: HandleCache, *paths: str) -> None:
    for path in paths:
        with cache.borrow(path) as file:
            assert file.pread(9, 0) == path.encode()


def is_open(file: File) -> bool:
    try:
        file.size()
    except OSError as error:
        assert error.errno == errno.EBADF
        return False
    return True


def test_borrow_opens_once_when_used_again(files: FaultFiles) -> None:
    cache = HandleCache(files, 3)
    use(cache, "/a", "/a", "/a")
    first = cache.acquire("/a")
    assert cache.acquire("/a") is first
    cache.release(first)
    cache.release(first)
    assert cache.open_count == files.open_handles == files.max_open_handles == 1


def test_cache_closes_the_longest_unused_when_full(files: FaultFiles) -> None:
    cache = HandleCache(files, 2)
    kept = cache.acquire("/a")
    cache.release(kept)
    use(cache, "/b")
    use(cache, "/a", "/c")
    assert cache.acquire("/a") is kept
    cache.release(kept)
    assert files.open_handles == cache.open_count == 2
    assert files.max_open_handles == 3


def test_cache_closes_no_borrowed_file_when_full(files: FaultFiles) -> None:
    cache = HandleCache(files, 1)
    borrowed = [cache.acquire(path) for path in ("/a", "/b", "/c")]
    assert cache.open_count == 3
    assert all(map(is_open, borrowed))
    for file in borrowed:
        cache.release(file)
    assert cache.open_count == files.open_handles == 1
    assert is_open(borrowed[2]) or is_open(borrowed[1])


def test_cache_closes_no_dirty_file_when_full(files: FaultFiles) -> None:
    cache = HandleCache(files, 1)
    with cache.borrow("/a", write=True) as dirty:
        dirty.pwritev([b"/A"], 0)
        cache.mark_dirty("/a")
    use(cache, "/b", "/c", "/d")
    assert is_open(dirty)
    assert cache.is_dirty("/a")
    assert cache.open_count == 1
    cache.mark_clean("/a")
    cache.mark_clean("/a")
    use(cache, "/b")
    assert not is_open(dirty)


def test_cache_shrinks_at_once_when_a_surplus_file_becomes_clean(files: FaultFiles) -> None:
    cache = HandleCache(files, 1)
    for path in ("/a", "/b"):
        cache.release(cache.acquire(path, write=True), dirty=True)
    assert cache.open_count == 2
    cache.mark_clean("/b")
    assert cache.open_count == 1
    assert cache.is_dirty("/a")
    assert not cache.is_dirty("/b")


def test_sync_reports_the_error_and_keeps_the_handle_when_datasync_fails(files: FaultFiles) -> None:
    cache = HandleCache(files, 1)
    writer = cache.acquire("/a", write=True)
    writer.pwritev([b"/A"], 0)
    cache.release(writer, dirty=True)
    files.fail(errno.EIO, on("datasync"))
    with pytest.raises(OSError, match="Input/output"):
        cache.sync("/a")
    assert cache.is_dirty("/a")
    assert is_open(writer)
    cache.sync("/a")
    assert not cache.is_dirty("/a")
    assert files.datasyncs["/a"] == 2


def test_sync_leaves_the_file_dirty_when_a_write_comes_in_between(files: FaultFiles) -> None:
    cache = HandleCache(files, 1)
    cache.release(cache.acquire("/a", write=True), dirty=True)

    def write_meanwhile(path: str) -> None:
        with cache.borrow(path, write=True) as file:
            file.pwritev([b"!"], 0)
            cache.mark_dirty(path)

    files.before_sync = write_meanwhile
    cache.sync("/a")
    assert cache.is_dirty("/a")


def test_mark_dirty_is_refused_when_file_is_not_borrowed_for_writing(files: FaultFiles) -> None:
    cache = HandleCache(files, 2)
    cache.mark_dirty("/never-opened")
    with cache.borrow("/a") as file:
        with pytest.raises(AssertionError, match="/a was not borrowed"):
            cache.mark_dirty("/a")
        with pytest.raises(AssertionError, match="/a was not borrowed"):
            cache.release(file, dirty=True)
    assert cache.open_count == 1


def test_acquire_upgrades_and_lets_readers_finish_when_write_is_asked_for(files: FaultFiles) -> None:
    cache = HandleCache(files, 4)
    reader = cache.acquire("/a")
    with cache.borrow("/a", write=True) as writer:
        assert writer is not reader
        writer.pwritev([b"/A"], 0)
        assert reader.pread(2, 0) == b"/A"
        assert cache.acquire("/a") is writer
        cache.release(writer)
    cache.release(reader)
    assert not is_open(reader)
    assert is_open(writer)
    assert cache.open_count == files.open_handles == 1


def test_acquire_creates_when_asked_and_raises_when_missing(files: FaultFiles) -> None:
    cache = HandleCache(files, 4)
    with pytest.raises(FileNotFoundError):
        cache.acquire("/new", write=True)
    with cache.borrow("/new", create=True) as file:
        file.pwritev([b"x"], 0)
    assert files.read("/new") == b"x"
    assert cache.open_count == 1


def test_forget_closes_now_or_when_returned_when_file_goes(files: FaultFiles) -> None:
    cache = HandleCache(files, 4)
    use(cache, "/a")
    cache.forget("/a")
    assert cache.open_count == 0
    borrowed = cache.acquire("/b", write=True)
    cache.mark_dirty("/b")
    cache.forget("/b")
    cache.mark_clean("/b")
    files.remove("/b")
    assert borrowed.pread(2, 0) == b"/b"
    assert cache.open_count == 1
    cache.release(borrowed, dirty=True)
    assert files.open_handles == cache.open_count == 0
    with pytest.raises(FileNotFoundError):
        cache.acquire("/b")


def test_rename_keeps_handle_and_dirty_mark_when_target_was_open(files: FaultFiles) -> None:
    cache = HandleCache(files, 4)
    use(cache, "/b")
    moved = cache.acquire("/a", write=True)
    cache.mark_dirty("/a")
    files.rename("/a", "/b")
    cache.rename("/a", "/b")
    assert cache.acquire("/b") is moved
    assert moved.path == "/b"
    assert cache.is_dirty("/b")
    assert not cache.is_dirty("/a")
    cache.release(moved)
    cache.release(moved)
    assert cache.open_count == 1
    cache.rename("/not-open", "/b")
    assert cache.open_count == 0


def test_tree_is_forgotten_as_a_whole_when_a_directory_goes(files: FaultFiles) -> None:
    cache = HandleCache(files, 9)
    use(cache, "/a", "/t/f", "/t/g")
    assert cache.open_count == 3
    cache.forget_tree("/t")
    assert cache.open_count == 1


def test_close_all_closes_borrowed_files_when_they_return(files: FaultFiles) -> None:
    cache = HandleCache(files, 9)
    use(cache, "/a", "/b")
    borrowed = cache.acquire("/c")
    cache.close_all()
    assert cache.open_count == 1
    cache.release(borrowed)
    assert cache.open_count == files.open_handles == 0
    use(cache, "/a")


def test_acquire_gives_descriptors_back_when_process_runs_out(files: FaultFiles) -> None:
    cache = HandleCache(files, 100)
    use(cache, "/a", "/b", "/c", "/d")
    fault = files.fail(errno.EMFILE, on("open"))
    use(cache, "/e")
    assert fault.hits == 1
    assert cache.open_count == 3
    files.fail(errno.EMFILE, on("open"), times=None)
    cache.forget("/a")
    with pytest.raises(OSError, match="Too many open files"):
        cache.acquire("/a")


class OpenHook(FaultFiles):
    """Runs something once, inside the next open: another thread that comes between."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.meanwhile: Callable[[], object] = lambda: None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> FaultFile:
        file = super().open(path, write=write, create=create)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return file


def test_acquire_opens_again_when_path_changes_hands_meanwhile() -> None:
    files = OpenHook()
    files.open("/a", create=True).close()
    cache = HandleCache(files, 4)

    def replace() -> None:
        file = files.open("/a2", create=True)
        file.pwritev([b"new"], 0)
        file.close()
        files.rename("/a2", "/a")
        cache.forget("/a")

    files.meanwhile = replace
    with cache.borrow("/a") as file:
        assert file.pread(9, 0) == b"new"
    assert files.open_handles == cache.open_count == 1


@pytest.mark.parametrize("write", [False, True])
def test_acquire_shares_the_other_handle_when_another_thread_was_faster(write: bool) -> None:
    files = OpenHook()
    files.open("/a", create=True).close()
    cache = HandleCache(files, 4)
    other: list[File] = []
    files.meanwhile = lambda: other.append(cache.acquire("/a", write=True))
    file = cache.acquire("/a", write=write)
    assert [file] == other
    cache.release(file)
    cache.release(file)
    assert files.open_handles == cache.open_count == 1


def test_cache_stays_consistent_when_used_by_many_threads(files: FaultFiles) -> None:
    cache = HandleCache(files, 2)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = Random(seed)
        try:
            for _ in range(300):
                path = rng.choice(NAMES)
                write = rng.random() < 0.2
                with cache.borrow(path, write=write) as file:
                    assert file.pread(9, 0) == path.encode()
                    if write:
                        cache.mark_dirty(path)
                if write:
                    cache.sync(path)
                if rng.random() < 0.05:
                    cache.forget(path)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert files.open_handles == cache.open_count <= 2
    cache.close_all()
    assert files.open_handles == 0


class CacheMachine(RuleBasedStateMachine):
    """Random use against a model: who borrows what, and what is dirty."""

    def __init__(self) -> None:
        super().__init__()
        self.files = prepared()
        self.cache = HandleCache(self.files, 2)
        self.borrowed: list[tuple[str, File, bool]] = []
        self.dirty: set[str] = set()

    @rule(path=st.sampled_from(NAMES), write=st.booleans())
    def acquire(self, path: str, write: bool) -> None:
        self.borrowed.append((path, self.cache.acquire(path, write), write))

    @precondition(lambda self: self.borrowed)
    @rule(data=st.data(), wrote=st.booleans())
    def release(self, data: st.DataObject, wrote: bool) -> None:
        path, file, writable = self.borrowed.pop(data.draw(st.integers(0, len(self.borrowed) - 1)))
        wrote = wrote and writable
        current = self.cache.acquire(path)
        self.cache.release(current)
        self.cache.release(file, dirty=wrote)
        if wrote and current is file:
            self.dirty.add(path)

    @rule(path=st.sampled_from(NAMES))
    def sync(self, path: str) -> None:
        self.cache.sync(path)
        self.dirty.discard(path)

    @rule(path=st.sampled_from(NAMES))
    def forget(self, path: str) -> None:
        self.cache.forget(path)
        self.dirty.discard(path)

    @invariant()
    def borrowed_and_dirty_files_are_open_and_the_rest_within_the_limit(self) -> None:
        for path, file, _ in self.borrowed:
            assert file.pread(9, 0) == path.encode()
        for path in NAMES:
            assert self.cache.is_dirty(path) == (path in self.dirty)
        held = len({id(file) for _, file, _ in self.borrowed}) + len(self.dirty)
        assert self.files.open_handles == self.cache.open_count <= max(2, held)


CacheMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestCacheMachine = CacheMachine.TestCase


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [(1024, 4096, 2048), (1024, 1024, 512), (1024, 10**6, HANDLES_MAX), (1, 1, 1), (1024, -1, HANDLES_MAX)],
)
def test_default_limit_is_half_of_the_hard_limit_when_that_is_moderate(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, expected: int
) -> None:
    raised = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    assert default_handle_limit() == expected
    assert raised == ([] if soft == hard else [(hard, hard)])


def test_default_limit_uses_the_soft_limit_when_it_cannot_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert default_handle_limit() == 512
