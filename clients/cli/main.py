"""The command `tailrace`: puts the groups of commands together.

Each group is a module of this package with a typer `app`; this one adds what they share: the version,
and that an error which a person can do something about is shown as a message, not as a stack.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import tailrace
from tailrace.clients.cli import log
from tailrace.cluster.common.errors import TailraceError

app = typer.Typer(
    name="tailrace",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Tailrace: a distributed, replicated, partitioned commit log.",
)
app.add_typer(log.app, name="log")


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
