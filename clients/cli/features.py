"""`tailrace features`: the levels that every node of the cluster may count on, and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from tailrace.clients.admin_types import FeatureDescription
from tailrace.clients.cli.arguments import parse_level, usage_error
from tailrace.clients.cli.cluster_command import AsJson, Bootstrap, CommandConfig, cluster
from tailrace.cluster.common.errors import ErrorCode, TailraceError

app = typer.Typer(no_args_is_help=True, help="Show, raise and lower the cluster's feature levels.")

Features = Annotated[
    list[str],
    typer.Option(
        "--feature",
        metavar="NAME=LEVEL",
        help="A feature and its new level, such as metadata.version=2; several times if needed.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only ask whether it could be done.")]


@app.command("describe")
def describe_command(
    bootstrap: Bootstrap = None, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """Show each feature's level, and the levels that every node supports."""
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        features = sorted(admin.describe_features().items())
        for name, one in features:
            output.event(
                {
                    "type": "feature",
                    "feature": name,
                    "level": one.level,
                    "min_supported": one.min_supported,
                    "max_supported": one.max_supported,
                }
            )
        output.table(
            ["feature", "level>", "supported"],
            [[name, one.level, f"{one.min_supported} to {one.max_supported}"] for name, one in features],
        )


@app.command("upgrade")
def upgrade_command(
    feature: Features,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Raise levels, once every node runs a release that supports them: all that are named, or none."""
    _update(feature, False, dry_run, (bootstrap, command_config, as_json))


@app.command("downgrade")
def downgrade_command(
    feature: Features,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Lower levels, where nothing is lost by it: all that are named, or none."""
    _update(feature, True, dry_run, (bootstrap, command_config, as_json))


def _update(
    features: list[str], downgrade: bool, dry_run: bool, where: tuple[Bootstrap, CommandConfig, AsJson]
) -> None:
    wanted: dict[str, int] = {}
    for text in features:
        name, level = parse_level(text, "--feature")
        if name in wanted:
            raise usage_error(f"{name} is given twice", "--feature")
        wanted[name] = level
    with cluster(*where) as (admin, output):
        if downgrade:
            _demand_lower(wanted, admin.describe_features())
        admin.update_features(wanted, allow_downgrade=downgrade, validate_only=dry_run)
        for name, level in wanted.items():
            output.event({"type": "updated", "feature": name, "level": level, "dry_run": dry_run})
            output.line(f"{name} {'could be set' if dry_run else 'is'} {'to' if dry_run else 'at'} {level}")


def _demand_lower(wanted: Mapping[str, int], features: Mapping[str, FeatureDescription]) -> None:
    for name, level in wanted.items():
        if name in features and level > features[name].level:
            raise TailraceError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is at {features[name].level}, and {level} is higher: use `features upgrade`",
            )
