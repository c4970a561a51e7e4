"""Images: what can be asked of them, that they never change, and what versions share."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tailrace.cluster.common.image import EMPTY_IMAGE, METADATA_VERSION, ClusterImage
from tailrace.cluster.common.types import TopicPartition
from tailrace.v1 import metadata_pb2 as pb
from tests.support.metadata import apply, broker, directory, image_with, partition, topic_id, topic_records

IMAGE = image_with(
    brokers=[
        1,
        broker(2, fenced=True),
        broker(3, shutting_down=True),
        broker(4, dirs=3, offline_dirs=[0, 2]),
    ],
    topics={"orders": [(1, 2), (2, 1)], "empty.name": [(1,)]},
    configs={"orders": {"retention.ms": "5"}},
    broker_configs={"": {"log.retention.ms": "6"}, "2": {"log.retention.ms": "7"}},
)


def test_topic_is_found_by_name_when_it_exists() -> None:
    topic = IMAGE.topic("orders")
    assert topic is not None
    assert (topic.topic_id, topic.name, len(topic.partitions)) == (topic_id("orders"), "orders", 2)
    assert IMAGE.topic("nothing") is None


def test_partition_is_found_when_topic_and_number_exist() -> None:
    found = IMAGE.partition(TopicPartition("orders", 1))
    assert found is not None
    assert found.replicas == (2, 1)
    for missing in (("orders", 2), ("orders", -1), ("nothing", 0)):
        assert IMAGE.partition(TopicPartition(*missing)) is None


def test_partitions_gives_each_with_its_topic_and_number() -> None:
    assert [(topic.name, number, one.replicas) for topic, number, one in IMAGE.partitions()] == [
        ("orders", 0, (1, 2)),
        ("orders", 1, (2, 1)),
        ("empty.name", 0, (1,)),
    ]


def test_configs_are_empty_when_nothing_is_set() -> None:
    assert IMAGE.topic_configs("orders") == {"retention.ms": "5"}
    assert IMAGE.topic_configs("empty.name") == {}
    assert IMAGE.broker_configs(2) == {"log.retention.ms": "7"}
    assert IMAGE.broker_configs(None) == {"log.retention.ms": "6"}
    assert IMAGE.broker_configs(1) == {}


def test_broker_is_active_when_it_is_neither_fenced_nor_shutting_down() -> None:
    assert [number for number, one in IMAGE.brokers.items() if one.active] == [1, 4]


def test_broker_names_its_offline_directories_when_it_has_some() -> None:
    assert IMAGE.brokers[4].offline_dirs == {directory(4, 0), directory(4, 2)}
    assert IMAGE.brokers[1].offline_dirs == frozenset()


def test_metadata_level_is_zero_when_the_cluster_is_not_created() -> None:
    assert EMPTY_IMAGE.metadata_level == 0
    assert IMAGE.metadata_level == IMAGE.features[METADATA_VERSION] == 1


def test_partition_is_reassigning_when_replicas_are_added_or_removed() -> None:
    assert partition(1, 2, adding=(2,)).reassigning
    assert partition(1, 2, removing=(2,)).reassigning
    assert not partition(1, 2).reassigning


def test_image_refuses_to_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        IMAGE.version = 9  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        IMAGE.brokers[1].fenced = True  # type: ignore[misc]


def test_image_stays_as_it_was_when_another_is_made_of_it() -> None:
    before = image_with(brokers=[1], topics={"t": [(1,)]}, configs={"t": {"a": "b"}})
    kept = repr(before)
    records = [
        pb.MetadataRecord(topic_deleted=pb.TopicDeleted(topic_id=topic_id("t").bytes)),
        pb.MetadataRecord(broker_unregistered=pb.BrokerUnregistered(broker_id=1, broker_epoch=1)),
        pb.MetadataRecord(feature_level=pb.FeatureLevel(name="f", level=1)),
        pb.MetadataRecord(request_done=pb.RequestDone(request_id=b"id")),
        *topic_records("u", [(1,), (1,)], active=[1]),
    ]
    assert apply(before, records) != before
    assert repr(before) == kept


def test_image_shares_what_did_not_change_with_the_one_before() -> None:
    after = apply(IMAGE, topic_records("new", [(1,)], active=[1]))
    shared: list[str] = ["brokers", "configs", "features", "controllers", "requests"]
    assert all(_part(after, name) is _part(IMAGE, name) for name in shared)
    assert after.topics[topic_id("orders")] is IMAGE.topics[topic_id("orders")]


def _part(image: ClusterImage, name: str) -> object:
    return getattr(image, name)
