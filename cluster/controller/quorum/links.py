"""The seam between Raft and the network.

A link carries opaque messages to one other voter. It delivers the messages of one connection in order and
each at most once, and never one from before an `on_down` after the following `on_up`. It may lose messages:
Raft asks again. `grpc_links` is the real implementation; tests and simulations have one in memory.
"""

from __future__ import annotations

from typing import Protocol


class LinkEvents(Protocol):
    """What a link reports; implemented by the quorum. May be called from any thread, and never blocks."""

    def on_message(self, peer_id: int, data: bytes) -> None: ...

    def on_up(self, peer_id: int) -> None:
        """Messages can be sent to the peer from now on, over a new connection."""

    def on_down(self, peer_id: int) -> None: ...


class RaftLinks(Protocol):
    def start(self, events: LinkEvents) -> None: ...

    def send(self, peer_id: int, data: bytes) -> bool:
        """Hand a message over for sending, without blocking.

        False when the peer is not connected or its bounded queue is full; in the latter case the link is
        reset, so that the peer does not go on with a gap.
        """

    def stop(self) -> None: ...
