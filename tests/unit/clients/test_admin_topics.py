"""Topics through `AsyncAdmin`, answered by the real services of a controller."""

from __future__ import annotations

import pickle
from uuid import uuid4

import pytest

from tailrace.clients import async_admin
from tailrace.clients.admin_types import AdminError, ConfigSource, NewPartitions, NewTopic, TopicListing
from tailrace.cluster.common.errors import ErrorCode
from tests.support.metadata import partition
from tests.unit.clients.memory_cluster import MemoryCluster, with_cluster


def test_created_topic_is_as_asked_for() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        wanted = NewTopic("clicks", partitions=6, replication_factor=3, configs={"min.insync.replicas": "2"})
        created = (await admin.create_topics([wanted]))["clicks"]
        assert (created.partitions, created.replication_factor) == (6, 3)
        entry = created.configs["min.insync.replicas"]
        assert (entry.value, entry.source) == ("2", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        described = (await admin.describe_topics(["clicks"]))["clicks"]
        assert described.topic_id == created.topic_id
        assert [one.partition for one in described.partitions] == list(range(6))
        for one in described.partitions:
            assert one.topic == "clicks"
            assert sorted(one.replicas) == [1, 2, 3]
            assert one.isr == one.replicas
            assert one.leader == one.replicas[0]
            assert (one.elr, one.adding, one.removing, one.last_known_leader) == ((), (), (), None)

    with_cluster(test)


def test_numbers_not_given_are_the_clusters_defaults() -> None:
    async def test(cluster: MemoryCluster) -> None:
        created = (await cluster.admin().create_topics([NewTopic("t")]))["t"]
        assert (created.partitions, created.replication_factor) == (1, 3)

    with_cluster(test)


def test_chosen_assignment_is_kept() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t", replica_assignment=[[2, 1], (3, 2)])])
        await admin.create_partitions({"t": NewPartitions(3, replica_assignment=[[1, 3]])})
        described = (await admin.describe_topics(["t"]))["t"]
        assert [one.replicas for one in described.partitions] == [(2, 1), (3, 2), (1, 3)]

    with_cluster(test)


def test_settings_may_be_numbers_and_flags() -> None:
    async def test(cluster: MemoryCluster) -> None:
        configs = {
            "retention.ms": 5,
            "unclean.leader.election.enable": True,
            "min.cleanable.dirty.ratio": 0.25,
        }
        await cluster.admin().create_topics([NewTopic("t", configs=configs)])
        assert cluster.image.topic_configs("t") == {
            "retention.ms": "5",
            "unclean.leader.election.enable": "true",
            "min.cleanable.dirty.ratio": "0.25",
        }

    with_cluster(test)


def test_validation_creates_nothing() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        validated = await admin.create_topics([NewTopic("t", 2)], validate_only=True)
        assert validated["t"].partitions == 2
        await admin.create_topics([NewTopic("u", 1)])
        await admin.create_partitions({"u": 9}, validate_only=True)
        listed = await admin.list_topics()
        assert [(name, one.partition_count) for name, one in listed.items()] == [("u", 1)]

    with_cluster(test)


def test_failed_items_are_raised_with_their_errors_and_the_results_of_the_others() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("old")])
        with pytest.raises(AdminError) as raised:
            await admin.create_topics([NewTopic("old"), NewTopic("new", 2), NewTopic("bad name")])
        error = raised.value
        assert {name: one.code for name, one in error.errors.items()} == {
            "old": ErrorCode.TOPIC_ALREADY_EXISTS,
            "bad name": ErrorCode.INVALID_TOPIC,
        }
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert list(error.results) == ["new"]
        assert error.results["new"].partitions == 2
        assert "2 of 3 failed" in str(error)
        assert "bad name: INVALID_TOPIC" in str(error)
        copied = pickle.loads(pickle.dumps(error))
        assert (str(copied), list(copied.errors), copied.results) == (
            str(error),
            list(error.errors),
            error.results,
        )

    with_cluster(test)


def test_single_failure_reads_like_any_error() -> None:
    async def test(cluster: MemoryCluster) -> None:
        with pytest.raises(AdminError) as raised:
            await cluster.admin().delete_topics(["gone"])
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert str(raised.value) == "UNKNOWN_TOPIC_OR_PARTITION: gone: topic 'gone' does not exist"
        assert cluster.asked == [(1, "DeleteTopics")], "an answer about an item is not asked for again"

    with_cluster(test)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        created = await admin.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
        second = created["b"].topic_id
        assert second is not None
        unknown = uuid4()
        with pytest.raises(AdminError) as raised:
            await admin.delete_topics(["a", second, unknown])
        assert {item: one.code for item, one in raised.value.errors.items()} == {
            str(unknown): ErrorCode.UNKNOWN_TOPIC_ID
        }
        assert list(raised.value.results) == ["a", "b"]
        assert list(await admin.list_topics()) == ["c"]

    with_cluster(test)


