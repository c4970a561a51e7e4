"""Which settings hold, out of the layers in which they are given."""

from __future__ import annotations

import pytest

from tailrace.cluster.common import storage_config
from tailrace.cluster.common.storage_config import CLUSTER_WIDE
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.controller.core.configs import (
    NODE_NAMES,
    NODE_SETTINGS,
    TOPIC_SETTINGS,
    Layer,
    merged,
    min_insync_replicas,
    node_setting,
    topic_config,
    unclean_election_enabled,
)
from tailrace.v1 import admin_pb2 as pb
from tests.support.metadata import image_with, partition

HOUR_MS = 3_600_000


def test_topic_config_is_the_default_when_nothing_is_set() -> None:
    assert topic_config(image_with(brokers=[1], topics={"t": [(1,)]}), "t") == TopicConfig()


def test_topic_config_takes_the_first_layer_when_several_set_it() -> None:
    static = {"log.retention.ms": "1"}
    layers = {"": {"log.retention.ms": "2"}, "1": {"log.retention.ms": "3"}}
    bare = image_with(brokers=[1])
    of_brokers = image_with(brokers=[1], broker_configs=layers)
    of_topic = image_with(brokers=[1], broker_configs=layers, configs={"t": {"retention.ms": "4"}})
    assert topic_config(bare, "t", static).retention_ms == 1
    assert topic_config(of_brokers, "t", static).retention_ms == 2
    assert topic_config(of_brokers, "t", static, broker_id=1).retention_ms == 3
    assert topic_config(of_brokers, "t", static, broker_id=2).retention_ms == 2
    assert topic_config(of_topic, "t", static, broker_id=1).retention_ms == 4
    assert topic_config(of_topic, "another", static).retention_ms == 2


def test_topic_config_takes_the_later_layer_when_units_differ() -> None:
    static = {"log.retention.hours": "24", "log.roll.hours": "2"}
    assert topic_config(image_with(), "t", static).retention_ms == 24 * HOUR_MS
    assert topic_config(image_with(), "t", static).segment_ms == 2 * HOUR_MS
    image = image_with(broker_configs={"": {"log.retention.ms": "5"}})
    assert topic_config(image, "t", static | {"log.retention.minutes": "1"}).retention_ms == 5


def test_node_setting_is_the_first_usable_value_when_layers_differ() -> None:
    key = "log.cleaner.threads"
    static = {key: "2"}
    image = image_with(broker_configs={"": {key: "3"}, "1": {key: "4"}, "2": {key: "many"}})
    assert node_setting(image_with(), key) == 1
    assert node_setting(image_with(), key, static) == 2
    assert [node_setting(image, key, static, broker_id=one) for one in (1, 2, 3)] == [4, 3, 3]


def test_merged_layers_keep_one_name_for_a_thing_when_layers_use_different_ones() -> None:
    layers = [
        Layer(pb.CONFIG_SOURCE_DYNAMIC_BROKER, {"log.retention.hours": "1", "flush": "os"}),
        Layer(pb.CONFIG_SOURCE_STATIC_BROKER, {"log.retention.ms": "5", "log.roll.ms": "6"}),
    ]
    assert merged(layers) == {"log.retention.hours": "1", "flush": "os", "log.roll.ms": "6"}


def test_topic_config_passes_over_values_when_this_release_cannot_use_them() -> None:
    image = image_with(
        broker_configs={
            "": {"log.retention.ms": "7", "log.segment.bytes": "enormous", "from.the.future": "1"}
        },
        configs={"t": {"segment.bytes": "tiny", "retention.bytes": "9", "from.the.future": "1"}},
    )
    config = topic_config(image, "t", {"log.segment.bytes": "4096"})
    assert config == TopicConfig(retention_ms=7, retention_bytes=9, segment_bytes=4096)


def test_topic_config_passes_over_one_value_when_it_breaks_a_relation_with_a_nodes_file() -> None:
    image = image_with(configs={"t": {"segment.ms": "1000", "retention.ms": "5"}})
    config = topic_config(image, "t", {"log.roll.jitter.ms": "2000"})
    assert (config.segment_jitter_ms, config.retention_ms) == (2000, 5)
    assert config.segment_ms == TopicConfig().segment_ms


