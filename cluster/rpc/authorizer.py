"""The one place that says who may do what. Everything is allowed until access control lists are built.

Services call it before they decide anything. It raises TOPIC_, GROUP_, CLUSTER_ or
TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from tailrace.cluster.rpc.service import CallContext


class Operation(Enum):
    """Kafka's operations."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster_action"
    DESCRIBE_CONFIGS = "describe_configs"
    ALTER_CONFIGS = "alter_configs"
    IDEMPOTENT_WRITE = "idempotent_write"


class Resource(NamedTuple):
    kind: str
    name: str

    @classmethod
    def cluster(cls) -> Resource:
        return cls("cluster", "cluster")

    @classmethod
    def topic(cls, name: str) -> Resource:
        return cls("topic", name)


class Authorizer(Protocol):
    def check(self, context: CallContext, operation: Operation, resource: Resource) -> None: ...


class AllowAll:
    def check(self, context: CallContext, operation: Operation, resource: Resource) -> None:
        """Nothing is refused."""
