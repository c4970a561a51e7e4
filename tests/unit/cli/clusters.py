"""A controller behind gRPC on loopback, and commands that are run against it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from typer.testing import CliRunner, Result

from tailrace.clients.blocking import shared_loop
from tailrace.clients.cli.main import app
from tailrace.cluster.rpc.grpc_transport import GrpcTransport
from tailrace.cluster.rpc.tls import TlsSettings
from tests.unit.clients.controllers import Controllers

Event = dict[str, Any]
HOST = "127.0.0.1"


class CommandCluster:
    """Runs on the loop of the blocking clients, since there should be one loop with gRPC in a process."""

    def __init__(self, tls: TlsSettings | None = None) -> None:
        self.controllers = Controllers({HOST: GrpcTransport()}, tls=tls)

    def do(self, action: Callable[[Controllers], Awaitable[None]]) -> None:
        async def act() -> None:
            await action(self.controllers)

        shared_loop().run(act())

    @property
    def address(self) -> str:
        return self.controllers.addresses()

    def invoke(self, *arguments: str) -> Result:
        return invoke(*arguments, "--bootstrap-controller", self.address)

    def output(self, *arguments: str) -> str:
        """Of a command that ends well."""
        done = self.invoke(*arguments)
        assert (done.exit_code, done.stderr) == (0, ""), done.output
        return done.stdout

    def events(self, *arguments: str, exit_code: int = 0) -> list[Event]:
        done = self.invoke(*arguments, "--json")
        assert done.exit_code == exit_code, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def command_cluster(tls: TlsSettings | None = None) -> Iterator[CommandCluster]:
    """With the brokers 1, 2 and 3."""
    cluster = CommandCluster(tls)

    async def start(controllers: Controllers) -> None:
        await controllers.start(asyncio.get_running_loop())
        await controllers.create_cluster()
        await controllers.add_brokers(1, 2, 3)

    cluster.do(start)
    try:
        yield cluster
    finally:
        cluster.do(lambda controllers: controllers.stop())


def invoke(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), env=env)


def lines(text: str) -> list[list[str]]:
    """The words of each line, however far apart a table puts them."""
    return [line.split() for line in text.splitlines()]
