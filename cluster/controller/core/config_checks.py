"""Whether settings can be used together: the checks behind altering them and creating topics.

Each check gives every problem it finds. A stored setting that this release does not know is left alone: it
belongs to a newer one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.settings import ConfigError, Problem, Setting
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.controller.core.configs import (
    FLUSH,
    NODE_NAMES,
    NODE_PARTS,
    TOPIC_SETTINGS,
    Layer,
    NodeView,
    merged,
    node_layers,
)
from tailrace.cluster.controller.core.draft import Draft
from tailrace.cluster.controller.core.topic_checks import is_internal
from tailrace.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, MetadataRecord

LONGEST_VALUE = 32_767
"""In bytes; as in Kafka. Every node keeps all settings in memory and in every snapshot."""

_SHOWN_DEPENDENTS = 5


def checked_topic_values(view: NodeView, name: str, values: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new topic as they are kept, or `ConfigError` with all that is wrong."""
    problems = topic_problems(view, name, values, unknown_too=True)
    if problems:
        raise ConfigError(problems)
    return canonical_values(TOPIC_SETTINGS, values)


def canonical_values(settings: Mapping[str, Setting], values: Mapping[str, str]) -> dict[str, str]:
    """Checked values as their kinds show them."""
    return {
        name: settings[name].kind.show(settings[name].parse(text)) if name in settings else text
        for name, text in values.items()
    }


def topic_problems(
    view: NodeView, name: str, values: Mapping[str, str], *, unknown_too: bool = False
) -> list[Problem]:
    problems = _too_long(values)
    judged = {key: text for key, text in values.items() if unknown_too or key in TOPIC_SETTINGS}
    try:
        config = TopicConfig.from_mapping(judged, defaults=view.topic_defaults)
    except ConfigError as error:
        return problems + list(error.problems)
    if is_internal(name) and FLUSH in values and config.flush != "commit":
        why = "must be commit: what Tailrace keeps for itself is always synced before it counts"
        problems.append(Problem(FLUSH, "", why))
    return problems


def broker_problems(
    image: ClusterImage, broker_id: int | None, wanted: Mapping[str, str], static: Mapping[str, str] | None
) -> list[Problem]:
    """What is wrong with these settings of a broker, or of all brokers, above what counts after them."""
    layers = node_layers(image, static, broker_id)
    return _too_long(wanted) + _node_problems([layers[0]._replace(values=wanted), *layers[1:]])


def dependent_problems(
    image: ClusterImage,
    broker_id: int | None,
    records: Sequence[MetadataRecord],
    static: Mapping[str, str] | None,
) -> list[Problem]:
    """What these changes of a broker's settings, or of those of all brokers, break elsewhere."""
    draft = Draft(image)
    draft.add(records)
    changed = {record.config.key for record in records}
    problems = list(_broken_topics(draft.image, changed, NodeView.of(draft.image, static, broker_id)))
    if broker_id is None:
        problems += _broken_brokers(draft.image, changed, static)
    more = len(problems) - _SHOWN_DEPENDENTS
    if more > 0:
        problems[_SHOWN_DEPENDENTS:] = [Problem(f"{more} more", "", "break in the same way")]
    return problems


def _broken_topics(image: ClusterImage, changed: Iterable[str], view: NodeView) -> Iterator[Problem]:
    related = _related_topic_settings(set(changed))
    if not related:
        return
    for name in sorted(image.topic_ids):
        own = image.topic_configs(name)
        if related.isdisjoint(own):
            continue
        try:
            TopicConfig.from_mapping(
                {key: own[key] for key in related & own.keys()}, defaults=view.topic_defaults
            )
        except ConfigError as error:
            for problem in error.problems:
                yield Problem(f"{problem.name} of topic {name}", "", problem.message)


def _related_topic_settings(changed: set[str]) -> set[str]:
    """The settings of topics that a relation ties to one whose default is among the changed."""
    fields = {one.field for one in TOPIC_SETTINGS.values() if changed.intersection(NODE_NAMES[one.name])}
    tied = {field for one in TopicConfig.relations if fields.intersection(one.fields) for field in one.fields}
    return {one.name for one in TOPIC_SETTINGS.values() if one.field in tied}


def _broken_brokers(
    image: ClusterImage, changed: set[str], static: Mapping[str, str] | None
) -> Iterator[Problem]:
    if not any(
        changed.intersection(one.name for one in part.settings() if one.field in relation.fields)
        for part in NODE_PARTS
        for relation in part.relations
    ):
        return
    own = [int(name) for kind, name in image.configs if kind == CONFIG_RESOURCE_TYPE_BROKER and name]
    for broker_id in sorted(own):
        for problem in _node_problems(node_layers(image, static, broker_id)):
            yield Problem(f"{problem.name} of broker {broker_id}", "", problem.message)


def _node_problems(layers: Sequence[Layer]) -> list[Problem]:
    values = merged(layers)
    problems: list[Problem] = []
    for part in NODE_PARTS:
        names = {one.name for one in part.settings()}
        try:
            part.from_mapping({name: text for name, text in values.items() if name in names})
        except ConfigError as error:
            problems += error.problems
    return problems


def _too_long(values: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(name, "", f"is {size} bytes long, and {LONGEST_VALUE} are allowed")
        for name, text in values.items()
        if (size := len(text.encode())) > LONGEST_VALUE
    ]
