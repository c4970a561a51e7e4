"""What a controller does by itself: it creates the cluster, registers itself, and moves leaders back.

On the event loop. The first and the last are the active controller's; registering is every controller's,
which asks the active one, wherever that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.active import ActiveController
from tailrace.cluster.controller.core.cluster import create_cluster
from tailrace.cluster.controller.core.configs import node_setting
from tailrace.cluster.controller.core.controllers import controller_record
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.rebalance import rebalance_leaders
from tailrace.cluster.controller.metadata import MetadataFeed
from tailrace.cluster.runtime.logs import get_logger
from tailrace.v1.metadata_pb2 import ControllerRegistered

events = get_logger(__name__)

RETRY_SECONDS = 0.5
MOST_LEADERS_A_ROUND = 1_000

# Brings the registration to the active controller; raises TailraceError when that did not work.
SendRegistration = Callable[[ControllerRegistered], Awaitable[None]]


class ControllerDuties:
    def __init__(
        self,
        *,
        active: ActiveController,
        feed: MetadataFeed,
        static: Mapping[str, str],
        registration: ControllerRegistered,
        send_registration: SendRegistration,
        new_cluster_id: Callable[[], str],
    ) -> None:
        self._active = active
        self._feed = feed
        self._static = static
        self._registration = registration
        self._send_registration = send_registration
        self._new_cluster_id = new_cluster_id
        self._active_task: asyncio.Task[None] | None = None
        active.on_active.append(self._begin)
        active.on_inactive.append(self._end)

    def _begin(self, epoch: int) -> None:
        self._active_task = asyncio.get_running_loop().create_task(self._lead(epoch))

    def _end(self) -> None:
        if self._active_task is not None:
            self._active_task.cancel()
            self._active_task = None

    async def close(self) -> None:
        task = self._active_task
        self._end()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)

    async def _lead(self, epoch: int) -> None:
        cluster_id = self._new_cluster_id()
        await self._persist(epoch, lambda image: create_cluster(image, cluster_id=cluster_id))
        while True:
            await asyncio.sleep(self._number("leader.imbalance.check.interval.seconds"))
            if node_setting(self._feed.image, "auto.leader.rebalance.enable", self._static):
                await self._rebalance(epoch)

    def _number(self, key: str) -> int:
        value = node_setting(self._feed.image, key, self._static)
        assert isinstance(value, int)
        return value

    async def _rebalance(self, epoch: int) -> None:
        more = True

        def one_round(image: ClusterImage) -> Decision[None]:
            nonlocal more
            found = rebalance_leaders(
                image,
                imbalance_per_broker_percentage=self._number("leader.imbalance.per.broker.percentage"),
                most_per_round=MOST_LEADERS_A_ROUND,
            )
            more = found.more
            if found.records:
                events.info("leaders_rebalanced", partitions=len(found.records))
            return Decision(None, found.records)

        while more and self._leads(epoch):
            await self._persist(epoch, one_round)

    def _leads(self, epoch: int) -> bool:
        return self._active.leadership.active and self._active.epoch == epoch

    async def _persist(self, epoch: int, operation: Callable[[ClusterImage], Decision[None]]) -> None:
        while self._leads(epoch):
            try:
                await self._active.run(operation, split=True)
                return
            except TailraceError as error:
                events.warning("controller_duty_waits", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)

    async def keep_registered(self) -> None:
        """For ever: whenever the metadata does not show this process as it is, tell the active controller."""
        while True:
            while not self._is_registered():
                try:
                    await self._send_registration(self._registration)
                except TailraceError as error:
                    events.debug("controller_not_registered_yet", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            await self._feed.wait_for(self._feed.image.version + 1)

    def _is_registered(self) -> bool:
        known = self._feed.image.controllers.get(self._registration.node_id)
        return known is not None and controller_record(known) == self._registration
