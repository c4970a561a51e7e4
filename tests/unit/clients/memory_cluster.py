"""A cluster of controllers in memory on virtual time, for tests of `AsyncAdmin`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tailrace.clients.async_admin import AsyncAdmin
from tailrace.cluster.rpc.memory import MemoryNetwork, MemoryTransport
from tests.support.virtual_loop import run_virtually
from tests.unit.clients.controllers import Controllers

HOSTS = ("c1", "c2", "c3")


class MemoryCluster(Controllers):
    def __init__(self, network: MemoryNetwork, hosts: tuple[str, ...], *, automatic: bool = True) -> None:
        super().__init__({host: network.host(host) for host in hosts}, automatic=automatic)
        self.network = network
        self.desk: MemoryTransport = network.host("desk")
        self._clients: list[AsyncAdmin] = []

    def admin(self, *node_ids: int, **options: object) -> AsyncAdmin:
        made = self.client(self.desk, *node_ids, **options)
        self._clients.append(made)
        return made

    async def stop(self) -> None:
        for one in self._clients:
            await one.close()
        await super().stop()


def with_cluster(test: Callable[[MemoryCluster], Awaitable[None]], hosts: tuple[str, ...] = HOSTS) -> None:
    """Runs a test with controllers of which the first is active, and with brokers 1, 2 and 3."""

    async def main() -> None:
        cluster = MemoryCluster(MemoryNetwork(), hosts)
        await cluster.start(asyncio.get_running_loop())
        try:
            await cluster.create_cluster()
            await cluster.add_brokers(1, 2, 3)
            await test(cluster)
        finally:
            await cluster.stop()

    run_virtually(main())
