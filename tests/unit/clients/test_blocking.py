"""The event-loop thread that blocking clients share."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable

import pytest

from tailrace.clients.blocking import LoopThread, PerProcess, run_blocking, shared_loop
from tailrace.cluster.common.errors import ErrorCode, TailraceError


async def thread_of_the_loop() -> int:
    return threading.get_ident()


async def fail() -> None:
    raise TailraceError(ErrorCode.NOT_LEADER, "as told")


def in_child(check: Callable[[], bool]) -> bool:
    """Whether `check` holds in a forked process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That forking with threads is delicate is what is tested.
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_all_calls_of_a_process_run_on_one_thread() -> None:
    found: set[int] = set()
    threads = [
        threading.Thread(target=lambda: found.add(shared_loop().run(thread_of_the_loop()))) for _ in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(found) == 1
    assert threading.get_ident() not in found


def test_error_of_a_call_is_raised_to_its_caller() -> None:
    with pytest.raises(TailraceError, match="as told"):
        shared_loop().run(fail())


def test_call_from_the_loop_itself_is_refused() -> None:
    async def call_blocking() -> None:
        shared_loop().run(fail())

    with pytest.raises(TailraceError, match="await the asynchronous client") as raised:
        shared_loop().run(call_blocking())
    assert raised.value.code is ErrorCode.INVALID_REQUEST


def test_call_is_cancelled_when_its_caller_is_interrupted() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def wait_for_ever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupt() -> None:
        main = threading.main_thread().ident
        assert main is not None
        begun.wait(30)
        signal.pthread_kill(main, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    # A shell starts what runs in its background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            shared_loop().run(wait_for_ever())
    finally:
        signal.signal(signal.SIGINT, before)
    interrupter.join()
    assert ended.wait(30)


def test_stopped_thread_refuses_calls() -> None:
    loop = LoopThread()
    assert loop.run(thread_of_the_loop()) != threading.get_ident()
    loop.stop()
    loop.stop()
    with pytest.raises(TailraceError) as raised:
        loop.run(fail())
    assert raised.value.code is ErrorCode.CLIENT_CLOSED


def test_forked_process_has_a_loop_of_its_own() -> None:
    parent = shared_loop()
    assert parent.run(thread_of_the_loop())

    def check() -> bool:
        child = shared_loop()
        return child is not parent and run_blocking(thread_of_the_loop()) != threading.get_ident()

    assert in_child(check)
    assert shared_loop() is parent
    assert run_blocking(thread_of_the_loop())


class Client:
    def __init__(self) -> None:
        self.process = os.getpid()
        self.rests = 0

    async def rest(self) -> None:
        self.rests += 1


def test_client_rests_before_a_fork_and_is_made_anew_in_the_child() -> None:
    shared_loop()
    client = PerProcess(Client)
    mine = client.get()
    assert (mine.process, mine.rests) == (os.getpid(), 0)

    def check() -> bool:
        return client.get() is client.get() and client.get().process == os.getpid()

    assert in_child(check)
    assert client.get() is mine
    assert mine.rests == 1


def test_clients_of_a_child_refuse_calls_when_it_was_forked_in_the_middle_of_one() -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def wait() -> None:
        begun.set()
        while not go_on.is_set():  # noqa: ASYNC110  (set by another thread)
            await asyncio.sleep(0.001)

    def check() -> bool:
        with pytest.raises(TailraceError, match="forked in the middle of a call"):
            run_blocking(thread_of_the_loop())
        return True

    caller = threading.Thread(target=lambda: run_blocking(wait()))
    caller.start()
    try:
        assert begun.wait(30)
        assert in_child(check)
    finally:
        go_on.set()
        caller.join()
    assert run_blocking(thread_of_the_loop())


def test_fork_succeeds_when_a_client_cannot_rest() -> None:
    class Restless(Client):
        async def rest(self) -> None:
            raise ZeroDivisionError

    shared_loop()
    client = PerProcess(Restless)

    def check() -> bool:
        with pytest.raises(TailraceError, match="forked in the middle of a call"):
            run_blocking(client.get().rest())
        return True

    assert in_child(check)
    assert run_blocking(thread_of_the_loop())


def test_process_ends_at_once_when_calls_are_under_way() -> None:
    code = """
import asyncio, threading
from tailrace.clients.blocking import shared_loop
begun = threading.Event()
async def wait():
    begun.set()
    await asyncio.Event().wait()
threading.Thread(target=lambda: shared_loop().run(wait()), daemon=True).start()
begun.wait()
print("over")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
