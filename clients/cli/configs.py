"""`tailrace configs`: show and change the settings of topics and brokers. Options have Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from tailrace.clients.admin import Admin
from tailrace.clients.admin_types import (
    AdminError,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
)
from tailrace.clients.cli.arguments import MAX_INT, parse_names, parse_pair_lists, usage_error
from tailrace.clients.cli.cluster_command import AsJson, Bootstrap, CommandConfig, Output, cluster

app = typer.Typer(no_args_is_help=True, help="Show and change the settings of topics and brokers.")

_SET_BY_SOMEONE = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
)


class EntityType(StrEnum):
    TOPICS = "topics"
    BROKERS = "brokers"


Kind = Annotated[EntityType, typer.Option("--entity-type", help="Whose settings.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--entity-name", metavar="NAME", help="The topic, or the broker's id; may be given several times."
    ),
]
Default = Annotated[
    bool, typer.Option("--entity-default", help="What holds for every broker that has no setting of its own.")
]


@app.command("describe")
def describe_command(
    entity_type: Kind,
    entity_name: Names = None,
    entity_default: Default = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also settings that nobody has set for the topic or broker.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show settings and where their values come from. Of topics all are shown when none is named."""
    all_topics = entity_type is EntityType.TOPICS and not entity_name and not entity_default
    resources = [] if all_topics else _resources(entity_type, entity_name, entity_default)
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        if all_topics:
            resources = _all_topics(admin)
        try:
            described = admin.describe_configs(resources, include_synonyms=True)
        except AdminError as error:
            described = output.refusals("", error)
        for resource, entries in described.items():
            _show(
                output, resource, [one for one in entries.values() if every or one.source in _SET_BY_SOMEONE]
            )


@app.command("alter")
def alter_command(
    entity_type: Kind,
    entity_name: Names = None,
    entity_default: Default = False,
    add_config: Annotated[
        list[str] | None,
        typer.Option(
            "--add-config",
            metavar="KEY=VALUE",
            help="Settings to set, with commas: retention.ms=1000,cleanup.policy=[compact,delete].",
        ),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option("--delete-config", metavar="KEY", help="Settings to take back, with commas."),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Change settings: all that the command names, or none of them; others stay as they are."""
    resources = _resources(entity_type, entity_name, entity_default)
    changes = _changes(add_config or (), delete_config or ())
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        altered = resources
        try:
            admin.alter_configs(dict.fromkeys(resources, changes))
        except AdminError as error:
            altered = list(output.refusals("", error))
        for resource in altered:
            output.event({"type": "altered", **_entity(resource)})
            output.line(f"altered the settings of {resource}")


def _changes(added: Iterable[str], deleted: Iterable[str]) -> list[ConfigChange]:
    new = parse_pair_lists(added, "--add-config")
    old = list(dict.fromkeys(parse_names(deleted)))
    if not new and not old:
        raise usage_error("give one of them, or both", "--add-config, --delete-config")
    if both := sorted(new.keys() & set(old)):
        raise usage_error(f"{', '.join(both)} cannot be set and deleted at once", "--delete-config")
    return [
        *(ConfigChange.set(key, value) for key, value in new.items()),
        *(ConfigChange.delete(key) for key in old),
    ]


def _resources(entity_type: EntityType, names: Iterable[str] | None, default: bool) -> list[ConfigResource]:
    wanted = list(dict.fromkeys(names or ()))
    if entity_type is EntityType.TOPICS:
        if default:
            raise usage_error(
                "the defaults of topics are settings of brokers: use --entity-type brokers",
                "--entity-default",
            )
        if not wanted:
            raise usage_error("name at least one topic", "--entity-name")
        return [ConfigResource.topic(name) for name in wanted]
    if default == bool(wanted):
        raise usage_error("give one of them", "--entity-name, --entity-default")
    if default:
        return [ConfigResource.broker_defaults()]
    return [ConfigResource.broker(_broker_id(name)) for name in wanted]


def _broker_id(name: str) -> int:
    if not (name.isascii() and name.isdigit()) or int(name) > MAX_INT:
        raise usage_error(f"{name!r} must be the id of a broker, a number", "--entity-name")
    return int(name)


def _all_topics(admin: Admin) -> list[ConfigResource]:
    return [ConfigResource.topic(name) for name in sorted(admin.list_topics(include_internal=True))]


def _show(output: Output, resource: ConfigResource, entries: list[ConfigEntry]) -> None:
    for one in entries:
        output.event(
            {
                "type": "config",
                **_entity(resource),
                "name": one.name,
                "value": one.value,
                "source": one.source,
                "value_type": one.type,
                "read_only": one.read_only,
                "sensitive": one.sensitive,
                "synonyms": [
                    {"name": other.name, "value": other.value, "source": other.source}
                    for other in one.synonyms
                ],
            }
        )
    if not entries:
        output.line(f"{resource}: nothing is set; --all shows what holds then")
        return
    output.line(f"{resource}:")
    output.table(
        ["name", "value", "source", "read-only"],
        [
            [
                one.name,
                "(hidden)" if one.value is None else one.value,
                one.source,
                "yes" if one.read_only else "no",
            ]
            for one in entries
        ],
    )


def _entity(resource: ConfigResource) -> dict[str, str | None]:
    """As the options name it; a name of null is the default of all."""
    kind = EntityType.TOPICS if resource.type is ConfigResourceType.TOPIC else EntityType.BROKERS
    return {"entity_type": kind, "entity_name": resource.name or None}
