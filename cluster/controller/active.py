"""The active controller: operations one after the other, answered when the quorum has agreed.

On the event loop. An operation is decided on the *speculative* image, which is the committed one plus all
that was proposed and waits to be committed; so operations need not wait for each other. Nobody is told of
anything that is not committed: also an answer without records waits for the proposals that it may have seen.

If a proposal is not committed, what was decided after it is void, and the guard of the quorum (epoch and base
version) refuses it on every node. The controller then takes no operation until it has seen, by a barrier,
where the log stands, and goes on from the committed image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage, EndpointImage
from tailrace.cluster.common.replay import replay
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.metadata import MetadataFeed
from tailrace.cluster.controller.quorum.outcomes import Committed, Leadership, Outcome, Refused
from tailrace.cluster.runtime.logs import get_logger
from tailrace.v1.metadata_pb2 import MetadataBatch, MetadataRecord

events = get_logger(__name__)

Response = TypeVar("Response")
# What the quorum takes as one entry, with some room.
MAX_BATCH_BYTES = 1_000_000
RECORD_OVERHEAD_BYTES = 8


class Proposer(Protocol):
    """The quorum, as the active controller needs it; callbacks come on any thread."""

    def propose(
        self, epoch: int, base_version: int, payload: bytes, done: Callable[[Outcome], None]
    ) -> None: ...

    def barrier(self, done: Callable[[Outcome], None]) -> None: ...


class ControllerHint(NamedTuple):
    node_id: int
    endpoint: EndpointImage | None


class NotControllerError(TailraceError):
    """Carries who is active, as far as this node knows."""

    def __init__(self, hint: ControllerHint | None) -> None:
        code = ErrorCode.NOT_CONTROLLER if hint is not None else ErrorCode.CONTROLLER_NOT_AVAILABLE
        who = "no controller is active at the moment" if hint is None else f"node {hint.node_id} is active"
        super().__init__(code, f"this node is not the active controller; {who}")
        self.hint = hint

    @property
    def error_metadata(self) -> Mapping[str, str]:
        """What callers over the network get to find the active controller."""
        if self.hint is None:
            return {}
        found = {"controller-id": str(self.hint.node_id)}
        if self.hint.endpoint is not None:
            found["controller-host"] = self.hint.endpoint.host
            found["controller-port"] = str(self.hint.endpoint.port)
        return found


class ActiveController:
    def __init__(
        self, *, node_id: int, feed: MetadataFeed, quorum: Proposer, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._node_id = node_id
        self._feed = feed
        self._quorum = quorum
        self._loop = loop
        self._leadership = Leadership(None, 0, False, 0)
        self._speculative: ClusterImage | None = None
        self._last: asyncio.Future[Outcome] | None = None
        self.on_active: list[Callable[[int], None]] = []
        self.on_inactive: list[Callable[[], None]] = []

    # Leadership.

    @property
    def epoch(self) -> int:
        return self._leadership.epoch

    @property
    def leadership(self) -> Leadership:
        return self._leadership

    @property
    def is_active(self) -> bool:
        """Whether operations are taken."""
        return self._speculative is not None

    @property
    def image(self) -> ClusterImage:
        """What the next operation is decided on."""
        if self._speculative is None:
            raise self.not_controller()
        return self._speculative

    @property
    def committed(self) -> ClusterImage:
        return self._feed.image

    def not_controller(self) -> NotControllerError:
        leader = self._leadership.leader_id
        if leader is None or leader == self._node_id:
            return NotControllerError(None)
        controller = self._feed.image.controllers.get(leader)
        endpoints = () if controller is None else controller.endpoints
        return NotControllerError(ControllerHint(leader, next(iter(endpoints), None)))

    def on_leadership(self, leadership: Leadership) -> None:
        """The feed has published everything up to `leadership.version` before this is called."""
        before, self._leadership = self._leadership, leadership
        if before.active and (not leadership.active or leadership.epoch != before.epoch):
            self._speculative = None
            self._last = None
            events.info("controller_resigned", epoch=before.epoch)
            for call in self.on_inactive:
                call()
        if leadership.active and not (before.active and before.epoch == leadership.epoch):
            self._speculative = self._feed.image
            events.info("controller_active", epoch=leadership.epoch, version=self._feed.image.version)
            for announce in self.on_active:
                announce(leadership.epoch)

    # Operations.

    async def run(
        self, operation: Callable[[ClusterImage], Decision[Response]], *, split: bool = False
    ) -> Response:
        """The operation's answer, once everything that it stands on is committed.

        With `split` its records may become several entries, for what has no limit to its size and is safe to
        be done in part.

        NOT_CONTROLLER or CONTROLLER_NOT_AVAILABLE: nothing happened here. UNKNOWN_OUTCOME: it may have
        happened. Cancelling the caller does not take back what was proposed.
        """
        image = self.image
        decision = operation(image)
        if decision.records:
            await self._commit(decision.records, split)
        elif self._last is not None:
            self._require_committed(await asyncio.shield(self._last))
        return decision.response

    async def _commit(self, records: list[MetadataRecord], split: bool) -> None:
        outcomes = [self._propose(part) for part in _batches(records, split)]
        for outcome in outcomes:
            self._require_committed(await asyncio.shield(outcome))

    def _propose(self, batch: MetadataBatch) -> asyncio.Future[Outcome]:
        image, epoch = self.image, self._leadership.epoch
        self._speculative, _ = replay(image, batch.records, version=image.version + 1, controller_epoch=epoch)
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._last = outcome
        outcome.add_done_callback(lambda ended: self._settled(epoch, ended))
        self._quorum.propose(epoch, image.version, batch.SerializeToString(), self._teller(outcome))
        return outcome

    def _teller(self, outcome: asyncio.Future[Outcome]) -> Callable[[Outcome], None]:
        def tell(result: Outcome) -> None:
            if not outcome.done():
                outcome.set_result(result)

        return lambda result: _call(self._loop, lambda: tell(result))

    def _settled(self, epoch: int, ended: asyncio.Future[Outcome]) -> None:
        if ended is self._last:
            self._last = None
        if isinstance(ended.result(), Committed) or epoch != self._leadership.epoch:
            return
        if self._leadership.active and self._speculative is not None:
            events.warning("proposal_not_committed", epoch=epoch, outcome=ended.result())
            self._speculative = None
            self._last = None
            self._resume(epoch)

    def _resume(self, epoch: int) -> None:
        """Still the leader, but no longer sure what was agreed: find out, then go on."""

        def settled(outcome: Outcome) -> None:
            if self._leadership.epoch != epoch or not self._leadership.active:
                return
            if isinstance(outcome, Committed) and self._feed.image.version >= outcome.version:
                self._speculative = self._feed.image
                events.info("controller_resumed", epoch=epoch, version=self._feed.image.version)
            else:
                self._loop.call_later(0.05, self._resume, epoch)

        self._quorum.barrier(lambda outcome: _call(self._loop, lambda: settled(outcome)))

    def _require_committed(self, outcome: Outcome) -> None:
        if isinstance(outcome, Committed):
            return
        if isinstance(outcome, Refused):
            if self._leadership.active:
                raise TailraceError(ErrorCode.CONTROLLER_NOT_AVAILABLE, outcome.message)
            raise self.not_controller()
        raise TailraceError(ErrorCode.UNKNOWN_OUTCOME, outcome.message)

    async def barrier(self) -> ClusterImage:
        """The committed image, as new as everything that was answered before the call."""
        self.image  # noqa: B018  (raises when this is not the active controller)
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
        self._quorum.barrier(self._teller(outcome))
        self._require_committed(await outcome)
        return self._feed.image


def _batches(records: list[MetadataRecord], split: bool) -> list[MetadataBatch]:
    sizes = [record.ByteSize() + RECORD_OVERHEAD_BYTES for record in records]
    if sum(sizes) <= MAX_BATCH_BYTES:
        return [MetadataBatch(records=records)]
    if not split:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"the request would change {len(records)} things at once ({sum(sizes)} bytes of metadata, at "
            f"most {MAX_BATCH_BYTES} are allowed); ask for less at a time",
        )
    batches, size = [MetadataBatch()], 0
    for record, its_size in zip(records, sizes, strict=True):
        if size + its_size > MAX_BATCH_BYTES and size:
            batches.append(MetadataBatch())
            size = 0
        batches[-1].records.append(record)
        size += its_size
    return batches


def _call(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
