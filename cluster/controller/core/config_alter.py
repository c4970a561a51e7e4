"""Changes of settings, for topics and brokers.

The changes of one resource are made together or not at all, and the result is checked as a whole: values,
relations between them, and what it means for those that build on it (a default of all brokers for each broker
and topic). A refusal names every problem at once. Values are kept as the setting's kind shows them, so equal
settings are equal texts; what changes nothing writes no record. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.kinds import Optional, Words
from tailrace.cluster.common.settings import ConfigError, Problem, Setting, explain_unknown
from tailrace.cluster.common.storage_config import CLUSTER_WIDE
from tailrace.cluster.controller.core.config_checks import (
    broker_problems,
    canonical_values,
    dependent_problems,
    topic_problems,
)
from tailrace.cluster.controller.core.config_effects import partitions_of_changed_configs
from tailrace.cluster.controller.core.configs import (
    NODE_SETTINGS,
    TOPIC_SETTINGS,
    NodeView,
    canonical_name,
    effective_topic_config,
    merged,
)
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.draft import Draft
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.cluster.controller.core.topic_checks import named_topic, repeated
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import (
    CONFIG_RESOURCE_TYPE_BROKER,
    CONFIG_RESOURCE_TYPE_TOPIC,
    ConfigRecord,
    MetadataRecord,
)

_Op = pb.AlterConfigsRequest.Op
_Change = pb.AlterConfigsRequest.Change


def alter_configs(
    image: ClusterImage, request: pb.AlterConfigsRequest, *, static: Mapping[str, str] | None = None
) -> Decision[pb.AlterConfigsResponse]:
    """`static` is what stands in the node.toml of the active controller, as the nearest that is known of what
    stands in those of the brokers."""
    response = pb.AlterConfigsResponse()
    try:
        if not request.validate_only:
            done = already_done(image, request.request_id, pb.AlterConfigsResponse)
            if done is not None:
                return Decision(done)
    except TailraceError as failure:
        for asked in request.resources:
            response.resources.add(resource=asked.resource, error=error_from(failure))
        return Decision(response)
    twice = repeated((one.resource.type, one.resource.name) for one in request.resources)
    progress = _Progress(image, static)
    for asked in request.resources:
        answer = response.resources.add(resource=asked.resource)
        try:
            if (asked.resource.type, asked.resource.name) in twice:
                raise TailraceError(
                    ErrorCode.INVALID_REQUEST,
                    f"{asked.resource.name!r} stands in the request more than once: put its changes together",
                )
            progress.alter(asked)
        except TailraceError as failure:
            answer.error.CopyFrom(error_from(failure))
    if request.validate_only:
        return Decision(response)
    records = progress.finish()
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(response, records)


class _Progress:
    """The resources of one request in turn, each on the image as those before it leave it.

    Topics do not depend on each other, so their records are replayed only when something looks at all.
    """

    def __init__(self, image: ClusterImage, static: Mapping[str, str] | None) -> None:
        self._before = image
        self._static = static
        self._draft = Draft(image)
        self._of_topics: list[MetadataRecord] = []
        self._view = NodeView.of(image, static)

    def alter(self, asked: pb.AlterConfigsRequest.Resource) -> None:
        if asked.resource.type == CONFIG_RESOURCE_TYPE_TOPIC:
            self._alter_topic(asked.resource.name, asked.changes)
        elif asked.resource.type == CONFIG_RESOURCE_TYPE_BROKER:
            self._alter_broker(asked.resource.name, asked.changes)
        else:
            raise TailraceError(
                ErrorCode.INVALID_REQUEST, "settings are those of a topic or a broker: say which is meant"
            )

    def finish(self) -> list[MetadataRecord]:
        """All records, with those of partitions that the changes touch."""
        self._draft.add(self._of_topics)
        self._draft.add(partitions_of_changed_configs(self._before, self._draft.image))
        return self._draft.records

    def _alter_topic(self, name: str, changes: Sequence[_Change]) -> None:
        named_topic(self._before, name)
        current = self._before.topic_configs(name)
        effective = effective_topic_config(name, current, self._view.topic_defaults).to_mapping()
        wanted, problems = _changed(TOPIC_SETTINGS, current, effective, changes, refusals={})
        problems += topic_problems(self._view, name, wanted)
        if problems:
            raise ConfigError(problems)
        self._of_topics += _records(
            CONFIG_RESOURCE_TYPE_TOPIC, name, current, canonical_values(TOPIC_SETTINGS, wanted)
        )

    def _alter_broker(self, name: str, changes: Sequence[_Change]) -> None:
        self._draft.add(self._of_topics)
        self._of_topics = []
        image = self._draft.image
        broker_id = _broker_id(image, name, changes)
        current = image.broker_configs(broker_id)
        effective = _shown_defaults() | merged(NodeView.of(image, self._static, broker_id).layers)
        refusals = _READ_ONLY | (_NOT_FOR_ONE_BROKER if name else {})
        wanted, problems = _changed(NODE_SETTINGS, current, effective, changes, refusals)
        problems += broker_problems(image, broker_id, wanted, self._static)
        if problems:
            raise ConfigError(problems)
        records = _records(
            CONFIG_RESOURCE_TYPE_BROKER, name, current, canonical_values(NODE_SETTINGS, wanted)
        )
        if problems := dependent_problems(image, broker_id, records, self._static):
            raise ConfigError(problems)
        self._draft.add(records)
        self._view = NodeView.of(self._draft.image, self._static)


_READ_ONLY = {
    one.name: "cannot be changed while a node runs: set it in node.toml and restart the node"
    for one in NODE_SETTINGS.values()
    if not one.runtime
}
_NOT_FOR_ONE_BROKER = dict.fromkeys(
    CLUSTER_WIDE,
    "is the same in the whole cluster, or committed records could be lost: alter it for a topic, or for all"
    " brokers (the broker with the name '')",
)


def _shown_defaults() -> dict[str, str]:
    return {name: setting.kind.show(setting.default) for name, setting in NODE_SETTINGS.items()}


def _broker_id(image: ClusterImage, name: str, changes: Sequence[_Change]) -> int | None:
    if not name:
        return None
    if not (len(name) <= 10 and name.isascii() and name.isdecimal() and str(int(name)) == name):
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"{name[:60]!r} is no broker: give its id, or '' for the default of all brokers",
        )
    if int(name) not in image.brokers and any(change.op != _Op.OP_DELETE for change in changes):
        registered = ", ".join(map(str, sorted(image.brokers))) or "none"
        raise TailraceError(
            ErrorCode.BROKER_NOT_REGISTERED,
            f"broker {name} is not registered (registered: {registered}); of such a broker settings can only "
            "be deleted",
        )
    return int(name)


def _changed(
    settings: Mapping[str, Setting],
    current: Mapping[str, str],
    effective: Mapping[str, str],
    changes: Sequence[_Change],
    refusals: Mapping[str, str],
) -> tuple[dict[str, str], list[Problem]]:
    """The settings as they are wanted, not yet checked, and the changes that cannot be made at all."""
    wanted = dict(current)
    problems = []
    twice = repeated(canonical_name(change.key, settings) for change in changes)
    for change in changes:
        key = canonical_name(change.key, settings)
        if key in twice:
            problems.append(Problem(change.key, "", "is changed more than once; give one change of it"))
        elif change.op == _Op.OP_DELETE and key in current:
            wanted.pop(key, None)
        elif key not in settings:
            problems.append(Problem(change.key, "", _why_unknown(change.key, settings)))
        elif key in refusals:
            problems.append(Problem(change.key, "", refusals[key]))
        elif change.op == _Op.OP_SET:
            wanted[key] = change.value
        elif change.op in (_Op.OP_APPEND, _Op.OP_SUBTRACT):
            try:
                wanted[key] = _edited_list(settings[key], effective[key], change)
            except ValueError as error:
                problems.append(Problem(change.key, "", str(error)))
        elif change.op != _Op.OP_DELETE:
            problems.append(Problem(change.key, "", f"this release does not know the operation {change.op}"))
    return wanted, problems


def _edited_list(setting: Setting, now: str, change: _Change) -> str:
    """The list that holds now with words added at its end or taken out, those that are (not) there passed
    over."""
    kind = setting.kind.kind if isinstance(setting.kind, Optional) else setting.kind
    if not isinstance(kind, Words):
        raise ValueError("is not a list: set it instead")
    words = [word for word in now.split(",") if word]
    given = [word.strip() for word in change.value.split(",") if word.strip()]
    if not given:
        raise ValueError("names nothing to append or subtract: give words with commas between them")
    if change.op == _Op.OP_APPEND:
        words += [word for word in dict.fromkeys(given) if word not in words]
    else:
        words = [word for word in words if word not in given]
    return ",".join(words)


def _why_unknown(key: str, settings: Mapping[str, Setting]) -> str:
    if settings is NODE_SETTINGS and key in TOPIC_SETTINGS:
        default = TOPIC_SETTINGS[key].broker_name
        return "is a setting of topics" + (f"; a broker gives its default as {default}" if default else "")
    if settings is TOPIC_SETTINGS and key in NODE_SETTINGS:
        of_topic = next((one.name for one in TOPIC_SETTINGS.values() if one.broker_name == key), None)
        return "is a setting of brokers" + (f"; for a topic it is {of_topic}" if of_topic else "")
    return explain_unknown(key, settings)


def _records(
    kind: int, name: str, current: Mapping[str, str], wanted: Mapping[str, str]
) -> list[MetadataRecord]:
    return [
        MetadataRecord(
            config=ConfigRecord(type=kind, name=name, key=key, value=wanted.get(key))  # type: ignore[arg-type]
        )
        for key in sorted(current.keys() | wanted.keys())
        if current.get(key) != wanted.get(key)
    ]
