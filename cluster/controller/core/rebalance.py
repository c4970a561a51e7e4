"""Giving leadership back to preferred replicas, after failures and restarts moved it to others.

For each broker the partitions are counted that prefer it (their first replica). When more than
`leader.imbalance.per.broker.percentage` of them are led by others, those of them that it can lead are given
back, as many as a round may move. The caller asks again after `leader.imbalance.check.interval.seconds`, or
at once when a round was full.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tailrace.cluster.common.image import ClusterImage, TopicImage
from tailrace.cluster.controller.core.partition_change import Wanted
from tailrace.cluster.controller.core.partition_edits import PartitionEdits
from tailrace.v1.metadata_pb2 import MetadataRecord


class RebalanceRound(NamedTuple):
    records: list[MetadataRecord]
    more: bool
    """Whether the bound left out some that could have been given back."""


class _Preferring(NamedTuple):
    """Partitions whose preferred replica is one broker: how many, and those that others lead."""

    total: int
    elsewhere: list[tuple[TopicImage, int]]

    @property
    def imbalance(self) -> float:
        return 100.0 * len(self.elsewhere) / self.total


def rebalance_leaders(
    image: ClusterImage, *, imbalance_per_broker_percentage: int, most_per_round: int
) -> RebalanceRound:
    """The brokers that lack most come first.

    Partitions that are being reassigned are left alone: their leaders may have to move when that is done.
    """
    unbalanced = [
        one for one in _by_preferred(image).values() if one.imbalance > imbalance_per_broker_percentage
    ]
    unbalanced.sort(key=lambda one: one.imbalance, reverse=True)
    edits = PartitionEdits(image)
    moved = 0
    for preferring in unbalanced:
        for topic, number in preferring.elsewhere:
            now = topic.partitions[number]
            if now.reassigning or now.replicas[0] not in now.isr:
                continue
            planned = edits.plan(topic, number, Wanted(prefer_first=True))
            if planned.leader != now.replicas[0]:
                continue
            if moved == most_per_round:
                return RebalanceRound(edits.records(), True)
            edits.put(topic, number, planned)
            moved += 1
    return RebalanceRound(edits.records(), False)


def _by_preferred(image: ClusterImage) -> dict[int, _Preferring]:
    counts: dict[int, int] = defaultdict(int)
    elsewhere: dict[int, list[tuple[TopicImage, int]]] = defaultdict(list)
    for topic, number, partition in image.partitions():
        preferred = partition.replicas[0]
        counts[preferred] += 1
        if partition.leader != preferred:
            elsewhere[preferred].append((topic, number))
    return {one: _Preferring(count, elsewhere[one]) for one, count in sorted(counts.items())}
