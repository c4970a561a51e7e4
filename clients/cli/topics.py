"""`tailrace topics`: create, delete, list, describe and enlarge topics. Options have Kafka's names."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.clients.admin_types import AdminError, CreatedTopic, NewPartitions, NewTopic
from tailrace.clients.cli.arguments import MAX_INT, exactly_one, parse_assignment, parse_pairs, usage_error
from tailrace.clients.cli.cluster_command import AsJson, Bootstrap, CommandConfig, Output, cluster
from tailrace.clients.cli.topic_view import Only, show_topics
from tailrace.cluster.common.errors import ErrorCode

app = typer.Typer(no_args_is_help=True, help="Create, delete, list, describe and enlarge topics.")

Topics = Annotated[
    list[str], typer.Option("--topic", metavar="NAME", help="The topic; may be given several times.")
]
Assignment = Annotated[
    str | None,
    typer.Option(
        "--replica-assignment",
        metavar="B:B,B:B",
        help="The brokers of each new partition: partitions with commas, their replicas with colons, the "
        "preferred leader first.",
    ),
]
IfExists = Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no error.")]
ExcludeInternal = Annotated[
    bool, typer.Option("--exclude-internal", help="Leave out the topics that Tailrace keeps for itself.")
]


@app.command("create")
def create_command(
    topic: Topics,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, max=MAX_INT, metavar="N", help="Default: num.partitions."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            max=MAX_INT,
            metavar="N",
            help="Default: default.replication.factor.",
        ),
    ] = None,
    replica_assignment: Assignment = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting; may be given several times."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists is no error, and stays as it is.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Create topics."""
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise usage_error(
            "it says how many partitions and replicas there are: leave out --partitions and "
            "--replication-factor",
            "--replica-assignment",
        )
    assignment = parse_assignment(replica_assignment, "--replica-assignment")
    configs = parse_pairs(config or (), "--config")
    new = [
        NewTopic(name, partitions, replication_factor, replica_assignment=assignment, configs=configs)
        for name in topic
    ]
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        try:
            created = admin.create_topics(new)
        except AdminError as error:
            ignored = ErrorCode.TOPIC_ALREADY_EXISTS if if_not_exists else None
            created = output.refusals("topic", error, ignoring=ignored)
        for made in created.values():
            _show_created(output, made)


def _show_created(output: Output, made: CreatedTopic) -> None:
    output.event(
        {
            "type": "created",
            "topic": made.name,
            "topic_id": str(made.topic_id),
            "partitions": made.partitions,
            "replication_factor": made.replication_factor,
        }
    )
    output.line(
        f"created topic {made.name}: {made.partitions} partition{'' if made.partitions == 1 else 's'}, "
        f"replication factor {made.replication_factor}"
    )


@app.command("delete")
def delete_command(
    topic: Topics,
    if_exists: IfExists = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        deleted = list(dict.fromkeys(topic))
        try:
            admin.delete_topics(deleted)
        except AdminError as error:
            deleted = list(output.refusals("topic", error, ignoring=_missing_is_fine(if_exists)))
        for name in deleted:
            output.event({"type": "deleted", "topic": name})
            output.line(f"deleted topic {name}")


@app.command("alter")
def alter_command(
    topic: Topics,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            min=1,
            max=MAX_INT,
            metavar="N",
            help="How many there are to be in all; never fewer.",
        ),
    ],
    replica_assignment: Assignment = None,
    if_exists: IfExists = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Add partitions. Settings are altered by `tailrace configs alter`.

    Records stay where they are; keys may go to other partitions from then on.
    """
    new = NewPartitions(
        partitions, replica_assignment=parse_assignment(replica_assignment, "--replica-assignment")
    )
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        altered = list(dict.fromkeys(topic))
        try:
            admin.create_partitions(dict.fromkeys(altered, new))
        except AdminError as error:
            altered = list(output.refusals("topic", error, ignoring=_missing_is_fine(if_exists)))
        for name in altered:
            output.event({"type": "altered", "topic": name, "partitions": partitions})
            output.line(f"topic {name} has {partitions} partitions")


@app.command("list")
def list_command(
    exclude_internal: ExcludeInternal = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the names of topics."""
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        for name, listed in sorted(admin.list_topics(include_internal=not exclude_internal).items()):
            output.event(
                {
                    "type": "topic",
                    "topic": name,
                    "topic_id": str(listed.topic_id),
                    "internal": listed.internal,
                    "partitions": listed.partition_count,
                }
            )
            output.line(name)


@app.command("describe")
def describe_command(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="The topic; several times if needed. Default: all."),
    ] = None,
    under_replicated: Annotated[
        bool,
        typer.Option("--under-replicated-partitions", help="Only those with replicas that are not in sync."),
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only those without an available leader.")
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="Only those with fewer replicas in sync than min.insync.replicas.",
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions",
            help="Only those with just as many replicas in sync as min.insync.replicas.",
        ),
    ] = False,
    exclude_internal: ExcludeInternal = False,
    if_exists: IfExists = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show topics, their settings, and the state of each partition."""
    filters = {
        Only.UNDER_REPLICATED: under_replicated,
        Only.UNAVAILABLE: unavailable,
        Only.UNDER_MIN_ISR: under_min_isr,
        Only.AT_MIN_ISR: at_min_isr,
    }
    only = None
    if any(filters.values()):
        only = Only(exactly_one({str(option): given for option, given in filters.items()}))
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        try:
            described = admin.describe_topics(topic or None, include_internal=not exclude_internal)
        except AdminError as error:
            described = output.refusals("topic", error, ignoring=_missing_is_fine(if_exists))
        show_topics(admin, output, described, only)


def _missing_is_fine(if_exists: bool) -> ErrorCode | None:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if if_exists else None
