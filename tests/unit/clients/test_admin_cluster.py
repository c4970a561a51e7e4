"""Settings, leaders, reassignments and the cluster itself through `AsyncAdmin`."""

from __future__ import annotations

import pytest

from tailrace.clients import async_admin
from tailrace.clients.admin_types import (
    AdminError,
    BrokerState,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ElectionType,
    NewTopic,
    PartitionReassignment,
)
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition
from tests.support.metadata import broker, partition
from tests.unit.clients.memory_cluster import MemoryCluster, with_cluster

T = ConfigResource.topic("t")
DEFAULTS = ConfigResource.broker_defaults()


def test_settings_are_set_extended_reduced_and_deleted() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t", configs={"retention.ms": "1", "segment.bytes": "2000"})])
        await admin.alter_configs(
            {
                T: [
                    ConfigChange.set("retention.ms", "5000"),
                    ConfigChange.delete("segment.bytes"),
                    ConfigChange.append("cleanup.policy", "compact"),
                ]
            }
        )
        assert cluster.image.topic_configs("t") == {
            "retention.ms": "5000",
            "cleanup.policy": "delete,compact",
        }
        await admin.alter_configs({T: [ConfigChange.subtract("cleanup.policy", "delete")]})
        assert cluster.image.topic_configs("t")["cleanup.policy"] == "compact"

    with_cluster(test)


