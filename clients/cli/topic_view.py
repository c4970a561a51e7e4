"""How `tailrace topics describe` shows topics: what they are, then their partitions, perhaps only some."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tailrace.clients.admin import Admin
from tailrace.clients.admin_types import (
    AdminError,
    BrokerState,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    PartitionDescription,
    TopicDescription,
)
from tailrace.clients.cli.arguments import shown_ids
from tailrace.clients.cli.cluster_command import Output
from tailrace.cluster.common.errors import ErrorCode

_MIN_ISR = "min.insync.replicas"


class Only(StrEnum):
    """Which partitions are shown, by the option that asks for them."""

    UNDER_REPLICATED = "--under-replicated-partitions"
    UNAVAILABLE = "--unavailable-partitions"
    UNDER_MIN_ISR = "--under-min-isr-partitions"
    AT_MIN_ISR = "--at-min-isr-partitions"


def show_topics(
    admin: Admin, output: Output, topics: Mapping[str, TopicDescription], only: Only | None
) -> None:
    configs = _configs(admin, output, topics)
    alive = _available_brokers(admin) if only is Only.UNAVAILABLE else frozenset()
    chosen: list[PartitionDescription] = []
    for name in sorted(topics.keys() & configs.keys()):
        shown = [
            one
            for one in topics[name].partitions
            if only is None or _matches(one, only, configs[name], alive)
        ]
        if only is None:
            _show_topic(output, topics[name], configs[name])
            _show_partitions(output, shown)
        chosen += shown
    if only is not None:
        _show_partitions(output, chosen)


def _configs(
    admin: Admin, output: Output, topics: Mapping[str, TopicDescription]
) -> dict[str, Mapping[str, ConfigEntry]]:
    """A topic that was deleted just now has none, and is left out."""
    resources = [ConfigResource.topic(name) for name in topics]
    try:
        found = admin.describe_configs(resources)
    except AdminError as error:
        found = output.refusals("topic", error, ignoring=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {resource.name: entries for resource, entries in found.items()}


def _available_brokers(admin: Admin) -> frozenset[int]:
    brokers = admin.describe_cluster().brokers
    return frozenset(one.broker_id for one in brokers if one.state is not BrokerState.FENCED)


def _matches(
    partition: PartitionDescription, only: Only, configs: Mapping[str, ConfigEntry], alive: frozenset[int]
) -> bool:
    min_isr = int(configs[_MIN_ISR].value or 1)
    match only:
        case Only.UNDER_REPLICATED:
            return partition.under_replicated
        case Only.UNAVAILABLE:
            return partition.leader is None or partition.leader not in alive
        case Only.UNDER_MIN_ISR:
            return len(partition.isr) < min_isr
        case Only.AT_MIN_ISR:
            return len(partition.isr) == min_isr


def _show_topic(output: Output, topic: TopicDescription, configs: Mapping[str, ConfigEntry]) -> None:
    own = {
        name: entry.value
        for name, entry in sorted(configs.items())
        if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }
    factor = topic.partitions[0].replication_factor if topic.partitions else 0
    output.event(
        {
            "type": "topic",
            "topic": topic.name,
            "topic_id": str(topic.topic_id),
            "internal": topic.internal,
            "partitions": len(topic.partitions),
            "replication_factor": factor,
            "configs": own,
        }
    )
    told = ",".join(f"{name}={value}" for name, value in own.items()) or "-"
    output.line(
        f"topic {topic.name}  id {topic.topic_id}  partitions {len(topic.partitions)}  replication factor "
        f"{factor}  configs {told}"
    )


def _show_partitions(output: Output, partitions: list[PartitionDescription]) -> None:
    for one in partitions:
        output.event(
            {
                "type": "partition",
                "topic": one.topic,
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": one.replicas,
                "isr": one.isr,
                "elr": one.elr,
                "last_known_leader": one.last_known_leader,
                "adding": one.adding,
                "removing": one.removing,
                "recovering": one.recovering,
            }
        )
    if not partitions:
        return
    moving = any(one.adding or one.removing for one in partitions)
    columns = ["topic", "partition>", "leader>", "epoch>", "replicas", "isr", "elr"]
    output.table(
        [*columns, "adding", "removing"] if moving else columns,
        [
            [
                one.topic,
                one.partition,
                "none" if one.leader is None else one.leader,
                one.leader_epoch,
                shown_ids(one.replicas),
                shown_ids(one.isr),
                shown_ids(one.elr),
                *([shown_ids(one.adding), shown_ids(one.removing)] if moving else []),
            ]
            for one in partitions
        ],
    )
