"""Which brokers hold the replicas of new partitions.

What is promised, in this order:

1. No two replicas of a partition on one broker.
2. Brokers that are fenced or shutting down hold a replica only where the others do not suffice, and are
   never the first: three registered brokers are enough for replication factor 3 while one of them restarts,
   and the replica there catches up when it is back. With no active broker at all, nothing is placed.
3. The replicas of a partition spread over racks, and within a rack over hosts, as evenly as brokers allow.
   Too few racks or hosts never refuse a partition: three brokers on one laptop are enough for three
   replicas. Brokers that name no rack count as one rack.
4. Leaders (first replicas), then replicas, are balanced: first within the topic, so that its traffic is
   shared by all brokers whatever else they hold; then over everything that brokers hold, so that many topics
   of one partition spread too. Rule 3 goes before: a lone broker of a rack holds more than those that share
   one.

Ties are broken by numbers that follow from `seed`, so the same image and seed give the same placement, and
those who follow one leader are not always the same. Pure; called when topics and partitions are created.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import BrokerImage, ClusterImage

_SHOWN_BROKERS = 20


def place_replicas(
    image: ClusterImage,
    *,
    partitions: int,
    replication_factor: int,
    start_partition: int = 0,
    seed: int,
    existing: Sequence[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """The replicas of each of so many new partitions of one topic, the preferred leader first.

    `existing` are the replicas of the partitions that the topic has; `start_partition` is the number of the
    first new one. Raises INVALID_REPLICATION_FACTOR when the brokers cannot hold so many replicas.
    """
    placer = Placer(image, seed=seed + start_partition)
    return placer.place(partitions=partitions, replication_factor=replication_factor, existing=existing)


class Placer:
    """Places several topics one after the other, each taking those before it into account."""

    def __init__(self, image: ClusterImage, *, seed: int) -> None:
        self._image = image
        self._ties = _Ties(seed)
        groups: dict[tuple[str, ...], _Group] = {}
        self._candidates = {
            broker.broker_id: _Candidate(
                broker,
                rack=groups.setdefault((broker.rack,), _Group()),
                host=groups.setdefault((broker.rack, broker.host), _Group()),
                tie=self._ties.next(),
            )
            for _, broker in sorted(image.brokers.items())
        }
        self._active = [one for one in self._candidates.values() if one.active]
        self._inactive = [one for one in self._candidates.values() if not one.active]
        self._groups = list(groups.values())
        self._counted_image = False

    def place(
        self, *, partitions: int, replication_factor: int, existing: Sequence[Sequence[int]] = ()
    ) -> list[tuple[int, ...]]:
        self._check(replication_factor)
        self._count_image()
        self._start_topic(existing)
        return [self._place_one(replication_factor) for _ in range(partitions)]

    def count(self, placed: Iterable[Sequence[int]]) -> None:
        """Partitions that someone else placed and the image does not hold yet."""
        for replicas in placed:
            for position, broker_id in enumerate(replicas):
                if (one := self._candidates.get(broker_id)) is not None:
                    one.replicas += 1
                    one.leaders += position == 0

    def _check(self, replication_factor: int) -> None:
        if replication_factor < 1:
            raise _refused(f"the replication factor must be 1 or more, not {replication_factor}")
        brokers = self._candidates.values()
        if not brokers:
            raise _refused("no broker is registered yet: start one, and try again")
        if not self._active:
            raise _refused(
                f"none of the registered brokers ({_names(brokers)}) takes new partitions, since all are"
                " fenced or shutting down: start one, and try again when it is up"
            )
        if replication_factor > len(brokers):
            raise _refused(
                f"replication factor {replication_factor} needs as many brokers, and {len(brokers)} "
                f"{'is' if len(brokers) == 1 else 'are'} registered ({_names(brokers)}): start more, or ask "
                f"for at most {len(brokers)}"
            )

    def _count_image(self) -> None:
        """Once, and only when something is to be placed: with many partitions it takes a while."""
        if self._counted_image:
            return
        self._counted_image = True
        held = [partition for topic in self._image.topics.values() for partition in topic.partitions]
        leaders = Counter(partition.replicas[0] for partition in held if partition.replicas)
        replicas = Counter(chain.from_iterable(partition.replicas for partition in held))
        leaving = Counter(chain.from_iterable(one.removing for one in held if one.removing))
        for broker_id, one in self._candidates.items():
            one.leaders += leaders[broker_id]
            one.replicas += replicas[broker_id] - leaving[broker_id]

    def _start_topic(self, existing: Sequence[Sequence[int]]) -> None:
        for one in self._candidates.values():
            one.topic_leaders = one.topic_replicas = 0
        for replicas in existing:
            for position, broker_id in enumerate(replicas):
                if (held := self._candidates.get(broker_id)) is not None:
                    held.topic_replicas += 1
                    held.topic_leaders += position == 0

    def _place_one(self, replication_factor: int) -> tuple[int, ...]:
        for group in self._groups:
            group.used = 0
        leader = min(self._active, key=_BY_LEADERS)
        leader.leaders += 1
        leader.topic_leaders += 1
        self._take(leader)
        chosen = [leader]
        for tier in (self._active, self._inactive):
            free = [one for one in tier if one is not leader]
            while free and len(chosen) < replication_factor:
                follower = min(free, key=_BY_REPLICAS)
                free.remove(follower)
                self._take(follower)
                chosen.append(follower)
        return tuple(one.broker_id for one in chosen)

    def _take(self, one: _Candidate) -> None:
        one.replicas += 1
        one.topic_replicas += 1
        one.rack.used += 1
        one.host.used += 1
        one.tie = self._ties.next()


class _Group:
    """A rack, or a host in a rack: how many replicas of the partition at hand it has."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = 0


class _Candidate:
    """A broker, with what it holds of all topics and of the topic at hand."""

    __slots__ = (
        "active",
        "broker_id",
        "host",
        "leaders",
        "rack",
        "replicas",
        "tie",
        "topic_leaders",
        "topic_replicas",
    )

    def __init__(self, broker: BrokerImage, *, rack: _Group, host: _Group, tie: int) -> None:
        self.broker_id = broker.broker_id
        self.active = broker.active
        self.rack = rack
        self.host = host
        self.leaders = self.replicas = 0
        self.topic_leaders = self.topic_replicas = 0
        self.tie = tie


_BY_LEADERS = attrgetter("topic_leaders", "leaders", "topic_replicas", "replicas", "tie", "broker_id")
_BY_REPLICAS = attrgetter("rack.used", "host.used", "topic_replicas", "replicas", "tie", "broker_id")


class _Ties:
    """A linear congruential sequence: well spread numbers that follow from the seed alone."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed
        self.next()

    def next(self) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self._state >> 33


def _names(brokers: Iterable[_Candidate]) -> str:
    ids = [str(one.broker_id) for one in brokers]
    more = len(ids) - _SHOWN_BROKERS
    return ", ".join(ids[:_SHOWN_BROKERS]) + (f" and {more} more" if more > 0 else "")


def _refused(message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
