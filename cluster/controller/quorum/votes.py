"""What a controller must never forget: its term, its vote, and its phase of belonging to the quorum.

A small file, replaced as a whole and synced before the call returns, because a vote or a request for votes
that leaves before could be forgotten and given again to another candidate of the same term.

The phase says what a vote of this node is worth after its directory was empty (see `elections`). The file
also says whose directory it is: one that is used by another controller, or for another set of voters, would
vote on behalf of somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.storage.files import Files, storage_error
from tailrace.cluster.storage.statefile import read_state, write_state

_KIND = "raft-vote"
_VERSION = 1
_REMEDY = (
    "Without it this controller could vote twice in a term. If a majority of the other controllers is "
    "healthy, start this one with an empty directory: they will fill it. Otherwise restore the whole "
    "directory from a backup."
)


class Phase(IntEnum):
    EMPTY = 0
    """It began with an empty directory, and has neither founded a cluster nor caught up with one."""
    FOUNDING = 1
    """It took part in founding a cluster."""
    CAUGHT_UP = 2
    """It has held everything that a leader had committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteState:
    node_id: int
    voters: tuple[int, ...] | None
    """Sorted; None in a directory made by recovery, until its first start."""
    term: int = 0
    vote: int | None = None
    phase: Phase = Phase.EMPTY


class VoteFile:
    def __init__(self, files: Files, path: str, state: VoteState) -> None:
        """For a file that holds `state` already; use `create` or `open`."""
        self._files = files
        self._path = path
        self.state = state

    @classmethod
    def create(cls, files: Files, path: str, state: VoteState) -> VoteFile:
        votes = cls(files, path, state)
        votes._write(state)
        return votes

    @classmethod
    def open(cls, files: Files, path: str, node_id: int, voters: Sequence[int]) -> VoteFile:
        state = read_votes(files, path)
        if state.node_id != node_id:
            raise TailraceError(
                ErrorCode.INVALID_CONFIG,
                f"{path} belongs to controller {state.node_id}, but this is controller {node_id}. Set the "
                "node's id or its directory to the one that belongs to the other.",
            )
        members = tuple(sorted(voters))
        if state.voters is not None and state.voters != members:
            raise TailraceError(
                ErrorCode.INVALID_CONFIG,
                f"{path} was written for the voters {list(state.voters)}, but controller.quorum.voters now "
                f"names {list(members)}. Membership cannot be changed by settings: name the same voters "
                "again, or make a new quorum from one of the directories with the recovery command.",
            )
        votes = cls(files, path, state)
        if state.voters is None:
            votes._write(replace(state, voters=members))
        return votes

    def set_term(self, term: int, vote: int | None) -> None:
        """Durable when it returns. A term never falls, and a vote once given in a term stays."""
        state = self.state
        if term < state.term or (term == state.term and state.vote not in (None, vote)):
            raise ValueError(f"term {term} with vote {vote} cannot follow {state.term} with {state.vote}")
        if (term, vote) != (state.term, state.vote):
            self._write(replace(state, term=term, vote=vote))

    def enter(self, phase: Phase) -> None:
        """Durable when it returns. A node never goes back to an earlier phase."""
        if phase > self.state.phase:
            self._write(replace(self.state, phase=phase))

    def _write(self, state: VoteState) -> None:
        body: dict[str, Any] = {
            "node_id": state.node_id,
            "voters": None if state.voters is None else list(state.voters),
            "term": state.term,
            "vote": state.vote,
            "phase": state.phase.name.lower(),
        }
        try:
            write_state(self._files, self._path, _KIND, _VERSION, body)
        except OSError as error:
            raise storage_error("writing term and vote", error, self._path) from error
        self.state = state


def read_votes(files: Files, path: str) -> VoteState:
    """The content of a file; TailraceError if it is damaged, FileNotFoundError if there is none."""
    _, body = read_state(files, path, _KIND, _VERSION, remedy=_REMEDY)
    match body:
        case {
            "node_id": int(node_id),
            "voters": None | list() as voters,
            "term": int(term),
            "vote": None | int() as vote,
            "phase": "empty" | "founding" | "caught_up" as phase,
        }:
            members = None if voters is None else tuple(int(voter) for voter in voters)
            return VoteState(
                node_id=node_id, voters=members, term=term, vote=vote, phase=Phase[phase.upper()]
            )
    raise TailraceError(
        ErrorCode.STORAGE_CORRUPT, f"{path} lacks a field, or one is wrong: {body}. {_REMEDY}"
    )
