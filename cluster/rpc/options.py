"""The settings of gRPC itself that servers and channels are made with, each with its reason.

gRPC's own defaults are made for large fleets behind balancers: a dead peer is noticed after hours, a lost
connection is tried again after up to two minutes, two servers may share a port without knowing of each other,
and a connection that never says anything is kept for two minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

Options = list[tuple[str, int | str]]

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """A peer silent for `time_ms` is asked for a sign of life, and given up `timeout_ms` later."""

    time_ms: int = 2_000
    timeout_ms: int = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    max_concurrent_streams: int = 1_000
    """Calls under way on one connection; a caller's further ones wait on its side."""
    max_connections: int = 10_000
    """Further connections are closed at once, so that strangers cannot use up the files of the process."""
    handshake_timeout_ms: int = 5_000
    """Within it a connection must have finished TLS and the first exchange of HTTP/2."""
    max_connection_idle_ms: int = 10 * 60_000
    """A connection without a call is closed after this; its owner opens another when it needs one."""
    keepalive: Keepalive = Keepalive()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    max_message_bytes: int = 4 * MIB
    connect_timeout_ms: int = 2_000
    min_backoff_ms: int = 100
    max_backoff_ms: int = 1_000
    """Between attempts to connect; gRPC varies it a little by chance."""
    keepalive: Keepalive = Keepalive()


def server_options(limits: ServerLimits, *, max_message_bytes: int) -> Options:
    return [
        *_message_options(max_message_bytes),
        *_keepalive_options(limits.keepalive),
        # Callers may ask for signs of life twice as often as we do, before they are sent away for it.
        ("grpc.http2.min_ping_interval_without_data_ms", limits.keepalive.time_ms // 2),
        ("grpc.max_concurrent_streams", limits.max_concurrent_streams),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", limits.handshake_timeout_ms),
        ("grpc.http2.settings_timeout", limits.handshake_timeout_ms),
        ("grpc.max_connection_idle_ms", limits.max_connection_idle_ms),
        # A second server on the same port is a mistake: it must fail to start, not take half the calls.
        ("grpc.so_reuseport", 0),
    ]


def channel_options(limits: ChannelLimits, *, server_name: str | None = None) -> Options:
    """`server_name` is whom the server's certificate must be for, if not for the host of the address."""
    options: Options = [
        *_message_options(limits.max_message_bytes),
        *_keepalive_options(limits.keepalive),
        ("grpc.initial_reconnect_backoff_ms", limits.min_backoff_ms),
        ("grpc.min_reconnect_backoff_ms", limits.connect_timeout_ms),
        ("grpc.max_reconnect_backoff_ms", limits.max_backoff_ms),
        # Channels of one process would share connections otherwise, and with them limits and failures.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
    ]
    if server_name is not None:
        options.append(("grpc.ssl_target_name_override", server_name))
    return options


def _message_options(max_message_bytes: int) -> Options:
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
    ]


def _keepalive_options(keepalive: Keepalive) -> Options:
    return [
        ("grpc.keepalive_time_ms", keepalive.time_ms),
        ("grpc.keepalive_timeout_ms", keepalive.timeout_ms),
        # gRPC 1.85 waits for the answer to a ping as long as this says (60 s), whatever keepalive_timeout is.
        ("grpc.http2.ping_timeout_ms", keepalive.timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
