"""`tailrace brokers`: who is registered, in which state, and forgetting one that is gone for good."""

from __future__ import annotations

from typing import Annotated

import typer

from tailrace.clients.admin_types import BrokerDescription
from tailrace.clients.cli.arguments import MAX_INT
from tailrace.clients.cli.cluster_command import AsJson, Bootstrap, CommandConfig, Output, cluster
from tailrace.cluster.common.errors import ErrorCode, TailraceError

app = typer.Typer(no_args_is_help=True, help="List, describe and unregister brokers.")

BrokerId = Annotated[int, typer.Option("--id", min=0, max=MAX_INT, metavar="ID", help="The broker's id.")]


@app.command("list")
def list_command(
    bootstrap: Bootstrap = None, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """List the brokers that are registered, also those that are fenced."""
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        described = admin.describe_cluster()
        brokers = described.brokers
        for one in brokers:
            output.event(_event(one))
        active = "none" if described.controller_id is None else f"node {described.controller_id}"
        output.line(f"cluster {described.cluster_id}  active controller {active}")
        output.table(
            ["id>", "state", "host", "rack", "log dirs", "endpoints"],
            [
                [one.broker_id, one.state, one.host, one.rack or "-", _dirs(one), _endpoints(one)]
                for one in brokers
            ],
        )


@app.command("describe")
def describe_command(
    broker_id: BrokerId,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Show one broker with its log directories and the feature levels that it supports."""
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        brokers = {one.broker_id: one for one in admin.describe_cluster().brokers}
        if broker_id not in brokers:
            known = ", ".join(map(str, sorted(brokers))) or "none"
            raise TailraceError(
                ErrorCode.BROKER_NOT_REGISTERED, f"no broker {broker_id} is registered; registered: {known}"
            )
        _describe(output, brokers[broker_id])


@app.command("unregister")
def unregister_command(
    broker_id: BrokerId,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Forget a broker that is gone for good.

    Move its replicas away first (`tailrace partitions reassign`), or afterwards: partitions keep it among
    their replicas until then.
    """
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        admin.unregister_broker(broker_id)
        output.event({"type": "unregistered", "broker": broker_id})
        output.line(f"broker {broker_id} is no longer registered")


def _describe(output: Output, broker: BrokerDescription) -> None:
    output.event(_event(broker))
    output.line(f"broker {broker.broker_id}  {broker.state}  epoch {broker.broker_epoch}")
    output.line(f"host {broker.host}  rack {broker.rack or '-'}")
    for endpoint in broker.endpoints:
        output.line(f"endpoint {endpoint}  {'TLS' if endpoint.tls else 'plain text'}")
    for directory in broker.log_dirs:
        output.line(f"log directory {directory.directory_id}  {'online' if directory.online else 'OFFLINE'}")
    for name, levels in sorted(broker.features.items()):
        output.line(f"feature {name}  {levels.min_level} to {levels.max_level}")


def _event(broker: BrokerDescription) -> dict[str, object]:
    return {
        "type": "broker",
        "broker": broker.broker_id,
        "state": broker.state.name.lower(),
        "epoch": broker.broker_epoch,
        "host": broker.host,
        "rack": broker.rack,
        "endpoints": [
            {"listener": one.listener, "host": one.host, "port": one.port, "tls": one.tls}
            for one in broker.endpoints
        ],
        "log_dirs": [{"id": str(one.directory_id), "online": one.online} for one in broker.log_dirs],
        "features": {
            name: {"min_level": levels.min_level, "max_level": levels.max_level}
            for name, levels in sorted(broker.features.items())
        },
    }


def _dirs(broker: BrokerDescription) -> str:
    offline = sum(not one.online for one in broker.log_dirs)
    return f"{len(broker.log_dirs)} ({offline} OFFLINE)" if offline else str(len(broker.log_dirs))


def _endpoints(broker: BrokerDescription) -> str:
    return " ".join(map(str, broker.endpoints))
