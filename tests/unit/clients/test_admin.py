"""`Admin`, which blocks, over real gRPC."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace import Admin, AdminError, AsyncAdmin, ErrorCode, NewTopic, TailraceError
from tailrace.clients.blocking import shared_loop
from tailrace.cluster.common.addresses import Address
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tests.unit.clients.controllers import Controllers

HOST = "127.0.0.1"


@contextmanager
def controllers() -> Iterator[Controllers]:
    made = Controllers({HOST: GrpcTransport()})

    async def start() -> None:
        await made.start(asyncio.get_running_loop())
        await made.create_cluster()
        await made.add_brokers(1, 2, 3)

    shared_loop().run(start())
    try:
        yield made
    finally:
        shared_loop().run(made.stop())


def test_calls_wait_for_their_answers() -> None:
    with controllers() as cluster, Admin(bootstrap_controllers=cluster.addresses()) as admin:
        created = admin.create_topics([NewTopic("clicks", partitions=6, replication_factor=3)])
        assert created["clicks"].partitions == 6
        assert list(admin.list_topics()) == ["clicks"]
        with pytest.raises(AdminError) as raised:
            admin.create_topics([NewTopic("clicks")])
        assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        admin.delete_topics(["clicks"])
        assert admin.list_topics() == {}


def test_several_threads_may_use_one_client() -> None:
    with controllers() as cluster, Admin(bootstrap_controllers=cluster.addresses()) as admin:
        names = [f"t{number}" for number in range(8)]
        threads = [threading.Thread(target=admin.create_topics, args=[[NewTopic(name)]]) for name in names]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert sorted(admin.list_topics()) == names


def test_closed_client_refuses_calls() -> None:
    with controllers() as cluster:
        admin = Admin(bootstrap_controllers=cluster.addresses())
        assert admin.list_topics() == {}
        admin.close()
        admin.close()
        with pytest.raises(TailraceError) as raised:
            admin.list_topics()
        assert raised.value.code is ErrorCode.CLIENT_CLOSED


def test_every_method_blocks_and_keeps_its_signature_and_documentation() -> None:
    awaited = {
        name
        for name, method in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
        if not name.startswith("_") and name != "rest"
    }
    assert len(awaited) == 16
    for name in awaited:
        blocking = getattr(Admin, name)
        assert not inspect.iscoroutinefunction(blocking)
        assert inspect.signature(blocking) == inspect.signature(getattr(AsyncAdmin, name))
        assert blocking.__doc__ == getattr(AsyncAdmin, name).__doc__


def test_address_that_may_not_be_used_is_passed_over_when_another_one_leads_there() -> None:
    made = Controllers({HOST: GrpcTransport(), "localhost": GrpcTransport()})
    elsewhere = Address("192.0.2.1", 9093)  # Reserved for documentation; plain text to it is refused.

    async def start() -> None:
        await made.start(asyncio.get_running_loop())
        await made.create_cluster(advertised={2: elsewhere})
        made.lead(2)

    shared_loop().run(start())
    try:
        with Admin(bootstrap_controllers=made.addresses(1, 2)) as admin:
            assert admin.list_topics() == {}
            assert admin.describe_cluster().controller_id == 2
        with (
            Admin(bootstrap_controllers=made.addresses(1), request_timeout_ms=300) as admin,
            pytest.raises(TailraceError, match=r"192\.0\.2\.1:9093 would use plain text") as raised,
        ):
            admin.list_topics()
        assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
    finally:
        shared_loop().run(made.stop())


def test_process_ends_quietly_when_its_client_was_not_closed() -> None:
    with controllers() as cluster:
        code = (
            "from tailrace import Admin\n"
            f"admin = Admin(bootstrap_controllers={cluster.addresses()!r})\n"
            "print(admin.list_topics())\n"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{}\n", "")
