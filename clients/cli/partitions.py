"""`tailrace partitions`: elect leaders, and move replicas to other brokers. Options have Kafka's names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailrace.clients.admin_types import AdminError, ElectionType
from tailrace.clients.cli import reassigning
from tailrace.clients.cli.arguments import (
    MAX_INT,
    exactly_one,
    one_partition,
    parse_ids,
    shown_ids,
    usage_error,
)
from tailrace.clients.cli.cluster_command import AsJson, Bootstrap, CommandConfig, Output, cluster
from tailrace.clients.cli.partition_files import read_partitions, read_reassignment, read_topics
from tailrace.cluster.common.types import TopicPartition

app = typer.Typer(no_args_is_help=True, help="Elect leaders, and move replicas to other brokers.")


@app.command("elect-leaders")
def elect_leaders_command(
    election_type: Annotated[
        ElectionType,
        typer.Option(
            "--election-type",
            help="preferred: the first replica, if it is in sync. unclean: whoever is there, where nobody "
            "leads, although committed records may be lost.",
        ),
    ],
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="With --partition.")] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", min=0, max=MAX_INT, metavar="N", help="With --topic.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all-topic-partitions", help="All partitions that need it.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--path-to-json-file", metavar="FILE", help="The partitions that the file names."),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Elect leaders of partitions."""
    one = one_partition(topic, partition)
    exactly_one(
        {
            "--topic with --partition": one is not None,
            "--all-topic-partitions": every,
            "--path-to-json-file": file is not None,
        }
    )
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        partitions = None
        if file is not None:
            partitions = read_partitions(file)
        elif one is not None:
            partitions = [one]
        try:
            elected = admin.elect_leaders(election_type, partitions)
        except AdminError as error:
            elected = output.refusals("partition", error)
        _show_elected(output, elected)


def _show_elected(output: Output, elected: dict[TopicPartition, bool]) -> None:
    for partition, changed in sorted(elected.items()):
        output.event(
            {
                "type": "election",
                "topic": partition.topic,
                "partition": partition.partition,
                "elected": changed,
            }
        )
        output.line(f"{partition}: {'a leader was elected' if changed else 'not needed'}")
    if not elected and not output.refused:
        output.line("no partition needed it")


@app.command("reassign")
def reassign_command(
    execute: Annotated[bool, typer.Option("--execute", help="Begin to move the replicas.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="See whether they have arrived.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Put back what has not arrived.")] = False,
    generate: Annotated[
        bool, typer.Option("--generate", help="Propose an assignment; nothing is changed.")
    ] = False,
    reassignment_file: Annotated[
        Path | None,
        typer.Option(
            "--reassignment-json-file",
            metavar="FILE",
            help="Partitions and their replicas; with --execute, --verify and --cancel.",
        ),
    ] = None,
    topics_file: Annotated[
        Path | None,
        typer.Option("--topics-to-move-json-file", metavar="FILE", help="Topics; with --generate."),
    ] = None,
    broker_list: Annotated[
        str | None,
        typer.Option("--broker-list", metavar="ID,ID", help="Where they are to go; with --generate."),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Move replicas to other brokers.

    --execute prints the assignment as it was: keep it, to be able to go back. --verify ends with 1 until all
    is done.
    """
    chosen = exactly_one(
        {"--execute": execute, "--verify": verify, "--cancel": cancel, "--generate": generate}
    )
    if generate:
        if topics_file is None or broker_list is None:
            raise usage_error("needs --topics-to-move-json-file and --broker-list", "--generate")
        brokers = parse_ids(broker_list, "--broker-list")
        with cluster(bootstrap, command_config, as_json) as (admin, output):
            reassigning.generate(admin, output, read_topics(topics_file), brokers)
        return
    if reassignment_file is None:
        raise usage_error("needs --reassignment-json-file", chosen)
    action = {
        "--execute": reassigning.execute,
        "--verify": reassigning.verify,
        "--cancel": reassigning.cancel,
    }[chosen]
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        action(admin, output, read_reassignment(reassignment_file))


@app.command("list-reassignments")
def list_reassignments_command(
    bootstrap: Bootstrap = None, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """List the reassignments that are going on."""
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        going_on = sorted(admin.list_partition_reassignments().items())
        for partition, one in going_on:
            output.event(
                {
                    "type": "reassignment",
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": one.replicas,
                    "adding": one.adding,
                    "removing": one.removing,
                }
            )
        if not going_on:
            output.line("no reassignment is going on")
            return
        output.table(
            ["topic", "partition>", "replicas", "adding", "removing"],
            [
                [
                    partition.topic,
                    partition.partition,
                    shown_ids(one.replicas),
                    shown_ids(one.adding),
                    shown_ids(one.removing),
                ]
                for partition, one in going_on
            ],
        )
