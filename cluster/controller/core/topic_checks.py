"""What is asked of topics before anything is done with them: names, references, assignments, limits.

The checks raise `TailraceError`, which an operation turns into the error of the item at hand. Pure; used by
the operations on topics, partitions and their settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage, PartitionImage, TopicImage
from tailrace.cluster.common.names import check_topic_partition
from tailrace.cluster.common.types import TopicPartition
from tailrace.v1.admin_pb2 import ReplicaAssignment, TopicRef

INTERNAL_PREFIX = "__"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLimits:
    """How many partitions there may be. An entry of the metadata log is applied as a whole, so what one
    request may ask for is what every node can apply without falling behind."""

    per_topic: int = 10_000
    new_per_request: int = 10_000


USUAL_LIMITS = PartitionLimits()


class PartitionBudget:
    """What is left of the limits while the topics of one request are looked at in turn."""

    def __init__(self, limits: PartitionLimits) -> None:
        self._limits = limits
        self._left = limits.new_per_request

    def check(self, new: int, *, existing: int = 0) -> None:
        if new + existing > self._limits.per_topic:
            raise TailraceError(
                ErrorCode.INVALID_PARTITIONS,
                f"a topic can have at most {self._limits.per_topic} partitions, not {new + existing}",
            )
        if new > self._left:
            raise TailraceError(
                ErrorCode.POLICY_VIOLATION,
                f"one request can make at most {self._limits.new_per_request} partitions, and of these "
                f"{self._left} are left, not {new}: ask for fewer, or in several requests",
            )

    def spend(self, new: int) -> None:
        self._left -= new


class TakenNames:
    """The names that a new topic may not have."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._added: set[str] = set()
        self._alike: dict[str, str] | None = None

    def check(self, name: str) -> None:
        """Raises unless a topic can be created with this name.

        Two names that differ in '.' and '_' only are refused, as in Kafka: metrics use both characters alike,
        so the two topics could not be told apart there.
        """
        check_topic_partition(TopicPartition(name, 0))
        if name in self._image.topic_ids or name in self._added:
            raise TailraceError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"topic {name!r} exists: use it, or choose another name",
            )
        if "." not in name and "_" not in name:
            return
        if (other := self._names_alike().get(_alike(name))) is not None:
            raise TailraceError(
                ErrorCode.INVALID_TOPIC,
                f"topic {name!r} would collide with topic {other!r}: metrics show '.' and '_' alike, so "
                "names must differ in more than these; choose another name",
            )

    def add(self, name: str) -> None:
        self._added.add(name)
        if self._alike is not None:
            self._alike[_alike(name)] = name

    def _names_alike(self) -> dict[str, str]:
        """Made on the first use, since it looks at every topic."""
        if self._alike is None:
            self._alike = {_alike(name): name for name in (*self._image.topic_ids, *self._added)}
        return self._alike


def _alike(name: str) -> str:
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Kept by Tailrace for itself; left out where someone asks for all topics."""
    return name.startswith(INTERNAL_PREFIX)


def repeated(keys: Iterable[Key]) -> set[Key]:
    """Those that occur more than once."""
    return {key for key, count in Counter(keys).items() if count > 1}


def named_topic(image: ClusterImage, name: str) -> TopicImage:
    topic = image.topic(name)
    if topic is None:
        shown = name if len(name) <= 60 else f"{name[:60]}..."
        raise TailraceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {shown!r} does not exist")
    return topic


def referred_topic(image: ClusterImage, ref: TopicRef) -> TopicImage:
    """By name, by id, or by both when they must belong together."""
    if not ref.topic_id:
        if not ref.name:
            raise TailraceError(ErrorCode.INVALID_REQUEST, "give the topic's name or its id")
        return named_topic(image, ref.name)
    if len(ref.topic_id) != 16:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST, f"a topic's id has 16 bytes, and this one {len(ref.topic_id)}"
        )
    topic_id = UUID(bytes=ref.topic_id)
    topic = image.topics.get(topic_id)
    if topic is None:
        raise TailraceError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"no topic has the id {topic_id}; a topic that was deleted and created anew has another",
        )
    if ref.name and topic.name != ref.name:
        raise TailraceError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"the id {topic_id} is that of topic {topic.name!r}, not of {ref.name!r}: give the one you mean",
        )
    return topic


def replication_factor(topic: TopicImage) -> int:
    """That of its first partition, as it was before a reassignment that is going on."""
    first = topic.partitions[0]
    return len(first.replicas) - len(first.adding)


def checked_assignment(
    image: ClusterImage,
    assignment: Sequence[ReplicaAssignment],
    *,
    first_partition: int = 0,
    factor: int | None = None,
) -> list[tuple[int, ...]]:
    """The replicas that someone chose, or INVALID_REPLICA_ASSIGNMENT.

    `factor` is how many each partition must have; None: as many as the first. Brokers must be registered,
    and at least one of each partition active, since only an active one can lead.
    """
    placed = []
    for number, one in enumerate(assignment, first_partition):
        replicas = tuple(one.broker_ids)
        if (problem := _wrong_replicas(image, replicas, factor)) is not None:
            raise TailraceError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partition {number} {problem}")
        factor = len(replicas)
        placed.append(replicas)
    return placed


def _wrong_replicas(image: ClusterImage, replicas: tuple[int, ...], factor: int | None) -> str | None:
    shown = ", ".join(map(str, replicas))
    if not replicas:
        return "has no broker: name at least one"
    if len(set(replicas)) != len(replicas):
        return f"has a broker twice ({shown}): each replica needs a broker of its own"
    if unknown := [one for one in replicas if one not in image.brokers]:
        registered = ", ".join(map(str, sorted(image.brokers))) or "none"
        return (
            f"has brokers that are not registered ({', '.join(map(str, unknown))}); registered: {registered}"
        )
    if factor is not None and len(replicas) != factor:
        return f"has {len(replicas)} replicas ({shown}), and all partitions of the topic must have {factor}"
    if not any(image.brokers[one].active for one in replicas):
        return (
            f"has only brokers that are fenced or shutting down ({shown}), of which none can lead: name an "
            "active one, or try again when one is up"
        )
    return None


def new_partition(image: ClusterImage, replicas: tuple[int, ...]) -> PartitionImage:
    """A partition as it begins: every active replica is in sync, since there is nothing to catch up with.

    Fenced replicas stay out of the ISR until they have asked to join it: they would count as having what
    is committed from the first record on, without having been there. Placement and `checked_assignment` see
    to it that at least one replica is active, so a new partition always has a leader.
    """
    in_sync = tuple(one for one in replicas if image.brokers[one].active)
    return PartitionImage(
        replicas=replicas, isr=in_sync, leader=in_sync[0], leader_epoch=0, partition_epoch=0
    )
