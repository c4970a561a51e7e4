"""Links between controllers over gRPC: the network below Raft.

Every controller opens one stream to every other one and only sends on it (proto/tailrace/v1/raft.proto);
the two streams of a pair make one link (cluster/rpc/pairing.py). This is synchronous gRPC with threads of
its own, because heartbeats must go on while the event loop of the node is busy.

Who may link: with TLS the caller's certificate must be that of a voter and its hello must say the same; the
called one must show the certificate of the voter that the caller meant. Then both hellos must agree
(cluster/rpc/hello.py). A hello is metadata of the call, so that a stranger is refused without a thread
waiting for what it may send. Limits on frames, queues, connections and time are in `LinkSettings`. A peer
that died is noticed at once because its connection breaks, a silent one by gRPC's keepalive.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NoReturn, cast

import grpc

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.links import LinkEvents
from tailrace.cluster.rpc.hello import HELLO_KEY, Cause, Greeter, RefusalError
from tailrace.cluster.rpc.identity import identity_from, node_name
from tailrace.cluster.rpc.link_streams import (
    OPEN,
    SERVICE,
    Connector,
    IncomingStream,
    LinkSettings,
    OutgoingStream,
    StreamEndedError,
    parse_frames,
)
from tailrace.cluster.rpc.pairing import LinkPair, PairEvents
from tailrace.cluster.rpc.tls import CERT_SETTING, TlsSettings, load_tls_files, server_credentials
from tailrace.cluster.runtime.clock import Clock, SystemClock
from tailrace.cluster.runtime.logs import get_logger

# Refusals of one cause are logged once in this time, so that a stranger cannot fill the disk with them.
_REFUSAL_LOG_INTERVAL_S = 5.0
_STOP_TIMEOUT_S = 5.0
_STOPPING = "this node is stopping"

_STATUS = {
    Cause.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    Cause.IDENTITY: grpc.StatusCode.PERMISSION_DENIED,
    Cause.VERSION: grpc.StatusCode.FAILED_PRECONDITION,
    Cause.CLUSTER: grpc.StatusCode.FAILED_PRECONDITION,
    Cause.VOTERS: grpc.StatusCode.FAILED_PRECONDITION,
    Cause.TARGET: grpc.StatusCode.FAILED_PRECONDITION,
}

log = get_logger(__name__)


class GrpcRaftLinks:
    """`RaftLinks` over gRPC. After `stop` has returned no event is called any more.

    `voters` has the address of every voter by node id, this node included. The ids are fixed; an address
    is looked up at each attempt to connect, so it may change. `cluster_id` gives "" as long as it is unknown.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Mapping[int, str],
        listen: str,
        tls: TlsSettings | None = None,
        allow_plaintext: bool = False,
        cluster_id: Callable[[], str] = lambda: "",
        settings: LinkSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        if node_id not in voters:
            raise _invalid(f"node {node_id} is none of the voters {', '.join(map(str, sorted(voters)))}")
        self._node_id = node_id
        self._listen = Address.parse(listen)
        self._settings = settings if settings is not None else LinkSettings()
        self._greeter = Greeter(node_id, voters, cluster_id)
        self._connector = Connector(voters, tls, self._settings, allow_plaintext=allow_plaintext)
        self._refusals = _RefusalLog(clock if clock is not None else SystemClock())
        self._peer_ids = sorted(voter for voter in voters if voter != node_id)
        self._peers: dict[int, _Peer] = {}
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port that is listened on; 0 before `bind`."""
        return self._port

    @property
    def max_frame_bytes(self) -> int:
        """`send` refuses frames that are larger."""
        return self._settings.max_frame_bytes

    def bind(self) -> int:
        """Takes the listener's port, and returns it. `start` does it too; before that, nobody is answered."""
        if self._server is not None:
            return self._port
        self._check_own_certificate()
        tls, allow_plaintext = self._connector.tls, self._connector.allow_plaintext
        credentials = server_credentials(self._listen, tls, allow_plaintext=allow_plaintext)
        # Two threads for each peer, because a stream ends a moment after its successor has begun; the
        # others refuse strangers.
        workers = 2 * len(self._peer_ids) + 4
        pool = ThreadPoolExecutor(workers, thread_name_prefix="raft-link-in")
        server = grpc.server(pool, options=self._settings.server_options, maximum_concurrent_rpcs=8 * workers)
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._accept)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {OPEN: handler}),))
        try:
            if credentials is None:
                self._port = server.add_insecure_port(str(self._listen))
            else:
                self._port = server.add_secure_port(str(self._listen), credentials)
        except RuntimeError:
            pool.shutdown(wait=False)
            raise _invalid(
                f"cannot listen on {self._listen}: the address is in use or not one of this machine"
            ) from None
        self._server, self._pool = server, pool
        return self._port

    def start(self, events: LinkEvents) -> None:
        self.bind()
        for peer_id in self._peer_ids:
            self._connector.open(peer_id).close()  # Settings that can never work are said now.
        self._peers = {
            peer_id: _Peer(peer_id, events, self._greeter, self._connector, self._settings)
            for peer_id in self._peer_ids
        }
        assert self._server is not None
        self._server.start()
        for peer in self._peers.values():
            peer.start()
        log.info("raft_links_started", node_id=self._node_id, address=str(self._listen), port=self._port)

    def send(self, peer_id: int, data: bytes) -> bool:
        limit = self._settings.max_frame_bytes
        if not 0 < len(data) <= limit:
            log.error("raft_frame_unsendable", peer_id=peer_id, size=len(data), limit=limit)
            return False
        peer = self._peers.get(peer_id)
        return peer is not None and peer.pair.send(data)

    def stop(self) -> None:
        for peer in self._peers.values():
            peer.stop()
        if self._server is not None:
            self._server.stop(0).wait(_STOP_TIMEOUT_S)
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        for peer in self._peers.values():
            peer.join(_STOP_TIMEOUT_S)

    def _check_own_certificate(self) -> None:
        tls = self._connector.tls
        if tls is None:
            return
        if not tls.mutual:
            raise _invalid("TLS between controllers is always mutual; it cannot be switched off for them")
        held = load_tls_files(tls).node_id
        if held != self._node_id:
            of_whom = "no node" if held is None else f"node {held}"
            raise _invalid(
                f"{CERT_SETTING}: {tls.cert_file or 'nothing'} is the certificate of {of_whom}, but this is"
                f" node {self._node_id}; it must carry the name {node_name(self._node_id)}"
            )

    def _accept(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """One stream of a caller, on a thread of the pool, from its hello to its end."""
        peer_id = self._identify(context)
        peer = self._peers[peer_id]
        stream = IncomingStream(context)
        reason = "the peer's stream ended"
        try:
            peer.accept(stream)
            yield self._greeter.hello(peer_id)
            for message in requests:
                frames = parse_frames(message, self._settings)
                if not peer.pair.deliver(stream, frames, self._settings.handshake_timeout_ms / 1000):
                    reason = "the link did not come up in both directions"
                    break
        except grpc.RpcError:
            reason = "the peer's stream broke"
        except ValueError as error:
            reason = f"the peer sent {error}"
            log.error("raft_message_invalid", peer_id=peer_id, reason=reason)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        except Exception:
            reason = f"node {self._node_id} failed to take a message; its log has the details"
            log.error("raft_message_failed", peer_id=peer_id, exc_info=True)
            context.abort(grpc.StatusCode.INTERNAL, reason)
        finally:
            peer.pair.detach(stream, reason)

    def _identify(self, context: grpc.ServicerContext) -> int:
        identity = None if self._connector.tls is None else identity_from(cast(Any, context.auth_context()))
        metadata: dict[str, str | bytes] = dict(context.invocation_metadata())
        hello = metadata.get(HELLO_KEY, b"")
        try:
            return self._greeter.check_caller(hello if isinstance(hello, bytes) else b"", identity)
        except RefusalError as refusal:
            self._refusals.add(refusal, context.peer())
            _refuse(context, refusal)


class _Peer:
    """One other voter: the link to it, and the thread that keeps our own stream to it open."""

    def __init__(
        self,
        peer_id: int,
        events: LinkEvents,
        greeter: Greeter,
        connector: Connector,
        settings: LinkSettings,
    ) -> None:
        self._peer_id = peer_id
        self._events = events
        self._greeter = greeter
        self._connector = connector
        self._settings = settings
        self._stopping = threading.Event()
        self._heard = threading.Event()
        """The peer has called since our last attempt began, so another attempt is worth it at once."""
        self._stream: OutgoingStream | None = None
        self._last_problem = ""
        self._thread = threading.Thread(target=self._run, name=f"raft-link-out-{peer_id}", daemon=True)
        on_message = partial(events.on_message, peer_id)
        self.pair = LinkPair(PairEvents(on_up=self._went_up, on_down=self._went_down, on_message=on_message))

    def start(self) -> None:
        self._thread.start()

    def accept(self, stream: IncomingStream) -> None:
        self.pair.attach_incoming(stream)
        self._heard.set()

    def stop(self) -> None:
        self._stopping.set()
        self._heard.set()
        self.pair.close()
        if (stream := self._stream) is not None:
            stream.abort(_STOPPING)

    def join(self, timeout_s: float) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _went_up(self) -> None:
        self._last_problem = ""
        log.info("raft_link_up", peer_id=self._peer_id)
        self._events.on_up(self._peer_id)

    def _went_down(self, reason: str) -> None:
        log.info("raft_link_down", peer_id=self._peer_id, reason=reason)
        self._events.on_down(self._peer_id)

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            self._heard.clear()
            try:
                self._hold_stream()
                failures = 0
            except (StreamEndedError, RefusalError, TailraceError) as problem:
                failures += 1
                self._report(problem)
            except Exception:
                failures += 1
                log.error("raft_link_failed", peer_id=self._peer_id, exc_info=True)
            self._pause(failures)

    def _pause(self, failures: int) -> None:
        """Longer after each failure, and never the same for two nodes, so that they do not go in step."""
        shortest, longest = self._settings.min_retry_ms / 1000, self._settings.max_retry_ms / 1000
        delay = min(longest, shortest * 2 ** min(failures, 10)) * random.uniform(0.75, 1.25)
        if not self._stopping.wait(shortest):
            self._heard.wait(max(0.0, delay - shortest))

    def _hold_stream(self) -> None:
        """Opens our stream and stays until it ends; raises if the peer and we never agreed to link."""
        with self._connector.open(self._peer_id) as channel:
            stream = OutgoingStream(channel, self._greeter.hello(self._peer_id), self._settings)
            self._stream = stream
            ending = "the peer refused"
            try:
                if self._stopping.is_set():
                    stream.abort(_STOPPING)
                self._greeter.check_called(stream.answer(), self._peer_id)
                self.pair.attach_outgoing(stream)
                ending = stream.wait_for_end()
            finally:
                self._stream = None
                self.pair.detach(stream, ending)
                stream.abort(ending)

    def _report(self, problem: Exception) -> None:
        """Says a problem once, and not again at each attempt."""
        reason = str(problem)
        if reason == self._last_problem or self._stopping.is_set():
            return
        self._last_problem = reason
        if isinstance(problem, StreamEndedError) and not problem.refused:
            log.info("raft_peer_unreachable", peer_id=self._peer_id, reason=reason)
        else:
            log.warning("raft_link_refused", peer_id=self._peer_id, reason=reason)


class _RefusalLog:
    """Tells of refused callers, one event for each cause and interval, with how many there were."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[Cause, float] = {}
        self._untold: dict[Cause, int] = {}

    def add(self, refusal: RefusalError, caller: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            last = self._told.get(refusal.cause)
            if last is not None and now - last < _REFUSAL_LOG_INTERVAL_S:
                self._untold[refusal.cause] = self._untold.get(refusal.cause, 0) + 1
                return
            self._told[refusal.cause] = now
            untold = self._untold.pop(refusal.cause, 0)
        log.warning(
            "raft_caller_refused",
            caller=caller,
            cause=refusal.cause.value,
            reason=str(refusal),
            more_before=untold,
        )


def _refuse(context: grpc.ServicerContext, refusal: RefusalError) -> NoReturn:
    context.abort(_STATUS[refusal.cause], str(refusal))
    raise refusal  # `abort` raises; this tells the type checker so, whatever gRPC's types say.


def _invalid(message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_CONFIG, message)
