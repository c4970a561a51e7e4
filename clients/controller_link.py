"""The way to the active controller, for one client: connections, who is active, and attempts.

On one event loop. A call is tried at whoever was active last, then at those that a controller names as
active, then at every address that is known, in rounds with growing pauses, until `request.timeout.ms` is
over. Only errors that are worth it are tried again (core/search.py); everything else is the caller's.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from tailrace.clients.admin_config import AdminConfig
from tailrace.clients.core.search import Search, Then, leaves_doubt, pause_ms, then_after
from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.v1 import admin_pb2 as admin

if TYPE_CHECKING:
    from tailrace.cluster.rpc.tls import TlsSettings
    from tailrace.cluster.rpc.transport import RpcChannel, Transport

LISTENER = "CONTROLLER"
# One controller that does not answer takes this share of a call's time, so that others are asked too.
_SHARE = 3
_JITTER = 0.2
# A transport keeps time by itself; gRPC in a process that was forked at a wrong moment does not.
_GRACE_SECONDS = 1.0


class ControllerLink:
    """Without a transport gRPC is used, which is imported for the first call and not before."""

    def __init__(self, config: AdminConfig, transport: Transport | None = None) -> None:
        self._config = config
        self._transport = transport
        self._channels: dict[Address, RpcChannel] = {}
        self._preferred = config.addresses[0]
        self._closed = False

    async def call(self, method: str, request: Any, *, changes: bool = False) -> Any:
        """The answer of the first controller that gives one.

        Raises REQUEST_TIMED_OUT when none did in time; for a request that `changes` something, the message
        says whether it may have been done.
        """
        loop = asyncio.get_running_loop()
        total = self._config.request_timeout_ms / 1000
        deadline = loop.time() + total
        search = Search((self._preferred, *self._config.addresses))
        pauses, in_doubt = 0, False
        while True:
            left = deadline - loop.time()
            if left <= 0:
                raise self._timed_out(method, search, in_doubt and changes)
            try:
                answer = await self._ask(search.current, method, request, min(left, total / _SHARE))
            except TailraceError as error:
                if self._closed or then_after(error.code) is Then.GIVE_UP:
                    raise
                in_doubt = in_doubt or leaves_doubt(error.code)
                if search.failed(error):
                    continue
                pause = pause_ms(pauses, self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
                pauses += 1
                await asyncio.sleep(min(_varied(pause / 1000), max(0.0, deadline - loop.time())))
            else:
                self._preferred = search.current
                return answer

    def prefer_active(self, cluster: admin.DescribeClusterResponse) -> bool:
        """Turns to the controller that is active by this description; False if that changes nothing."""
        active = active_address(cluster)
        if active is None or active == self._preferred:
            return False
        self._preferred = active
        return True

    async def close(self) -> None:
        self._closed = True
        await self.rest()

    async def rest(self) -> None:
        """Gives up connections, with whatever is under way on them; the next call makes new ones."""
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(one.close() for one in channels.values()))

    async def _ask(self, address: Address, method: str, request: Any, timeout_s: float) -> Any:
        from tailrace.cluster.rpc.transport import call_to  # noqa: PLC0415  (it imports gRPC)

        if self._closed:
            raise TailraceError(ErrorCode.CLIENT_CLOSED, "the client is closed; make a new one")
        if address not in self._channels:
            self._channels[address] = self._open(address)
        call = call_to("Admin", method, type(request), getattr(admin, f"{method}Response"))
        try:
            async with asyncio.timeout(timeout_s + _GRACE_SECONDS):
                return await self._channels[address].unary(call, request, timeout_s)
        except TimeoutError:
            raise TailraceError(
                ErrorCode.REQUEST_TIMED_OUT, "the transport itself does not work in this process"
            ) from None

    def _open(self, address: Address) -> RpcChannel:
        config = self._config
        try:
            return _transport(self._transport).channel(
                address, tls=_tls_settings(config), allow_plaintext=config.allow_plaintext
            )
        except TailraceError as error:
            if address in config.addresses:
                raise
            # What a controller calls its address need not be one that this client may use; others may do.
            raise TailraceError(ErrorCode.CONTROLLER_NOT_AVAILABLE, str(error.args[0])) from None

    def _timed_out(self, method: str, search: Search, in_doubt: bool) -> TailraceError:
        told = [f"{address}: {error}" for address, error in search.failures.items()]
        outcome = " Whether it was done is not known: look before you repeat it." if in_doubt else ""
        heading = (
            f"no controller carried out {method} within {self._config.request_timeout_ms} ms "
            f"(request.timeout.ms).{outcome} What came of asking:"
        )
        return TailraceError(ErrorCode.REQUEST_TIMED_OUT, "\n  ".join([heading, *told]))


def _transport(given: Transport | None) -> Transport:
    if given is not None:
        return given
    from tailrace.cluster.rpc.grpc_transport import GrpcTransport  # noqa: PLC0415  (as above)

    return GrpcTransport()


def _tls_settings(config: AdminConfig) -> TlsSettings | None:
    from tailrace.cluster.rpc.tls import TlsSettings  # noqa: PLC0415  (as above)

    if config.tls_ca_file is None and config.tls_cert_file is None:
        return None
    return TlsSettings(
        cert_file=config.tls_cert_file or "",
        key_file=config.tls_key_file or "",
        ca_file=config.tls_ca_file or "",
    )


def active_address(cluster: admin.DescribeClusterResponse) -> Address | None:
    """Where administrators reach the active controller, as far as the description says."""
    for controller in cluster.controllers:
        if controller.node_id == cluster.controller_id:
            ours = [one for one in controller.endpoints if one.listener == LISTENER]
            return next((Address(one.host, one.port) for one in (*ours, *controller.endpoints)), None)
    return None


def _varied(seconds: float) -> float:
    """Clients that lost one controller together do not come back together."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)
