"""The two streams of a link between controllers, on synchronous gRPC, and how one is opened.

Used by controller/quorum/grpc_links.py, which owns the threads: one that opens a stream and waits for its
end, and one of gRPC's for each stream that a peer opened. gRPC itself adds a thread for each stream we
open; it runs `OutgoingStream._requests`, and so is the one that takes frames from the queue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import grpc
from google.protobuf.message import DecodeError

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.frames import FrameQueue, QueueLimits, encode_frames
from tailrace.cluster.rpc.hello import HELLO_KEY
from tailrace.cluster.rpc.identity import node_name
from tailrace.cluster.rpc.options import (
    MIB,
    ChannelLimits,
    Keepalive,
    Options,
    ServerLimits,
    channel_options,
    server_options,
)
from tailrace.cluster.rpc.tls import TlsSettings, channel_credentials
from tailrace.v1.raft_pb2 import RaftFrames

SERVICE = "tailrace.v1.RaftLinks"
OPEN = "Open"

# With these the called node says that it will not link, whatever the network does.
_REFUSING = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)
# A silent peer is noticed within 2.5 s.
_FAST_KEEPALIVE = Keepalive(time_ms=1_000, timeout_ms=1_500)
# Tag and length of a frame in a message.
_FRAME_OVERHEAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    max_frame_bytes: int = 4 * MIB
    max_queued_frames: int = 4096
    max_queued_bytes: int = 16 * MIB
    """Per peer. A queue that is full resets its link: Raft sends again what matters."""
    max_batch_bytes: int = 1 * MIB
    """How much of what is pending goes into one gRPC message; a single frame may be larger."""
    handshake_timeout_ms: int = 3_000
    """From the first packet to the answered hello."""
    min_retry_ms: int = 50
    max_retry_ms: int = 1_000
    keepalive: Keepalive = _FAST_KEEPALIVE
    max_connections: int = 64
    """At the listener, strangers included. Links that are up are not touched when it is reached."""
    max_connection_idle_ms: int = 5_000
    """A connection that has no stream is closed after this."""

    @property
    def queue_limits(self) -> QueueLimits:
        return QueueLimits(
            max_frames=self.max_queued_frames,
            max_bytes=max(self.max_queued_bytes, self.max_frame_bytes),
            max_batch_bytes=self.max_batch_bytes,
        )

    @property
    def server_options(self) -> Options:
        limits = ServerLimits(
            max_concurrent_streams=4,
            max_connections=self.max_connections,
            handshake_timeout_ms=self.handshake_timeout_ms,
            max_connection_idle_ms=self.max_connection_idle_ms,
            keepalive=self.keepalive,
        )
        return server_options(limits, max_message_bytes=self._max_message_bytes)

    def channel_options(self, peer_id: int) -> Options:
        limits = ChannelLimits(
            max_message_bytes=self._max_message_bytes,
            connect_timeout_ms=self.handshake_timeout_ms,
            keepalive=self.keepalive,
        )
        return channel_options(limits, server_name=node_name(peer_id))

    @property
    def _max_message_bytes(self) -> int:
        return max(self.max_frame_bytes, self.max_batch_bytes) + _FRAME_OVERHEAD * self.max_queued_frames


class StreamEndedError(Exception):
    """A stream ended before it was accepted; `str()` says why."""

    def __init__(self, reason: str, *, refused: bool) -> None:
        super().__init__(reason)
        self.refused = refused


class Connector:
    """Opens connections to voters, each with the address and the certificates of the moment."""

    def __init__(
        self,
        voters: Mapping[int, str],
        tls: TlsSettings | None,
        settings: LinkSettings,
        *,
        allow_plaintext: bool,
    ) -> None:
        self._voters = voters
        self._settings = settings
        self.tls = tls
        self.allow_plaintext = allow_plaintext

    def address_of(self, peer_id: int) -> Address:
        return Address.parse(self._voters[peer_id])

    def open(self, peer_id: int) -> grpc.Channel:
        """Raises INVALID_CONFIG when address or certificates cannot be used; connects later."""
        address = self.address_of(peer_id)
        if address.port == 0:
            raise TailraceError(ErrorCode.INVALID_CONFIG, f"voter {peer_id} ({address}) needs a port")
        credentials = channel_credentials(address, self.tls, allow_plaintext=self.allow_plaintext)
        options = self._settings.channel_options(peer_id)
        if credentials is None:
            return grpc.insecure_channel(str(address), options=options)
        return grpc.secure_channel(str(address), credentials, options=options)


class IncomingStream:
    """What a peer sends on; read by the thread that gRPC gave to the call."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def abort(self, reason: str) -> None:
        self._context.cancel()


class OutgoingStream:
    """What we send on. Whoever made it calls `answer`, then `wait_for_end`."""

    def __init__(self, channel: grpc.Channel, hello: bytes, settings: LinkSettings) -> None:
        self.queue = FrameQueue(settings.queue_limits)
        self._timeout_ms = settings.handshake_timeout_ms
        self._reason: str | None = None
        self._answered = threading.Event()
        self._opened = threading.Event()
        open_stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(
            f"/{SERVICE}/{OPEN}"
        )
        self._call = open_stream(self._requests(), metadata=((HELLO_KEY, hello),))
        self._opened.set()

    def answer(self) -> bytes:
        """The called node's hello; raises `StreamEndedError` when there is none in time."""
        try:
            answer = next(self._call)
        except StopIteration:
            raise StreamEndedError("the peer closed the stream without a hello", refused=True) from None
        except grpc.RpcError as error:
            raise StreamEndedError(self._describe(error), refused=error.code() in _REFUSING) from None
        self._answered.set()
        return answer

    def wait_for_end(self) -> str:
        """Blocks until the stream is over, and says why."""
        try:
            for _ in self._call:
                self.abort("the peer sent something where it must not")
        except grpc.RpcError as error:
            return self._describe(error)
        return self._reason or "the peer ended the stream"

    def abort(self, reason: str) -> None:
        if self._reason is None:
            self._reason = reason
        self.queue.close()
        self._answered.set()
        self._call.cancel()

    def _requests(self) -> Iterator[bytes]:
        if not self._answered.wait(self._timeout_ms / 1000):
            self._opened.wait()
            self.abort(f"no answer within {self._timeout_ms} ms")
        while (frames := self.queue.take()) is not None:
            yield encode_frames(frames)

    def _describe(self, error: grpc.RpcError) -> str:
        if self._reason is not None:
            return self._reason
        if error.code() is grpc.StatusCode.CANCELLED:
            return "the peer ended the stream"
        return error.details() or error.code().name


def parse_frames(message: bytes, settings: LinkSettings) -> list[bytes]:
    """The frames of a message; raises ValueError when a peer may not have sent it."""
    try:
        frames = RaftFrames.FromString(message).frames
    except DecodeError:
        raise ValueError("a message that cannot be read") from None
    if len(frames) > settings.max_queued_frames:
        raise ValueError(f"{len(frames)} frames in one message")
    parsed = list(frames)
    if any(not 0 < len(frame) <= settings.max_frame_bytes for frame in parsed):
        raise ValueError(f"a frame that is empty or larger than {settings.max_frame_bytes} bytes")
    return parsed
