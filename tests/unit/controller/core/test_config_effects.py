from __future__ import annotations

from collections.abc import Mapping

from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage
from tailrace.cluster.controller.core.config_effects import partitions_of_changed_configs
from tests.support.metadata import image_with, partition

MIN_INSYNC = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


def cluster(
    *partitions: PartitionImage,
    own: Mapping[str, str] | None = None,
    default: Mapping[str, str] | None = None,
) -> ClusterImage:
    return image_with(
        brokers=[1, 2, 3],
        topics={"t": partitions},
        configs={"t": own or {}},
        broker_configs={"": default or {}},
    )


def changed_partitions(before: ClusterImage, after: ClusterImage) -> list[tuple[int, ...]]:
    """Number, leader, leader epoch and partition epoch of those that change, and then their ELR."""
    return [
        (one.partition, one.leader, one.leader_epoch, one.partition_epoch, *one.elr)
        for one in (record.partition for record in partitions_of_changed_configs(before, after))
    ]


def test_elr_is_emptied_when_the_isr_suffices_by_the_new_setting() -> None:
    partitions = partition(1, 2, 3, isr=(1,), elr=(2,)), partition(1, 2, 3)
    before = cluster(*partitions, own={MIN_INSYNC: "2"})
    assert changed_partitions(before, cluster(*partitions, own={MIN_INSYNC: "1"})) == [(0, 1, 0, 1)]


def test_elr_stays_when_the_isr_is_too_small_by_the_new_setting_too() -> None:
    partitions = (partition(1, 2, 3, isr=(1,), elr=(2,)),)
    before = cluster(*partitions, own={MIN_INSYNC: "3"})
    assert changed_partitions(before, cluster(*partitions, own={MIN_INSYNC: "2"})) == []


def test_partition_epoch_grows_when_the_setting_is_raised_and_somebody_leads() -> None:
    waiting = partition(1, 2, 3, isr=(), leader=NO_LEADER, elr=(1,), last_known_leader=1)
    partitions = partition(1, 2, 3), partition(1, 2, 3, isr=(1,)), partition(3), waiting
    before = cluster(*partitions, own={MIN_INSYNC: "1"})
    after = cluster(*partitions, own={MIN_INSYNC: "2"})
    assert changed_partitions(before, after) == [(0, 1, 0, 1), (1, 1, 0, 1)]


def test_partition_epoch_grows_when_the_setting_matters_only_after_the_reassignment_going_on() -> None:
    growing = partition(1, 2, isr=(1,), adding=(2,))
    before = cluster(growing, own={MIN_INSYNC: "1"})
    assert changed_partitions(before, cluster(growing, own={MIN_INSYNC: "2"})) == [(0, 1, 0, 1)]


def test_topic_is_touched_when_the_default_changes_and_it_has_none_of_its_own() -> None:
    partitions = (partition(1, 2, 3, isr=(1,), elr=(2,)),)
    lowered = {MIN_INSYNC: "1"}
    assert changed_partitions(cluster(*partitions), cluster(*partitions, default=lowered)) == [(0, 1, 0, 1)]
    own = {MIN_INSYNC: "2"}
    before = cluster(*partitions, own=own)
    assert changed_partitions(before, cluster(*partitions, own=own, default=lowered)) == []


def test_waiting_partition_gets_a_leader_when_unclean_elections_are_switched_on() -> None:
    waiting = partition(1, 2, 3, 4, isr=(), leader=NO_LEADER, elr=(4,), last_known_leader=4)
    before = cluster(waiting, partition(1, 2, 3))
    switched_on = cluster(waiting, partition(1, 2, 3), own={UNCLEAN: "true"})
    assert changed_partitions(before, switched_on) == [(0, 1, 1, 1)]


def test_nothing_is_touched_when_other_settings_change() -> None:
    partitions = (partition(1, 2, 3, isr=(1,), elr=(2,)),)
    after = cluster(*partitions, own={"retention.ms": "1"}, default={"log.retention.ms": "5"})
    assert changed_partitions(cluster(*partitions), after) == []
