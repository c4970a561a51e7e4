"""Which entries of the log count: the controller epoch and the version, decided alike on every node.

A command in the log is a claim, a proposal or a barrier. Applying one is total and depends on nothing but
the commands before it:

- `Claim(node, term)` is accepted if its term is above the current epoch; the term becomes the epoch.
- `Proposal(epoch, base_version, payload)` is accepted if its epoch is the current one and its base version
  the current version, which then grows by one.
- `Barrier` changes nothing. Who gets it back knows that everything before it has been applied.

So whatever a deposed leader still had in its queue, or a network delivers late, changes nothing; and since a
base version is used up by the entry that is accepted on it, no proposal is ever applied twice. Pure.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.outcomes import Committed, Refused

_PROPOSAL = struct.Struct("<BQQ")  # kind, epoch, base version; the payload follows
_CLAIM = struct.Struct("<BQI")  # kind, term, node
_PROPOSAL_KIND, _CLAIM_KIND, _BARRIER_KIND = 1, 2, 3

PROPOSAL_OVERHEAD_BYTES = _PROPOSAL.size


class Proposal(NamedTuple):
    epoch: int
    base_version: int
    payload: bytes


class Claim(NamedTuple):
    term: int
    node_id: int


class Barrier(NamedTuple):
    pass


Command = Proposal | Claim | Barrier


def encode_command(command: Command) -> bytes:
    match command:
        case Proposal(epoch, base_version, payload):
            return _PROPOSAL.pack(_PROPOSAL_KIND, epoch, base_version) + payload
        case Claim(term, node_id):
            return _CLAIM.pack(_CLAIM_KIND, term, node_id)
        case Barrier():
            return bytes((_BARRIER_KIND,))


def decode_command(data: bytes) -> Command:
    """The command; TailraceError for what this release does not know, upon which the node must stop."""
    kind = data[0] if data else 0
    if kind == _PROPOSAL_KIND and len(data) >= _PROPOSAL.size:
        _, epoch, base_version = _PROPOSAL.unpack_from(data)
        return Proposal(epoch, base_version, data[_PROPOSAL.size :])
    if kind == _CLAIM_KIND and len(data) == _CLAIM.size:
        _, term, node_id = _CLAIM.unpack(data)
        return Claim(term, node_id)
    if kind == _BARRIER_KIND and len(data) == 1:
        return Barrier()
    raise TailraceError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"the metadata log holds a command of kind {kind} with {len(data)} bytes, which this release does "
        "not know: a newer release has written it. Start that release or a later one on this controller.",
    )


class Guard:
    """The controller epoch and the version.

    The epoch is the term of the leader that claimed it, and a term has one leader at most: a leader whose
    term is the epoch knows that the claim was its own.
    """

    __slots__ = ("epoch", "version")

    def __init__(self) -> None:
        self.load(version=0, epoch=0)

    def load(self, *, version: int, epoch: int) -> None:
        self.version = version
        self.epoch = epoch

    def decide(self, command: Command) -> Committed | Refused:
        """Accept or refuse, and change epoch and version accordingly."""
        match command:
            case Proposal(epoch, base_version, _):
                refused = self.objection(epoch, base_version)
                if refused is not None:
                    return refused
                if base_version != self.version:
                    return self._other_version(base_version)
                self.version += 1
            case Claim(term, node_id):
                if term <= self.epoch:
                    return Refused(
                        ErrorCode.STALE_CONTROLLER_EPOCH,
                        f"controller {node_id} claims epoch {term}, but the epoch is {self.epoch} already",
                    )
                self.epoch = term
            case Barrier():
                pass
        return Committed(self.version)

    def objection(self, epoch: int, base_version: int) -> Refused | None:
        """Why a proposal cannot be accepted any more, whatever is applied before it."""
        if epoch != self.epoch:
            return Refused(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the proposal was made in controller epoch {epoch}, but the epoch is {self.epoch}",
            )
        if base_version < self.version:
            return self._other_version(base_version)
        return None

    def _other_version(self, base_version: int) -> Refused:
        return Refused(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the proposal is based on version {base_version}, but the version is {self.version}",
        )
