"""What the quorum tells its users: outcomes of proposals, leadership, and the state of every voter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tailrace.cluster.common.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Voter:
    node_id: int
    host: str
    port: int


class Committed(NamedTuple):
    """The proposal is part of the log for good, and applied here."""

    version: int


class Refused(NamedTuple):
    """Definite: the proposal was not applied and never will be, on any controller."""

    code: ErrorCode
    message: str


class Unknown(NamedTuple):
    """The proposal may have been applied or may be later; the version after the next claim tells."""

    message: str


Outcome = Committed | Refused | Unknown


class Leadership(NamedTuple):
    """Who leads. `active`: this node does, and has committed its claim, so it may propose in `epoch`."""

    leader_id: int | None
    epoch: int
    active: bool
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterStatus:
    """Another voter as this node sees it. Only the leader knows the last three; elsewhere they are None."""

    node_id: int
    connected: bool
    match_index: int | None
    lag_entries: int | None
    since_answer_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStatus:
    index: int
    version: int
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumStatus:
    node_id: int
    leader_id: int | None
    active: bool
    epoch: int
    term: int
    version: int
    last_index: int
    commit_index: int
    applied_index: int
    caught_up: bool
    """False for a node that began with an empty directory and has not caught up with a leader since."""
    voters: tuple[VoterStatus, ...]
    snapshot: SnapshotStatus | None
    journal_entries: int
    journal_bytes: int
    pending_proposals: int
    failed_snapshots: int
    """Since the node started; `snapshot_error` is the reason of the last one, "" after a success."""
    snapshot_error: str
    dropped: tuple[tuple[str, int], ...]
    """Inbound messages that were not followed, by reason."""
