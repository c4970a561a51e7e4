"""How the quorum behaves: times, sizes and limits, with the relations that Raft needs between them."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.cluster.common.errors import ErrorCode, TailraceError

KIB = 1 << 10
MIB = 1 << 20

# What a message has beside the commands of its entries and the data of a chunk.
MESSAGE_OVERHEAD_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    heartbeat_ms: int = 100
    election_min_ms: int = 500
    """A follower that has not heard from its leader for a random time between these two asks for votes."""
    election_max_ms: int = 1_000
    leader_fallback_ms: int = 450
    """A leader that has no majority's answers for so long steps down."""

    proposal_timeout_ms: int = 5_000
    """After this a proposal is answered with `Unknown`, a barrier with `Refused`."""
    max_payload_bytes: int = 1 * MIB
    max_pending: int = 10_000
    max_pending_bytes: int = 64 * MIB

    max_message_bytes: int = 4 * MIB
    """Larger messages from other voters are dropped unread."""
    batch_bytes: int = 512 * KIB
    """A message with entries is closed when it holds so much; one entry may exceed it."""
    in_flight_bytes: int = 4 * MIB
    """How much may be on its way to one follower without an answer."""
    inbox_bytes: int = 64 * MIB
    """Messages that arrive while so much waits for the Raft thread are dropped."""

    snapshot_entries: int = 10_000
    """A snapshot is made when so many entries were applied since the last one, or so many bytes."""
    snapshot_bytes: int = 32 * MIB
    keep_entries: int = 2_000
    """So much of the log stays before a snapshot for followers that lag: whichever is less of both."""
    keep_bytes: int = 8 * MIB
    snapshot_chunk_bytes: int = 256 * KIB
    snapshot_retry_ms: int = 10_000
    """The pause after a snapshot that failed."""
    max_snapshot_bytes: int = 1024 * MIB

    hand_over_ms: int = 1_500
    """How long a stopping leader tries to hand its leadership over."""
    stop_timeout_ms: int = 10_000
    slow_tick_ms: int = 1_000
    """A step of the Raft thread that takes longer is logged."""
    stuck_tick_ms: int = 15_000
    """A step of the Raft thread that takes longer is a failure of the node."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < (0 if name.startswith("keep_") else 1):
                raise _impossible(f"{name} is {getattr(self, name)}, which is too small")
        self._require(self.election_min_ms > 3 * self.heartbeat_ms, "election_min_ms > 3 * heartbeat_ms")
        self._require(self.election_max_ms > self.election_min_ms, "election_max_ms > election_min_ms")
        self._require(self.leader_fallback_ms > self.heartbeat_ms, "leader_fallback_ms > heartbeat_ms")
        # Otherwise an isolated leader would still act as one when the others elect the next.
        self._require(
            self.leader_fallback_ms <= self.election_min_ms, "leader_fallback_ms <= election_min_ms"
        )
        largest = max(self.batch_bytes + self.max_payload_bytes, self.snapshot_chunk_bytes)
        self._require(
            largest + MESSAGE_OVERHEAD_BYTES <= self.max_message_bytes,
            "max_message_bytes >= batch_bytes + max_payload_bytes, and >= snapshot_chunk_bytes, by 64 KiB",
        )
        self._require(self.stuck_tick_ms > self.slow_tick_ms, "stuck_tick_ms > slow_tick_ms")

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise _impossible(f"they must keep {rule}")


def _impossible(problem: str) -> TailraceError:
    return TailraceError(
        ErrorCode.INVALID_CONFIG, f"the settings of the controller quorum cannot be used: {problem}"
    )
