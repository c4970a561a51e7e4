"""What administrators hand in and get back: values that do not change, without a trace of the wire.

Collections are tuples and mappings; what is not there is None, where the wire has -1 or an empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition

ConfigValue = str | int | float
"""Settings are texts; numbers and flags are taken too, and shown as settings show them."""

# What is asked for.


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. A number that is not given is the cluster's default.

    `replica_assignment` names the brokers of each partition in turn, the preferred leader first; then
    neither of the numbers is given.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    _: KW_ONLY
    replica_assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic is to have in all, and the brokers of each new one if they are chosen."""

    total: int
    _: KW_ONLY
    replica_assignment: Sequence[Sequence[int]] = ()


class ConfigResourceType(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """Whose settings are meant: `ConfigResource.topic("clicks")`, `.broker(1)`, `.broker_defaults()`."""

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> Self:
        return cls(ConfigResourceType.BROKER, str(broker_id))

    @classmethod
    def broker_defaults(cls) -> Self:
        """What holds for every broker that has no setting of its own."""
        return cls(ConfigResourceType.BROKER, "")

    def __str__(self) -> str:
        return f"{self.type} {self.name}" if self.name else f"all {self.type}s"


class ConfigOp(StrEnum):
    SET = "set"
    DELETE = "delete"
    APPEND = "append"
    SUBTRACT = "subtract"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of a setting; `append` and `subtract` are for settings that are lists."""

    key: str
    op: ConfigOp
    value: ConfigValue = ""

    @classmethod
    def set(cls, key: str, value: ConfigValue) -> Self:
        return cls(key, ConfigOp.SET, value)

    @classmethod
    def delete(cls, key: str) -> Self:
        """Back to the default."""
        return cls(key, ConfigOp.DELETE)

    @classmethod
    def append(cls, key: str, value: ConfigValue) -> Self:
        return cls(key, ConfigOp.APPEND, value)

    @classmethod
    def subtract(cls, key: str, value: ConfigValue) -> Self:
        return cls(key, ConfigOp.SUBTRACT, value)


class ElectionType(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"
    """A leader that may lack committed records, where there is no other: records may be lost."""


# What is answered.


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    name: str
    topic_id: UUID
    internal: bool
    partition_count: int


class ConfigSource(StrEnum):
    """Where a value comes from; Kafka's names."""

    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"
    UNKNOWN = "UNKNOWN"
    """A source that this release of the client does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """`synonyms` are in the order in which they count, this value's first; filled when asked for."""

    name: str
    value: str | None
    """None when it is sensitive and so not told."""
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: str
    documentation: str
    synonyms: tuple[ConfigSynonym, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """`topic_id` is None when the request was only to be validated."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    """Out of the ISR, but with everything committed."""
    last_known_leader: int | None
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    recovering: bool

    @property
    def replication_factor(self) -> int:
        """Without the replicas that a reassignment is adding."""
        return len(self.replicas) - len(self.adding)

    @property
    def under_replicated(self) -> bool:
        return len(self.isr) < self.replication_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    name: str
    topic_id: UUID
    internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """`replicas` holds those that come and those that go, for as long as it lasts."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(one for one in self.replicas if one not in self.removing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    listener: str
    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRange:
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    directory_id: UUID
    online: bool


class BrokerState(StrEnum):
    ACTIVE = "active"
    FENCED = "fenced"
    SHUTTING_DOWN = "shutting down"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    broker_id: int
    broker_epoch: int
    state: BrokerState
    host: str
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    log_dirs: tuple[LogDir, ...]
    features: Mapping[str, FeatureRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDescription:
    node_id: int
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, FeatureRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int | None
    controller_epoch: int
    metadata_version: int
    """How many entries of the metadata log this description stands on."""
    brokers: tuple[BrokerDescription, ...]
    controllers: tuple[ControllerDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """`level` is what every node may count on, 0 for none; the others bound what it can be set to now."""

    name: str
    level: int
    min_supported: int
    max_supported: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    node_id: int
    host: str
    port: int
    connected: bool
    match_index: int | None
    lag: int | None
    """In entries."""
    last_contact_ms: int | None
    """How long ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """As `node_id` sees it. Only the leader knows how far the other voters are."""

    node_id: int
    leader_id: int | None
    controller_epoch: int
    term: int
    last_index: int
    commit_index: int
    applied_index: int
    metadata_version: int
    voters: tuple[Voter, ...]
    snapshot_version: int | None
    snapshot_bytes: int
    snapshot_age_ms: int | None
    journal_entries: int
    journal_bytes: int
    snapshots_failed: int


class AdminError(TailraceError):
    """Some items of a request failed. `errors` says which and why; `results` has the others, which are done.

    The code is that of the first item that failed, so a request for one item can be handled like any error:

        except TailraceError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS: raise
    """

    def __init__(self, errors: Mapping[Any, TailraceError], results: Mapping[Any, Any]) -> None:
        self.errors = dict(errors)
        self.results = dict(results)
        first: ErrorCode = next(iter(self.errors.values())).code
        super().__init__(first, _told(self.errors, len(self.results), first))

    def __reduce__(self) -> Any:
        return type(self), (self.errors, self.results)


def _told(errors: Mapping[Any, TailraceError], done: int, first: ErrorCode) -> str:
    lines = [f"{item}: {error.args[0] if error.code is first else error}" for item, error in errors.items()]
    if len(lines) == 1 and not done:
        return lines[0]
    which = f"all {len(lines)}" if not done else f"{len(lines)} of {len(lines) + done}"
    return "\n  ".join([f"{which} failed:", *lines])


__all__ = [
    "AdminError",
    "BrokerDescription",
    "BrokerState",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "ControllerDescription",
    "CreatedTopic",
    "ElectionType",
    "Endpoint",
    "FeatureDescription",
    "FeatureRange",
    "LogDir",
    "NewPartitions",
    "NewTopic",
    "PartitionDescription",
    "PartitionReassignment",
    "QuorumDescription",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "Voter",
]