def test_partitions_are_added_and_never_taken() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t", 2), NewTopic("u", 2)])
        with pytest.raises(AdminError) as raised:
            await admin.create_partitions({"t": 4, "u": 1})
        assert {name: one.code for name, one in raised.value.errors.items()} == {
            "u": ErrorCode.INVALID_PARTITIONS
        }
        counts = {name: one.partition_count for name, one in (await admin.list_topics()).items()}
        assert counts == {"t": 4, "u": 2}

    with_cluster(test)


def test_list_leaves_internal_topics_out_unless_asked_for() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        created = await admin.create_topics([NewTopic("t", 2), NewTopic("__offsets")])
        assert await admin.list_topics() == {
            "t": TopicListing(
                name="t", topic_id=created["t"].topic_id or uuid4(), internal=False, partition_count=2
            )
        }
        every = await admin.list_topics(include_internal=True)
        assert {name: one.internal for name, one in every.items()} == {"__offsets": True, "t": False}
        assert list(await admin.describe_topics()) == ["t"]
        assert sorted(await admin.describe_topics(include_internal=True)) == ["__offsets", "t"]
        assert list(await admin.describe_topics(["__offsets"])) == ["__offsets"]

    with_cluster(test)


def test_nothing_named_means_nothing() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic("t")])
        cluster.asked.clear()
        assert await admin.describe_topics([]) == {}
        assert await admin.create_topics([]) == {}
        await admin.delete_topics([])
        await admin.create_partitions({})
        assert cluster.asked == []
        assert cluster.image.topic("t") is not None

    with_cluster(test)


def test_one_name_is_no_list_of_names() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        await admin.create_topics([NewTopic(name) for name in "abc"])
        for call in (admin.delete_topics("abc"), admin.describe_topics("abc")):
            with pytest.raises(TypeError, match=r"\['abc'\]"):
                await call
        assert len(await admin.list_topics()) == 3

    with_cluster(test)


def test_many_topics_are_described_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_admin, "PARTITIONS_A_REQUEST", 5)

    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        sizes = {"a": 2, "b": 3, "c": 1, "d": 9, "e": 1}
        await admin.create_topics([NewTopic(name, size) for name, size in sizes.items()])
        cluster.asked.clear()
        described = await admin.describe_topics()
        assert {name: len(one.partitions) for name, one in described.items()} == sizes
        assert len(cluster.asked) == 1 + 4  # The names; a and b, c, d, e.
        cluster.asked.clear()
        with pytest.raises(AdminError) as raised:
            await admin.describe_topics([*sizes, "gone"])
        assert len(cluster.asked) == 1 + 4
        assert list(raised.value.errors) == ["gone"]
        assert set(raised.value.results) == set(sizes)

    with_cluster(test)


def test_topic_deleted_while_all_are_described_is_left_out() -> None:
    async def test(cluster: MemoryCluster) -> None:
        admin = cluster.admin()
        created = await admin.create_topics([NewTopic("a"), NewTopic("b")])

        def add_a_stale_name(node_id: int, method: str, response: object) -> None:
            if getattr(response, "topics", None) and not response.topics[0].partitions:  # type: ignore[attr-defined]
                stale = response.topics.add(name="deleted")  # type: ignore[attr-defined]
                stale.topic_id = uuid4().bytes

        cluster.after = add_a_stale_name
        assert sorted(await admin.describe_topics()) == sorted(created)

    with_cluster(test)


def test_state_of_partitions_is_told() -> None:
    async def test(cluster: MemoryCluster) -> None:
        await cluster.add_topic(
            "t",
            partition(1, 2, 3, isr=[1], elr=[2], leader_epoch=7),
            partition(1, 2, 3, isr=[], last_known_leader=3),
            partition(1, 2, 3, isr=[1, 2], adding=[3], removing=[1]),
        )
        found = (await cluster.admin().describe_topics(["t"]))["t"].partitions
        assert (found[0].leader_epoch, found[0].elr, found[0].under_replicated) == (7, (2,), True)
        assert (found[1].leader, found[1].last_known_leader) == (None, 3)
        assert (found[2].adding, found[2].removing) == ((3,), (1,))
        assert (found[2].replication_factor, found[2].under_replicated) == (2, False)

    with_cluster(test)
