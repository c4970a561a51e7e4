"""What a change of settings means for partitions: the ELR stands and falls with `min.insync.replicas`, and
`unclean.leader.election.enable` may bring a leader to partitions that wait for one.

Called by whoever changes settings; the records go into the same entry as the settings themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tailrace.cluster.controller.core.configs import MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION
from tailrace.cluster.controller.core.partition_change import Rules, Wanted
from tailrace.cluster.controller.core.partition_edits import PartitionEdits, rules_of
from tailrace.v1.metadata_pb2 import MetadataRecord

_SETTINGS = (MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION)


def partitions_of_changed_configs(before: ClusterImage, after: ClusterImage) -> list[MetadataRecord]:
    """`after` has the settings as they are to be, and the partitions of `before`.

    A smaller `min.insync.replicas` lets leaders commit without those in the ELR, who leave it therefore
    before any leader can have heard of it. A larger one gives every partition that is led a new partition
    epoch: a leader that still goes by the smaller number could shrink its ISR and commit alone, while the
    controller keeps whom it drops in the ELR. With the new epoch it has to learn of the setting, which stands
    in the same entry, before it can change the ISR at all; that it could not shrink it now is no excuse,
    since it might enlarge it first. Whether the number is larger is asked for the replication factors before
    and after a reassignment that is going on, because the leader itself may complete it.
    """
    edits = PartitionEdits(after)
    every = _differ(before.broker_configs(None), after.broker_configs(None))
    for topic in after.topics.values():
        if every or _differ(before.topic_configs(topic.name), after.topic_configs(topic.name)):
            _apply(edits, topic, rules_of(before, topic.name))
    return edits.records()


def _differ(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    return any(before.get(key) != after.get(key) for key in _SETTINGS)


def _apply(edits: PartitionEdits, topic: TopicImage, earlier: Rules) -> None:
    rules = edits.rules(topic)
    for number, partition in enumerate(topic.partitions):
        needed = [
            (min(earlier.min_insync(factor), factor), min(rules.min_insync(factor), factor))
            for factor in _factors(partition)
        ]
        raised = partition.leader != NO_LEADER and any(before < after for before, after in needed)
        lowered = any(before > after for before, after in needed)
        unclean_leader = rules.unclean and partition.leader == NO_LEADER
        if raised or lowered or unclean_leader:
            edits.edit(topic, number, Wanted(new_partition_epoch=raised))


def _factors(partition: PartitionImage) -> set[int]:
    """The replication factors before and after the reassignment that is going on, if one is."""
    count = len(partition.replicas)
    return {count - len(partition.adding), count - len(partition.removing)}