def test_topic_config_takes_values_that_need_each_other_when_another_is_unusable() -> None:
    own = {"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "30", "retention.ms": "soon"}
    config = topic_config(image_with(configs={"t": own}), "t", {"log.cleaner.max.compaction.lag.ms": "10"})
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (20, 30)


def test_topic_config_syncs_before_it_counts_when_the_topic_is_internal() -> None:
    image = image_with(broker_configs={"": {"flush": "os"}})
    assert topic_config(image, "t").flush == "os"
    assert topic_config(image, "__offsets").flush == "commit"


@pytest.mark.parametrize(("replicas", "needed"), [((1,), 1), ((1, 2), 1), ((1, 2, 3), 2), ((1, 2, 3, 4), 2)])
def test_min_insync_follows_from_the_replicas_when_it_is_not_set(
    replicas: tuple[int, ...], needed: int
) -> None:
    image = image_with(brokers=[1, 2, 3, 4], topics={"t": [replicas]})
    assert min_insync_replicas(image, "t") == needed


def test_min_insync_stays_as_it_was_when_replicas_are_being_added() -> None:
    growing = partition(1, 2, 3, isr=(1,), adding=(2, 3))
    assert min_insync_replicas(image_with(brokers=[1, 2, 3], topics={"t": [growing]}), "t") == 1


def test_min_insync_is_that_of_the_topic_then_of_all_brokers_when_set() -> None:
    image = image_with(
        brokers=[1, 2, 3],
        topics={"t": [(1, 2, 3)], "u": [(1, 2, 3)], "v": [(1, 2, 3)]},
        configs={"t": {"min.insync.replicas": "1"}, "v": {"min.insync.replicas": "many"}},
        broker_configs={"": {"min.insync.replicas": "3"}, "1": {"min.insync.replicas": "5"}},
    )
    assert [min_insync_replicas(image, name) for name in "tuv"] == [1, 3, 3]


def test_unclean_election_is_off_when_nothing_turns_it_on() -> None:
    image = image_with(
        configs={"t": {"unclean.leader.election.enable": "true"}},
        broker_configs={"1": {"unclean.leader.election.enable": "true"}},
    )
    assert unclean_election_enabled(image, "t")
    assert not unclean_election_enabled(image, "u")
    everywhere = image_with(
        configs={"t": {"unclean.leader.election.enable": "false"}},
        broker_configs={"": {"unclean.leader.election.enable": "true"}},
    )
    assert not unclean_election_enabled(everywhere, "t")
    assert unclean_election_enabled(everywhere, "u")


def test_cluster_wide_settings_are_the_same_for_brokers_and_controller_when_a_node_differs() -> None:
    differing = {"min.insync.replicas": "5", "unclean.leader.election.enable": "true"}
    image = image_with(brokers=[1, 2, 3], topics={"t": [(1, 2, 3)]}, broker_configs={"1": differing})
    config = topic_config(image, "t", differing, broker_id=1)
    assert config.min_insync(3) == min_insync_replicas(image, "t") == 2
    assert config.unclean_leader_election_enable is unclean_election_enabled(image, "t") is False


def test_cluster_wide_settings_have_one_name_when_topics_and_nodes_set_them() -> None:
    assert all(TOPIC_SETTINGS[name].broker_name == name for name in CLUSTER_WIDE)


def test_node_names_agree_with_a_nodes_own_account_when_sources_are_told() -> None:
    for name, names in NODE_NAMES.items():
        assert all(one in NODE_SETTINGS for one in names)
        for one in names:
            told = storage_config.topic_sources({}, {one: "file"})
            assert told[name] == f"{one}, file"
    unnamed = {name for name, names in NODE_NAMES.items() if not names}
    assert unnamed == {name for name, one in TOPIC_SETTINGS.items() if not one.broker_name}
