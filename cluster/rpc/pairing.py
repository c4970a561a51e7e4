"""A link to one peer that is made of two one-way streams: the one we opened, and the one the peer opened.

The link is *up* while both exist. If one ends, or a new one takes its place, the link goes down and the
other one is ended too, so that the streams of a link that is up were always opened for each other. That
gives the link its promise: between `on_up` and the next `on_down` it delivers the frames of one connection,
in order and each at most once; a frame of an earlier connection is never delivered.

Why ending both sides comes to rest: a node that takes its link down drops both streams before it opens a
new one. So a stream that arrives while an older one of the same peer is attached tells that the peer has
dropped everything older, our own stream to it included; and news of a stream that is no longer attached is
ignored.

Callbacks are called with the pair's lock held, which puts them in order; they must not block, and may call
`send`, which takes another lock. Whoever owns the streams' threads calls the rest
(controller/quorum/grpc_links).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.cluster.rpc.frames import FrameQueue, Put


class Stream(Protocol):
    """One direction; compared by identity."""

    def abort(self, reason: str) -> None:
        """End it, from any thread, without waiting. May be called again; the first reason counts."""


class OutgoingStream(Stream, Protocol):
    @property
    def queue(self) -> FrameQueue: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PairEvents:
    on_up: Callable[[], None]
    on_down: Callable[[str], None]
    """Called with the reason, for people."""
    on_message: Callable[[bytes], None]


class LinkPair:
    def __init__(self, events: PairEvents) -> None:
        self._events = events
        self._changed = threading.Condition()
        self._incoming: Stream | None = None
        self._outgoing: OutgoingStream | None = None
        self._sending: OutgoingStream | None = None
        """`_outgoing` while the link is up. Read by `send` without the lock."""
        self._closed = False

    @property
    def is_up(self) -> bool:
        return self._sending is not None

    def attach_outgoing(self, stream: OutgoingStream) -> None:
        with self._changed:
            self._replace(self._outgoing, "this node opened a new stream")
            self._outgoing = stream
            self._settle()

    def attach_incoming(self, stream: Stream) -> None:
        with self._changed:
            self._replace(self._incoming, "the peer opened a new stream")
            self._incoming = stream
            self._settle()

    def detach(self, stream: Stream, reason: str) -> None:
        """The stream has ended; nothing happens if it is no longer one of the link's."""
        with self._changed:
            if stream is self._incoming or stream is self._outgoing:
                self._take_down(reason, ended=stream)

    def deliver(self, stream: Stream, frames: Sequence[bytes], wait_s: float) -> bool:
        """Hands over what came by `stream`; False when it is no longer the link's, and must be given up.

        The peer may see the link up a moment earlier than we do, and send at once. Such frames wait here,
        up to `wait_s`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._incoming is not stream or self.is_up, wait_s)
            if self._incoming is not stream or not self.is_up:
                return False
            for frame in frames:
                self._events.on_message(frame)
            return True

    def send(self, frame: bytes) -> bool:
        """Never blocks. When the queue is full the link is reset: its owner hears of the stream's end."""
        stream = self._sending
        if stream is None:
            return False
        match stream.queue.put(frame):
            case Put.QUEUED:
                return True
            case Put.FULL:
                stream.abort("frames wait for the peer longer than its queue has room")
        return False

    def close(self) -> None:
        """Takes the link down for good; streams that come later are ended at once."""
        with self._changed:
            self._closed = True
            self._take_down("this node is stopping")

    def _replace(self, current: Stream | None, reason: str) -> None:
        if current is not None:
            self._take_down(reason)

    def _settle(self) -> None:
        if self._closed:
            self._take_down("this node is stopping")
        elif self._incoming is not None and self._outgoing is not None:
            self._sending = self._outgoing
            self._events.on_up()
        self._changed.notify_all()

    def _take_down(self, reason: str, ended: Stream | None = None) -> None:
        """Ends what is attached, but for `ended`, whose owner may still have something to say on it."""
        was_up, self._sending = self.is_up, None
        streams = (self._incoming, self._outgoing)
        self._incoming = self._outgoing = None
        for stream in streams:
            if stream is not None and stream is not ended:
                stream.abort(reason)
        self._changed.notify_all()
        if was_up:
            self._events.on_down(reason)
