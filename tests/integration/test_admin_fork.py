"""A blocking client in forked processes, with the controller in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tailrace import Admin, NewTopic

CONTROLLER = """
import asyncio, sys
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tests.unit.clients.controllers import Controllers

async def main():
    controllers = Controllers({"127.0.0.1": GrpcTransport()})
    await controllers.start(asyncio.get_running_loop())
    await controllers.create_cluster()
    await controllers.add_brokers(1, 2, 3)
    print(controllers.addresses(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await controllers.stop()

asyncio.run(main())
"""


@pytest.fixture
def controller() -> Iterator[str]:
    """The address of a controller that is there until its standard input is closed."""
    command = [sys.executable, "-c", CONTROLLER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate(timeout=60)
    assert process.returncode == 0


def fork(work: Callable[[], object]) -> int:
    """Starts a child that does the work; the id of its process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That forking with threads is delicate is what is tested.
        child = os.fork()
    if child:
        return child
    signal.alarm(60)
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_client_works_in_forked_processes_and_in_the_one_that_made_it(controller: str) -> None:
    with Admin(bootstrap_controllers=controller) as admin:
        admin.create_topics([NewTopic("parent")])
        children = []
        for number in range(3):
            children.append(fork(partial(admin.create_topics, [NewTopic(f"child-{number}")])))
            admin.list_topics()
        assert [exit_code(child) for child in children] == [0, 0, 0]
        assert sorted(admin.list_topics()) == ["child-0", "child-1", "child-2", "parent"]


def test_child_of_a_child_has_a_client_too(controller: str) -> None:
    with Admin(bootstrap_controllers=controller) as admin:
        admin.list_topics()

        def work() -> None:
            admin.create_topics([NewTopic("child")])
            assert exit_code(fork(lambda: admin.create_topics([NewTopic("grandchild")]))) == 0
            admin.delete_topics(["child"])

        assert exit_code(fork(work)) == 0
        assert list(admin.list_topics()) == ["grandchild"]
