"""Keeps the brokers: registrations, heartbeats, and fencing of those that are gone.

On the event loop, at work while this controller is active. Decisions come from `core.brokers`,
`core.registration` and `core.sessions`; this is their clock, their connections and their probes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.image import BrokerImage, ClusterImage
from tailrace.cluster.controller.active import ActiveController
from tailrace.cluster.controller.core import brokers, registration
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.repair import finish_elections
from tailrace.cluster.controller.core.sessions import BrokerSessions, Probe, SessionOver, SessionTimes
from tailrace.cluster.runtime.clock import Clock
from tailrace.cluster.runtime.logs import get_logger
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire

events = get_logger(__name__)

# Whether the process of this registration is there; False only when that is sure.
AskBroker = Callable[[BrokerImage], Awaitable[bool]]
RETRY_SECONDS = 0.2


class BrokerKeeper:
    def __init__(
        self, *, active: ActiveController, clock: Clock, times: SessionTimes, ask_broker: AskBroker
    ) -> None:
        self._active = active
        self._clock = clock
        self._times = times
        self._ask_broker = ask_broker
        self._sessions: BrokerSessions | None = None
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.Task[None] | None = None
        active.on_active.append(self._begin)
        active.on_inactive.append(self._end)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _begin(self, epoch: int) -> None:
        self._sessions = BrokerSessions(self._active.image, times=self._times, now_ms=self._now_ms())
        self._timer = asyncio.get_running_loop().create_task(self._watch(self._sessions, epoch))

    def _end(self) -> None:
        self._sessions = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        self._end()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Calls of brokers.

    async def register(self, request: wire.RegisterBrokerRequest) -> wire.RegisterBrokerResponse:
        sessions = self._required()
        alive = sessions.alive(request.broker_id, now_ms=self._now_ms())
        before = self._active.image.brokers.get(request.broker_id)
        if alive and before is not None and before.incarnation.bytes != request.incarnation:
            # Most likely the same broker, started again faster than we noticed that it was gone.
            await self._probe(sessions, sessions.connection_lost(request.broker_id, now_ms=self._now_ms()))
            alive = sessions.alive(request.broker_id, now_ms=self._now_ms())
        response = await self._active.run(
            lambda image: registration.register_broker(image, request, session_alive=alive), split=True
        )
        if not response.HasField("error") and self._sessions is sessions:
            response.metadata_version = self._active.committed.version
            sessions.registered(
                request.broker_id, response.broker_epoch, response.metadata_version, now_ms=self._now_ms()
            )
            self._changed.set()
        return response

    async def unregister(self, request: admin.UnregisterBrokerRequest) -> admin.UnregisterBrokerResponse:
        response = await self._active.run(
            lambda image: registration.unregister_broker(image, request), split=True
        )
        if self._sessions is not None and not response.HasField("error"):
            self._sessions.unregistered(request.broker_id)
        return response

    async def heartbeats(
        self, requests: AsyncIterator[wire.HeartbeatRequest]
    ) -> AsyncIterator[wire.HeartbeatResponse]:
        """One broker's stream. Its end, however it comes, is looked into at once."""
        last: wire.HeartbeatRequest | None = None
        try:
            async for request in requests:
                last = request
                yield await self._heartbeat(request)
        finally:
            if last is not None:
                self._stream_ended(last)

    async def _heartbeat(self, request: wire.HeartbeatRequest) -> wire.HeartbeatResponse:
        sessions = self._required()
        registered = self._active.image.brokers.get(request.broker_id)
        if registered is not None and registered.epoch == request.broker_epoch:
            sessions.touched(request.broker_id, request.broker_epoch, now_ms=self._now_ms())
            self._changed.set()
        version = sessions.registered_version(request.broker_id)
        return await self._active.run(
            lambda image: brokers.heartbeat(image, request, registered_version=version, times=self._times),
            split=True,
        )

    def _stream_ended(self, last: wire.HeartbeatRequest) -> None:
        sessions = self._sessions
        if sessions is None:
            return
        probe = sessions.connection_lost(
            last.broker_id, now_ms=self._now_ms(), broker_epoch=last.broker_epoch
        )
        if probe is not None:
            self._spawn(self._probe(sessions, probe))

    # Those that are gone.

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _probe(self, sessions: BrokerSessions, probe: Probe | None) -> None:
        if probe is None:
            return
        broker = self._active.image.brokers.get(probe.broker_id)
        if broker is None or broker.epoch != probe.broker_epoch:
            return
        if await self._ask_broker(broker):
            sessions.probe_answered(probe)
            return
        over = sessions.probe_failed(probe)
        if over is not None and self._sessions is sessions:
            await self._fence([over])

    async def _watch(self, sessions: BrokerSessions, epoch: int) -> None:
        await self._persist(finish_elections)
        while self._sessions is sessions and self._active.epoch == epoch:
            over = sessions.due(now_ms=self._now_ms())
            if over:
                await self._fence(over)
            wake_at = sessions.wake_at_ms()
            self._changed.clear()
            waiting = None if wake_at is None else max(0.0, (wake_at - self._now_ms()) / 1000)
            try:
                async with asyncio.timeout(waiting):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _fence(self, over: list[SessionOver]) -> None:
        """Until it is done, or somebody else is the active controller, who then counts anew."""
        epochs = {one.broker_id: one.broker_epoch for one in over}
        for one in over:
            events.warning("broker_lost", broker_id=one.broker_id, reason=one.reason)
        await self._persist(lambda image: brokers.fence_brokers(image, epochs))

    async def _persist(self, operation: Callable[[ClusterImage], Decision[None]]) -> None:
        epoch = self._active.epoch
        while self._active.leadership.active and self._active.epoch == epoch:
            try:
                await self._active.run(operation, split=True)
                return
            except TailraceError as error:
                events.warning("fencing_not_done_yet", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    def _required(self) -> BrokerSessions:
        if self._sessions is None:
            raise self._active.not_controller()
        return self._sessions
