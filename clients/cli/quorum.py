"""`tailrace quorum`: how the controllers are, as the active one sees it."""

from __future__ import annotations

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

app = typer.Typer(no_args_is_help=True, help="Look at the quorum of controllers.")


@app.callback()
def group() -> None:
    """Look at the quorum of controllers."""


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
