"""The settings that hold, out of the layers in which they are given.

A node's settings, what counts first at the front: those of the broker itself, those of all brokers (the
resource with the name ""), what stands in its node.toml (`static`), the default. A topic's settings: its own,
then those of a node that give topics their defaults (`log.retention.ms` for `retention.ms`). What stands in a
node's file is known to that node alone, so it is passed in, by the node's own names and as text.

Reading never fails: a value that this release cannot use (written by a newer one, or at odds with a node's
file) is passed over, and the next layer counts. Writing is strict (config_alter.py). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from tailrace.cluster.common.config import components
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.common.settings import ConfigError, Setting, Settings
from tailrace.cluster.common.storage_config import CLUSTER_WIDE, StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.controller.core.topic_checks import is_internal, replication_factor
from tailrace.v1 import admin_pb2 as pb

AnySettings = TypeVar("AnySettings", bound=Settings)

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
FLUSH = "flush"

NODE_PARTS: tuple[type[Settings], ...] = tuple(components(NodeConfig).values())
NODE_SETTINGS: Mapping[str, Setting] = {one.name: one for part in NODE_PARTS for one in part.settings()}
TOPIC_SETTINGS: Mapping[str, Setting] = {one.name: one for one in TopicConfig.settings()}

_FLUSH_INTERVALS = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


def _node_names(setting: Setting) -> tuple[str, ...]:
    name = setting.broker_name
    groups = (*StorageConfig.same_thing, _FLUSH_INTERVALS)
    return next((group for group in groups if group[0] == name), (name,) if name else ())


NODE_NAMES: Mapping[str, tuple[str, ...]] = {
    name: _node_names(setting) for name, setting in TOPIC_SETTINGS.items()
}
"""The settings of a node that give each one of a topic its default, what counts first at the front."""

_SAME_THING: Mapping[str, tuple[str, ...]] = {
    name: group for part in NODE_PARTS for group in part.same_thing for name in group
}
_UNSET = TopicConfig()


def canonical_name(name: str, settings: Mapping[str, Setting]) -> str:
    """The setting's first name for one of its others."""
    if name in settings:
        return name
    return next((one.name for one in settings.values() if name in one.aliases), name)


class Layer(NamedTuple):
    """Settings of a node from one source, by name."""

    source: pb.ConfigSource
    values: Mapping[str, str]


def node_layers(
    image: ClusterImage, static: Mapping[str, str] | None = None, broker_id: int | None = None
) -> list[Layer]:
    """What is set for a node, what counts first at the front; without `broker_id` for none especially."""
    layers = [
        Layer(pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER, image.broker_configs(None)),
        Layer(pb.CONFIG_SOURCE_STATIC_BROKER, _of_one_node(static or {})),
    ]
    if broker_id is not None:
        own = _of_one_node(image.broker_configs(broker_id))
        layers.insert(0, Layer(pb.CONFIG_SOURCE_DYNAMIC_BROKER, own))
    return layers


def _of_one_node(values: Mapping[str, str]) -> Mapping[str, str]:
    if CLUSTER_WIDE.isdisjoint(values):
        return values
    return {name: value for name, value in values.items() if name not in CLUSTER_WIDE}


def merged(layers: Sequence[Layer]) -> dict[str, str]:
    """What holds of the layers. A layer that gives one name of several for one thing replaces all of them."""
    values: dict[str, str] = {}
    for layer in reversed(layers):
        for name in layer.values:
            for other in _SAME_THING.get(name, ()):
                values.pop(other, None)
        values |= layer.values
    return values


def node_setting(
    image: ClusterImage, key: str, static: Mapping[str, str] | None = None, broker_id: int | None = None
) -> object:
    """The value that holds of one setting of a node (`num.partitions`), without the work of reading all."""
    setting = NODE_SETTINGS[key]
    return _first_usable(setting, [layer.values for layer in node_layers(image, static, broker_id)])


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """The layers of a node's settings, and what they give to topics; made once for many topics."""

    layers: Sequence[Layer]
    topic_defaults: TopicConfig

    @classmethod
    def of(
        cls, image: ClusterImage, static: Mapping[str, str] | None = None, broker_id: int | None = None
    ) -> NodeView:
        layers = node_layers(image, static, broker_id)
        return cls(layers=layers, topic_defaults=storage_config(layers).topic_defaults())


def storage_config(layers: Sequence[Layer]) -> StorageConfig:
    known = {one.name: one for one in StorageConfig.settings()}
    readable = [
        layer._replace(
            values={name: text for name, text in layer.values.items() if _reads(known.get(name), text)}
        )
        for layer in layers
    ]
    return usable(StorageConfig, merged(readable), StorageConfig())


def _reads(setting: Setting | None, text: str) -> bool:
    if setting is None:
        return False
    try:
        setting.parse(text)
    except ValueError:
        return False
    return True


def topic_config(
    image: ClusterImage,
    name: str,
    defaults: Mapping[str, str] | None = None,
    *,
    broker_id: int | None = None,
) -> TopicConfig:
    """The settings of a topic, as they hold on a node with `defaults` in its node.toml."""
    view = NodeView.of(image, defaults, broker_id)
    return effective_topic_config(name, image.topic_configs(name), view.topic_defaults)


def effective_topic_config(name: str, overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
    config = usable(TopicConfig, overrides, defaults) if overrides else defaults
    if is_internal(name) and config.flush != _UNSET.flush:
        # What Tailrace keeps for itself is synced before it counts, whatever is chosen for other topics.
        return replace(config, flush=_UNSET.flush)
    return config


def min_insync_replicas(image: ClusterImage, topic_name: str) -> int:
    """How many replicas of a topic must be in sync, however many a partition has.

    Cheap enough to be asked for each of many partitions.
    """
    wanted = _holds(image, topic_name, MIN_INSYNC_REPLICAS)
    if isinstance(wanted, int):
        return wanted
    topic = image.topic(topic_name)
    return _UNSET.min_insync(1 if topic is None else replication_factor(topic))


def unclean_election_enabled(image: ClusterImage, topic_name: str) -> bool:
    """Whether a replica that may lack committed records can lead when no other is left. Cheap, too."""
    return _holds(image, topic_name, UNCLEAN_ELECTION) is True


def _holds(image: ClusterImage, topic_name: str, key: str) -> object:
    """One of the `CLUSTER_WIDE` settings, without the work of reading all. Topics and nodes use one name."""
    return _first_usable(TOPIC_SETTINGS[key], (image.topic_configs(topic_name), image.broker_configs(None)))


def _first_usable(setting: Setting, layers: Sequence[Mapping[str, str]]) -> object:
    for values in layers:
        if (text := values.get(setting.name)) is not None:
            try:
                return setting.parse(text)
            except ValueError:
                continue
    return setting.default


def usable(cls: type[AnySettings], values: Mapping[str, str], defaults: AnySettings) -> AnySettings:
    """The settings with all of `values`, or with as many as can be used together, the first given first."""
    try:
        return cls.from_mapping(values, defaults=defaults)
    except ConfigError:
        pass
    config, left = defaults, dict(values)
    while taken := [name for name, value in left.items() if _fits(cls, name, value, config)]:
        # One at a time, since each may decide what goes with it.
        config = cls.from_mapping({taken[0]: left.pop(taken[0])}, defaults=config)
    return config


def _fits(cls: type[AnySettings], name: str, value: str, config: AnySettings) -> bool:
    try:
        cls.from_mapping({name: value}, defaults=config)
    except ConfigError:
        return False
    return True
