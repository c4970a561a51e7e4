"""The quorum's status as administrators are told it."""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.cluster.controller.quorum.outcomes import QuorumStatus, Voter, VoterStatus
from tailrace.v1.admin_pb2 import DescribeQuorumResponse

NOT_KNOWN = -1


def quorum_response(status: QuorumStatus, voters: Iterable[Voter]) -> DescribeQuorumResponse:
    others = {one.node_id: one for one in status.voters}
    snapshot = status.snapshot
    return DescribeQuorumResponse(
        node_id=status.node_id,
        leader_id=NOT_KNOWN if status.leader_id is None else status.leader_id,
        controller_epoch=status.epoch,
        term=status.term,
        last_index=status.last_index,
        commit_index=status.commit_index,
        applied_index=status.applied_index,
        metadata_version=status.version,
        voters=[_voter(one, others.get(one.node_id), status) for one in voters],
        snapshot_version=NOT_KNOWN if snapshot is None else snapshot.version,
        snapshot_bytes=0 if snapshot is None else snapshot.size_bytes,
        snapshot_age_ms=NOT_KNOWN if snapshot is None else snapshot.age_ms,
        journal_entries=status.journal_entries,
        journal_bytes=status.journal_bytes,
        snapshots_failed=status.failed_snapshots,
    )


def _voter(voter: Voter, seen: VoterStatus | None, status: QuorumStatus) -> DescribeQuorumResponse.Voter:
    """The one who answers knows itself best; of others it knows what it hears, as the leader most."""
    told = DescribeQuorumResponse.Voter(node_id=voter.node_id, host=voter.host, port=voter.port)
    if seen is None:
        told.connected, told.match_index, told.lag, told.last_contact_ms = True, status.last_index, 0, 0
        return told
    told.connected = seen.connected
    told.match_index = NOT_KNOWN if seen.match_index is None else seen.match_index
    told.lag = NOT_KNOWN if seen.lag_entries is None else seen.lag_entries
    told.last_contact_ms = NOT_KNOWN if seen.since_answer_ms is None else seen.since_answer_ms
    return told
