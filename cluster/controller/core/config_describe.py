"""Settings with their values, where these come from, and what they mean.

A topic's settings are described as they hold on the node that answers. Those of a broker are known in full to
that broker alone, which has its node.toml; of the defaults of all brokers (the resource with the name "")
there is only what was set for them. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.kinds import MAX_INT, Decimal, Flag, Integer, Kind, Optional, Words
from tailrace.cluster.common.settings import Setting, explain_unknown
from tailrace.cluster.controller.core.configs import (
    FLUSH,
    MIN_INSYNC_REPLICAS,
    NODE_NAMES,
    NODE_SETTINGS,
    TOPIC_SETTINGS,
    Layer,
    NodeView,
    canonical_name,
    effective_topic_config,
)
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.topic_checks import is_internal, named_topic, replication_factor
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC


class Detail(NamedTuple):
    """How much is told of each setting."""

    synonyms: bool = False
    documentation: bool = False


NO_DETAIL = Detail()


def describe_configs(
    image: ClusterImage,
    request: pb.DescribeConfigsRequest,
    *,
    static: Mapping[str, str] | None = None,
    broker_id: int | None = None,
) -> Decision[pb.DescribeConfigsResponse]:
    """`static` is what stands in the node.toml of the node that answers, by its own names; `broker_id` says
    which broker that is, None when it is none."""
    view = NodeView.of(image, static, broker_id)
    detail = Detail(request.include_synonyms, request.include_documentation)
    response = pb.DescribeConfigsResponse()
    for asked in request.resources:
        answer = response.resources.add(resource=asked.resource)
        try:
            answer.entries.extend(_entries(image, view, broker_id, asked, detail))
        except TailraceError as failure:
            answer.error.CopyFrom(error_from(failure))
    return Decision(response)


def _entries(
    image: ClusterImage,
    view: NodeView,
    answering: int | None,
    asked: pb.DescribeConfigsRequest.Resource,
    detail: Detail,
) -> list[pb.ConfigEntry]:
    kind, name = asked.resource.type, asked.resource.name
    if kind == CONFIG_RESOURCE_TYPE_TOPIC:
        topic = named_topic(image, name)
        return topic_entries(
            view,
            name,
            image.topic_configs(name),
            replication_factor(topic),
            keys=_known_keys(asked.keys, TOPIC_SETTINGS),
            detail=detail,
        )
    if kind == CONFIG_RESOURCE_TYPE_BROKER:
        keys = _known_keys(asked.keys, NODE_SETTINGS)
        if not name:
            given = image.broker_configs(None)
            layers = [Layer(pb.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER, given)]
            return _node_entries(layers, [key for key in keys if key in given], detail)
        if answering is None or name != str(answering):
            raise _ask_the_broker(image, name)
        return _node_entries(view.layers, keys, detail)
    raise TailraceError(
        ErrorCode.INVALID_REQUEST,
        "settings are those of a topic or a broker: say which is meant",
    )


def topic_entries(
    view: NodeView,
    name: str,
    overrides: Mapping[str, str],
    factor: int,
    *,
    keys: Collection[str] = TOPIC_SETTINGS.keys(),
    detail: Detail = NO_DETAIL,
) -> list[pb.ConfigEntry]:
    """The settings of a topic with so many replicas; `overrides` are its own."""
    config = effective_topic_config(name, overrides, view.topic_defaults)
    values = config.to_mapping()
    # Unset means a number that depends on the replicas; the number is what people look for.
    values[MIN_INSYNC_REPLICAS] = str(config.min_insync(factor))
    entries = []
    for key in keys:
        fixed = key == FLUSH and is_internal(name)
        given = [] if fixed else _given(NODE_NAMES[key], view.layers)
        if key in overrides and not fixed:
            given.insert(0, _Given(key, overrides[key], pb.CONFIG_SOURCE_DYNAMIC_TOPIC))
        given.append(_TOPIC_DEFAULTS[key])
        entries.append(_entry(TOPIC_SETTINGS[key], values[key], given, detail, read_only=fixed))
    return entries


def _node_entries(layers: Sequence[Layer], keys: Iterable[str], detail: Detail) -> list[pb.ConfigEntry]:
    entries = []
    for key in keys:
        setting = NODE_SETTINGS[key]
        given = [*_given((key,), layers), _default_of(setting)]
        entries.append(_entry(setting, given[0].value, given, detail, read_only=not setting.runtime))
    return entries


class _Given(NamedTuple):
    """A value that some layer has for a setting; the first of them counts."""

    name: str
    value: str
    source: pb.ConfigSource


def _given(names: Sequence[str], layers: Sequence[Layer]) -> list[_Given]:
    return [
        _Given(name, layer.values[name], layer.source)
        for layer in layers
        for name in names
        if name in layer.values
    ]


def _default_of(setting: Setting) -> _Given:
    return _Given(setting.name, setting.kind.show(setting.default), pb.CONFIG_SOURCE_DEFAULT)


def _entry(
    setting: Setting, value: str, given: Sequence[_Given], detail: Detail, *, read_only: bool
) -> pb.ConfigEntry:
    entry = pb.ConfigEntry(
        name=setting.name,
        value=value,
        source=given[0].source,
        read_only=read_only,
        type=type_name(setting.kind),
    )
    if detail.documentation:
        entry.documentation = setting.doc
    if detail.synonyms:
        entry.synonyms.extend(pb.ConfigEntry.Synonym(**one._asdict()) for one in given)
    return entry


# Of several settings of a node for one thing, the last has the default, and the others are unset.
_TOPIC_DEFAULTS = {
    name: _default_of(NODE_SETTINGS[names[-1]] if names else TOPIC_SETTINGS[name])
    for name, names in NODE_NAMES.items()
}


def type_name(kind: Kind[object]) -> str:
    """Kafka's word for the values that a kind takes."""
    match kind:
        case Optional():
            return type_name(kind.kind)
        case Integer():
            return "int" if kind.most <= MAX_INT else "long"
        case Decimal():
            return "double"
        case Flag():
            return "boolean"
        case Words():
            return "list"
        case _:
            return "string"


def _known_keys(asked: Sequence[str], settings: Mapping[str, Setting]) -> list[str]:
    """The settings asked for, in their order; all, sorted, when none is."""
    keys = list(dict.fromkeys(canonical_name(key, settings) for key in asked))
    if unknown := [key for key in keys if key not in settings]:
        told = "; ".join(f"{key}: {explain_unknown(key, settings)}" for key in unknown)
        raise TailraceError(ErrorCode.INVALID_CONFIG, told)
    return keys or sorted(settings)


def _ask_the_broker(image: ClusterImage, name: str) -> TailraceError:
    broker = next((one for one in image.brokers.values() if str(one.broker_id) == name), None)
    if broker is None:
        registered = ", ".join(map(str, sorted(image.brokers))) or "none"
        return TailraceError(
            ErrorCode.BROKER_NOT_REGISTERED,
            f"no broker {name!r} is registered (registered: {registered}); the default of all brokers has "
            "the name ''",
        )
    where = ", ".join(f"{one.host}:{one.port} ({one.listener})" for one in broker.endpoints)
    return TailraceError(
        ErrorCode.INVALID_REQUEST,
        f"what stands in the node.toml of broker {name} is known to that broker alone: ask it, at {where}",
    )
