"""Tailrace: a distributed, replicated, partitioned commit log for Python and Spark.

Importing this package imports none of its parts, so that a Spark worker or a small tool pays only for what
it touches: each name below is found in its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.clients.admin import Admin
    from tailrace.clients.admin_types import (
        AdminError,
        ConfigChange,
        ConfigResource,
        ElectionType,
        NewPartitions,
        NewTopic,
    )
    from tailrace.clients.async_admin import AsyncAdmin
    from tailrace.cluster.common.errors import ErrorCode, TailraceError
    from tailrace.cluster.common.types import TopicPartition

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AdminError",
    "AsyncAdmin",
    "ConfigChange",
    "ConfigResource",
    "ElectionType",
    "ErrorCode",
    "NewPartitions",
    "NewTopic",
    "TailraceError",
    "TopicPartition",
    "__version__",
]

_MODULES = {
    "Admin": "clients.admin",
    "AdminError": "clients.admin_types",
    "AsyncAdmin": "clients.async_admin",
    "ConfigChange": "clients.admin_types",
    "ConfigResource": "clients.admin_types",
    "ElectionType": "clients.admin_types",
    "ErrorCode": "cluster.common.errors",
    "NewPartitions": "clients.admin_types",
    "NewTopic": "clients.admin_types",
    "TailraceError": "cluster.common.errors",
    "TopicPartition": "cluster.common.types",
}


# Type checkers look at the imports above, and so notice a name that is not offered.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