def test_settings_are_described_with_their_sources() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t", configs={"retention.ms": "5"})])
        await admin.alter_configs({DEFAULTS: [ConfigChange.set("log.retention.ms", "77")]})
        found = await admin.describe_configs([T, DEFAULTS], include_synonyms=True, include_documentation=True)
        entry = found[T]["retention.ms"]
        assert (entry.value, entry.source, entry.type) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG, "long")
        assert [(one.name, one.value, one.source) for one in entry.synonyms][:2] == [
            ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ("log.retention.ms", "77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ]
        assert entry.documentation
        assert found[T]["segment.bytes"].source is ConfigSource.DEFAULT_CONFIG
        assert {name: one.value for name, one in found[DEFAULTS].items()} == {"log.retention.ms": "77"}
        chosen = await admin.describe_configs([T], keys=["retention.ms"])
        assert list(chosen[T]) == ["retention.ms"]
        assert chosen[T]["retention.ms"].synonyms == ()
        assert await admin.describe_configs([T], keys=[]) == {T: {}}

    with_cluster(test)


def test_changes_of_one_resource_stand_or_fall_together() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t"), NewTopic("u")])
        other = ConfigResource.topic("u")
        bad = [ConfigChange.set("retention.ms", "5"), ConfigChange.set("retention.bites", "1")]
        with pytest.raises(AdminError, match=r"retention\.bytes") as raised:
            await admin.alter_configs({T: bad, other: [ConfigChange.set("retention.ms", "6")]})
        assert (list(raised.value.errors), list(raised.value.results)) == ([T], [other])
        assert raised.value.code is ErrorCode.INVALID_CONFIG
        assert cluster.image.topic_configs("t") == {}
        assert cluster.image.topic_configs("u") == {"retention.ms": "6"}
        await admin.alter_configs({T: [ConfigChange.set("retention.ms", "5")]}, validate_only=True)
        assert cluster.image.topic_configs("t") == {}

    with_cluster(test)


def test_many_resources_are_described_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_admin, "RESOURCES_A_REQUEST", 2)

    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        names = ["a", "b", "c", "d", "e"]
        await admin.create_topics([NewTopic(name) for name in names])
        cluster.asked.clear()
        resources = [ConfigResource.topic(name) for name in [*names, "a"]]
        found = await admin.describe_configs(resources, keys=["retention.ms"])
        assert list(found) == resources[:5]
        assert len(cluster.asked) == 3

    with_cluster(test)


def test_preferred_leaders_are_elected_where_they_do_not_lead() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_topic("t", partition(1, 2, leader=2), (2, 3), partition(3, 1, isr=[1]))
        admin = cluster.admin()
        first, second, third = (TopicPartition("t", number) for number in range(3))
        assert await admin.elect_leaders(partitions=[first, second]) == {first: True, second: False}
        with pytest.raises(AdminError) as raised:
            await admin.elect_leaders(ElectionType.PREFERRED)
        assert {item: one.code for item, one in raised.value.errors.items()} == {
            third: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        }

    with_cluster(test)


def test_unclean_election_finds_a_leader_where_there_is_none() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_topic("t", partition(1, 2, isr=[], last_known_leader=2), (2, 3))
        admin = cluster.admin()
        lost = TopicPartition("t", 0)
        assert await admin.elect_leaders("unclean") == {lost: True}
        assert (await admin.describe_topics(["t"]))["t"].partitions[0].leader is not None
        with pytest.raises(ValueError, match="sudden"):
            await admin.elect_leaders("sudden")

    with_cluster(test)


def test_no_partitions_named_is_not_all_partitions() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_topic("t", partition(1, 2, leader=2), partition(1, isr=[1], adding=[1]))
        admin = cluster.admin()
        assert await admin.elect_leaders(partitions=[]) == {}
        assert await admin.list_partition_reassignments([]) == {}
        await admin.alter_partition_reassignments({})
        await admin.alter_configs({})
        await admin.update_features({})
        assert cluster.asked == []

    with_cluster(test)


def test_reassignment_is_begun_listed_and_cancelled() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_topic("t", (1, 2), (2, 3))
        admin = cluster.admin()
        first = TopicPartition("t", 0)
        await admin.alter_partition_reassignments({first: [3, 2]})
        going_on = PartitionReassignment(replicas=(3, 2, 1), adding=(3,), removing=(1,))
        assert await admin.list_partition_reassignments() == {first: going_on}
        assert going_on.target == (3, 2)
        assert await admin.list_partition_reassignments([TopicPartition("t", 1)]) == {}
        await admin.alter_partition_reassignments({first: None})
        assert await admin.list_partition_reassignments() == {}
        assert set((await admin.describe_topics(["t"]))["t"].partitions[0].replicas) == {1, 2}

    with_cluster(test)


def test_reassignment_to_nowhere_is_no_cancellation() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_topic("t", (1, 2))
        admin = cluster.admin()
        first = TopicPartition("t", 0)
        await admin.alter_partition_reassignments({first: [3]})
        with pytest.raises(TailraceError, match="give None to cancel"):
            await admin.alter_partition_reassignments({first: []})
        assert list(await admin.list_partition_reassignments()) == [first]
        with pytest.raises(AdminError) as raised:
            await admin.alter_partition_reassignments({TopicPartition("t", 9): [1], first: None})
        assert list(raised.value.errors) == [TopicPartition("t", 9)]
        assert list(raised.value.results) == [first]

    with_cluster(test)


def test_cluster_is_described() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_brokers(broker(4, rack="east", fenced=True, dirs=2, offline_dirs=[1]))
        found = await cluster.admin().describe_cluster()
        assert (found.cluster_id, found.controller_id, found.controller_epoch) == ("test-cluster", 1, 1)
        assert found.metadata_version == cluster.image.version
        assert [one.broker_id for one in found.brokers] == [1, 2, 3, 4]
        assert [one.state for one in found.brokers] == [BrokerState.ACTIVE] * 3 + [BrokerState.FENCED]
        last = found.brokers[-1]
        assert (last.rack, [one.online for one in last.log_dirs]) == ("east", [True, False])
        assert found.brokers[0].rack is None
        assert str(found.brokers[0].endpoints[0]) == "CLIENT://host-1:9092"
        addresses = [(one.endpoints[0].host, one.endpoints[0].port) for one in found.controllers]
        assert addresses == [tuple(node.address) for node in cluster.nodes.values()]

    with_cluster(test)


def test_broker_is_unregistered_once() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.unregister_broker(2)
        assert [one.broker_id for one in (await admin.describe_cluster()).brokers] == [1, 3]
        cluster.asked.clear()
        with pytest.raises(TailraceError, match="no broker 2") as raised:
            await admin.unregister_broker(2)
        assert raised.value.code is ErrorCode.BROKER_NOT_REGISTERED
        assert len(cluster.asked) == 1, "retriable elsewhere, but an answer here"

    with_cluster(test)


def test_features_are_described_and_set_together() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        feature = (await admin.describe_features())["metadata.version"]
        assert feature.min_supported <= feature.level <= feature.max_supported
        await admin.update_features({"metadata.version": feature.level}, validate_only=True)
        for levels in ({"metadata.version": 999}, {"no.such.feature": 1}):
            with pytest.raises(TailraceError) as raised:
                await admin.update_features(levels)
            assert raised.value.code is ErrorCode.UNSUPPORTED_FEATURE

    with_cluster(test)


def test_quorum_is_described() -> None:
    async def test(cluster: MemoryCluster) -> None:
        found = await cluster.admin().describe_quorum()
        assert (found.node_id, found.leader_id, found.controller_epoch) == (1, 1, 1)
        assert found.metadata_version == cluster.quorum.version
        assert [voter.node_id for voter in found.voters] == [1, 2, 3]
        assert (found.snapshot_version, found.snapshot_age_ms) == (None, None)
        assert [voter.last_contact_ms for voter in found.voters] == [0, None, None]

    with_cluster(test)
