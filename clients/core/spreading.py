"""Proposes where replicas should be when partitions move to other brokers. Pure and deterministic.

Whatever can stay, stays, since every replica that moves is a copy over the network: first replicas on
brokers that are not wanted any more are placed anew, then replicas move from the fullest brokers to the
emptiest until their numbers differ by one at most. Racks count before evenness: no replica moves for it into
a rack that has more of the same partition. Last the order of replicas is chosen, so that every broker is the
preferred leader of about as many partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition

Assignment = dict[TopicPartition, tuple[int, ...]]


def propose(
    current: Mapping[TopicPartition, Sequence[int]], brokers: Iterable[int], racks: Mapping[int, str | None]
) -> Assignment:
    """Replicas on `brokers` alone, as many for each partition as it has now.

    Raises INVALID_REPLICATION_FACTOR when there are not as many brokers.
    """
    spread = _Spread(sorted(set(brokers)), racks)
    for partition, replicas in sorted(current.items()):
        spread.keep(partition, replicas)
    for partition, replicas in sorted(current.items()):
        spread.fill(partition, len(replicas))
    spread.even_out()
    return spread.with_leaders()


class _Spread:
    def __init__(self, brokers: Sequence[int], racks: Mapping[int, str | None]) -> None:
        self._brokers = brokers
        self._racks = {broker: racks.get(broker) for broker in brokers}
        self._replicas: dict[TopicPartition, list[int]] = {}
        self._load = Counter(dict.fromkeys(brokers, 0))

    def keep(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        """What is on wanted brokers already."""
        self._replicas[partition] = [broker for broker in replicas if broker in self._racks]
        self._load.update(self._replicas[partition])

    def fill(self, partition: TopicPartition, factor: int) -> None:
        """Replaces what had to go: in a rack that has none, else on the emptiest broker."""
        if factor > len(self._brokers):
            raise TailraceError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{partition} has {factor} replicas, and each needs its own broker: name {factor} brokers "
                f"or more, not {len(self._brokers)}",
            )
        replicas = self._replicas[partition]
        while len(replicas) < factor:
            free = [broker for broker in self._brokers if broker not in replicas]
            best = min(free, key=lambda one: (self._in_rack_of(one, replicas), self._load[one], one))
            replicas.append(best)
            self._load[best] += 1

    def even_out(self) -> None:
        """Each step makes the loads more even, so there is an end to it."""
        while self._move_one():
            pass

    def _move_one(self) -> bool:
        by_load = sorted(self._brokers, key=lambda one: (self._load[one], one))
        for fullest in reversed(by_load):
            for emptiest in by_load:
                if self._load[fullest] - self._load[emptiest] < 2:
                    break
                if self._move(fullest, emptiest):
                    return True
        return False

    def _move(self, source: int, target: int) -> bool:
        for replicas in self._replicas.values():
            if source not in replicas or target in replicas:
                continue
            others = [one for one in replicas if one != source]
            if self._in_rack_of(target, others) <= self._in_rack_of(source, others):
                replicas[replicas.index(source)] = target
                self._load[source] -= 1
                self._load[target] += 1
                return True
        return False

    def with_leaders(self) -> Assignment:
        """The first replica is the one that leads fewest so far; the others keep their order."""
        leads: Counter[int] = Counter()
        ordered: Assignment = {}
        for partition, replicas in self._replicas.items():
            first = min(replicas, key=lambda one: (leads[one], replicas.index(one)))
            leads[first] += 1
            ordered[partition] = (first, *(one for one in replicas if one != first))
        return ordered

    def _in_rack_of(self, broker: int, replicas: Iterable[int]) -> int:
        """How many of the replicas share the broker's rack; a broker without a rack shares it with nobody."""
        rack = self._racks[broker]
        return 0 if rack is None else sum(self._racks[one] == rack for one in replicas)
