"""The command `tailrace`: puts the groups of commands together.

Each group is a module of this package with a typer `app`; this one adds what they share: the version,
and that an error which a person can do something about is shown as a message, not as a stack.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import tailrace
from tailrace.clients.cli import brokers, certs, configs, features, log, partitions, quorum, server, topics
from tailrace.cluster.common.errors import TailraceError

app = typer.Typer(
    name="tailrace",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tailrace: a distributed, replicated, partitioned commit log.",
)
app.command(name="server")(server.server)
app.add_typer(topics.app, name="topics")
app.add_typer(configs.app, name="configs")
app.add_typer(partitions.app, name="partitions")
app.add_typer(brokers.app, name="brokers")
app.add_typer(quorum.app, name="quorum")
app.add_typer(features.app, name="features")
app.add_typer(log.app, name="log")
app.add_typer(certs.app, name="certs")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tailrace {tailrace.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Options of every command."""


def main() -> None:
    try:
        app()
    except TailraceError as error:
        typer.echo(f"tailrace: {error}", err=True)
        sys.exit(1)
