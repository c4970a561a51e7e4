"""`Admin`: administration of a cluster for programs that block. `AsyncAdmin` is the same, awaited.

    with Admin(bootstrap_controllers="host:9093") as admin:
        admin.create_topics([NewTopic("clicks", partitions=6, replication_factor=3)])

Every method is the one of `AsyncAdmin` of the same name, run on the event loop that all blocking clients of
the process share. An object may be used by several threads, and in a process forked from the one that made
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from tailrace.clients.admin_config import AdminConfig, AdminOptions
from tailrace.clients.async_admin import AsyncAdmin
from tailrace.clients.blocking import PerProcess, run_blocking
from tailrace.clients.controller_link import ControllerLink

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    @functools.wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_blocking(method(self._client.get(), *args, **kwargs))

    return call


class Admin:
    """Options: see `AdminOptions`. Nothing is opened before the first call."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._client = PerProcess(functools.partial(AsyncAdmin, **options))

    @classmethod
    def from_config(cls, config: AdminConfig) -> Self:
        return cls.on(lambda: ControllerLink(config))

    @classmethod
    def on(cls, open_link: Callable[[], ControllerLink]) -> Self:
        """A client on links that `open_link` makes, one for each process."""
        made = cls.__new__(cls)
        made._client = PerProcess(lambda: AsyncAdmin.on(open_link()))
        return made

    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    alter_partition_reassignments = _blocking(AsyncAdmin.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AsyncAdmin.list_partition_reassignments)
    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    unregister_broker = _blocking(AsyncAdmin.unregister_broker)
    describe_features = _blocking(AsyncAdmin.describe_features)
    update_features = _blocking(AsyncAdmin.update_features)
    describe_quorum = _blocking(AsyncAdmin.describe_quorum)
    close = _blocking(AsyncAdmin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
