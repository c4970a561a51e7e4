"""`tailrace server`: runs a node until it is told to stop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import tailrace
from tailrace.cluster.runtime.config_file import load_node_config

if TYPE_CHECKING:
    from tailrace.cluster.controller.server import ControllerServer


def server(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The node's settings, a TOML file.", show_default=False),
    ] = None,
    override: Annotated[
        list[str] | None,
        typer.Option("--override", "-o", metavar="NAME=VALUE", help="A setting; counts more than the file."),
    ] = None,
) -> None:
    """Run a node with the roles of its settings, until SIGTERM or SIGINT."""
    loaded = load_node_config(config, os.environ, override or [])
    # Otherwise gRPC writes a line for each failed handshake to the terminal, beside our own events.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tailrace.cluster.node import run_node  # noqa: PLC0415  (gRPC takes a while to import)

    run_node(loaded, release=tailrace.__version__, on_ready=_say_ready)


def _say_ready(controller: ControllerServer) -> None:
    typer.echo(f"controller ready: port {controller.port}, raft port {controller.raft_port}")
