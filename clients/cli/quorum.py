"""`tailrace quorum`: how the controllers are, and how to make a new quorum from one survivor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailrace.clients.admin_types import QuorumDescription, Voter
from tailrace.clients.cli.cluster_command import (
    AsJson,
    Bootstrap,
    CommandConfig,
    Output,
    cluster,
    complain,
)
from tailrace.clients.cli.output import human_size

app = typer.Typer(no_args_is_help=True, help="Look at the quorum of controllers, or recover it.")


@app.callback()
def group() -> None:
    """Look at the quorum of controllers, or recover it."""


@app.command("status")
def status_command(
    bootstrap: Bootstrap = None, command_config: CommandConfig = None, as_json: AsJson = False
) -> None:
    """Show the leader, how far each voter is, and the newest snapshot.

    Ends with 1 when no controller is active.
    """
    with cluster(bootstrap, command_config, as_json) as (admin, output):
        status = admin.describe_quorum()
        _show(output, status)
        if status.leader_id is None:
            complain(
                f"no controller is active, says node {status.node_id}: start controllers until a majority of "
                "the voters runs and they reach each other"
            )
            output.refused = True


def _show(output: Output, status: QuorumDescription) -> None:
    snapshot = None
    if status.snapshot_version is not None:
        snapshot = {
            "version": status.snapshot_version,
            "bytes": status.snapshot_bytes,
            "age_ms": status.snapshot_age_ms,
        }
    output.event(
        {
            "type": "quorum",
            "node": status.node_id,
            "leader": status.leader_id,
            "controller_epoch": status.controller_epoch,
            "term": status.term,
            "last_index": status.last_index,
            "commit_index": status.commit_index,
            "applied_index": status.applied_index,
            "metadata_version": status.metadata_version,
            "snapshot": snapshot,
            "snapshots_failed": status.snapshots_failed,
            "journal_entries": status.journal_entries,
            "journal_bytes": status.journal_bytes,
        }
    )
    for voter in status.voters:
        output.event(_voter_event(voter))
    leader = "none" if status.leader_id is None else f"node {status.leader_id}"
    output.line(f"leader            {leader} (as node {status.node_id} sees it)")
    output.line(f"controller epoch  {status.controller_epoch}  (term {status.term})")
    output.line(
        f"metadata version  {status.metadata_version}  (index {status.last_index}, committed "
        f"{status.commit_index}, applied {status.applied_index})"
    )
    output.line(f"snapshot          {_snapshot(status)}")
    output.line(f"journal           {status.journal_entries} entries, {human_size(status.journal_bytes)}")
    output.table(
        ["voter>", "address", "role", "connected", "index>", "lag>", "last contact>"],
        [_voter_row(voter, status) for voter in status.voters],
    )


def _voter_event(voter: Voter) -> dict[str, object]:
    return {
        "type": "voter",
        "node": voter.node_id,
        "host": voter.host,
        "port": voter.port,
        "connected": voter.connected,
        "match_index": voter.match_index,
        "lag": voter.lag,
        "last_contact_ms": voter.last_contact_ms,
    }


def _voter_row(voter: Voter, status: QuorumDescription) -> list[object]:
    host = f"[{voter.host}]" if ":" in voter.host else voter.host
    return [
        voter.node_id,
        f"{host}:{voter.port}",
        "leader" if voter.node_id == status.leader_id else "follower",
        "yes" if voter.connected else "NO",
        "-" if voter.match_index is None else voter.match_index,
        "-" if voter.lag is None else voter.lag,
        "never" if voter.last_contact_ms is None else f"{voter.last_contact_ms} ms ago",
    ]


def _snapshot(status: QuorumDescription) -> str:
    if status.snapshot_version is None or status.snapshot_age_ms is None:
        shown = "none yet"
    else:
        shown = (
            f"version {status.snapshot_version}, {human_size(status.snapshot_bytes)}, "
            f"{status.snapshot_age_ms // 1000} s old"
        )
    return f"{shown}, {status.snapshots_failed} FAILED" if status.snapshots_failed else shown


@app.command("recover")
def recover_command(
    source: Annotated[Path, typer.Argument(help="The surviving controller's metadata.log.dir.")],
    target: Annotated[Path, typer.Argument(help="A directory that is empty or not there yet.")],
    node_id: Annotated[int, typer.Option("--node-id", min=0, help="The controller that is to use TARGET.")],
) -> None:
    """Make a controller's directory of a new quorum from that of one survivor, while no controller runs.

    Call it once for each controller of the new quorum, with the same SOURCE. What only the lost controllers
    had is gone; what this one had is kept, whether it was committed or not.
    """
    from tailrace.cluster.controller.quorum.recover import recover_directory  # noqa: PLC0415
    from tailrace.cluster.storage.files import OsFiles  # noqa: PLC0415

    found = recover_directory(OsFiles(), str(source), str(target), node_id)
    typer.echo(
        f"{target} is ready for controller {node_id}: everything that controller {found.source_node_id} had, "
        f"up to index {found.last_index}, in term {found.term}"
    )
