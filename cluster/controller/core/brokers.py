"""The life of a registered broker: heartbeats open and close it, and a broker that is silent is fenced.

    registered ──> fenced ──caught up──> active ──wants to stop──> shutting down ──gone──> fenced
                       ^                   │
                       └───────────────────┘ its wish, silence, no log directory left

A fenced broker leads nothing, joins no ISR, and is not shown to clients. One that shuts down leads nothing
any more, but goes on serving followers and clients that have not noticed. Both are left by the next
registration; being fenced also by a heartbeat of the same process, once it has replayed the metadata of its
registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import BrokerImage, ClusterImage
from tailrace.cluster.controller.core import election
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.draft import Draft
from tailrace.cluster.controller.core.sessions import SessionTimes
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb


def current_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """The broker, if the caller's registration is the current one; otherwise raises what the caller is
    told."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise TailraceError(
            ErrorCode.BROKER_NOT_REGISTERED, f"no broker {broker_id} is registered; register it first"
        )
    if broker.epoch != broker_epoch:
        raise TailraceError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"broker {broker_id} is registered with epoch {broker.epoch}, and this is of {broker_epoch}: "
            "another process has taken its id since, or it was started again",
        )
    return broker


def heartbeat(
    image: ClusterImage,
    request: wire.HeartbeatRequest,
    *,
    registered_version: int,
    times: SessionTimes,
) -> Decision[wire.HeartbeatResponse]:
    """`registered_version` is what the broker must have replayed to be opened
    (`BrokerSessions.registered_version`): then it knows itself, and what it has to follow and serve.

    The answer says that it may stop together with the records that take leadership from it: when it gets the
    answer, they are agreed on, and it leads nothing.
    """
    try:
        broker = current_broker(image, request.broker_id, request.broker_epoch)
    except TailraceError as failure:
        return Decision(
            wire.HeartbeatResponse(error=error_from(failure), controller_epoch=image.controller_epoch)
        )
    draft = Draft(image)
    _take_dirs_offline(draft, broker, request.offline_log_dirs)
    broker = _change_state(draft, request, registered_version)
    response = wire.HeartbeatResponse(
        fenced=broker.fenced,
        shutting_down=broker.shutting_down,
        may_stop=broker.shutting_down or request.wants_shutdown,
        controller_epoch=image.controller_epoch,
        heartbeat_interval_ms=times.heartbeat_interval_ms,
        session_timeout_ms=times.session_timeout_ms,
    )
    return Decision(response, draft.records)


def fence_brokers(image: ClusterImage, epochs: Mapping[int, int]) -> Decision[None]:
    """Brokers whose sessions are over, with the epochs of those sessions; one that has registered anew since
    is left alone. All are fenced before leaders are chosen, so that none is chosen among them."""
    draft = Draft(image)
    gone = [
        broker
        for broker_id, epoch in sorted(epochs.items())
        if (broker := image.brokers.get(broker_id)) is not None
        and broker.epoch == epoch
        and not broker.fenced
    ]
    draft.add(_changed(broker, fenced=True) for broker in gone)
    for broker in gone:
        draft.add(election.partitions_without(draft.image, broker.broker_id))
    return Decision(None, draft.records)


def _take_dirs_offline(draft: Draft, broker: BrokerImage, told: Iterable[bytes]) -> None:
    """Those that are told for the first time; a directory that the registration does not name is nobody's."""
    offline = set(told)
    failed = [one.directory_id for one in broker.log_dirs if one.online and one.directory_id.bytes in offline]
    if not failed:
        return
    draft.add([_changed(broker, failed_dirs=failed)])
    draft.add(election.partitions_of_offline_dirs(draft.image, broker.broker_id, failed))


def _change_state(draft: Draft, request: wire.HeartbeatRequest, registered_version: int) -> BrokerImage:
    """The broker as it is then."""
    broker = draft.image.brokers[request.broker_id]
    works = any(one.online for one in broker.log_dirs)
    if broker.fenced:
        caught_up = request.metadata_version >= registered_version
        closed = request.wants_fence or request.wants_shutdown or broker.shutting_down
        if caught_up and works and not closed:
            broker = _become(draft, broker, fenced=False)
            draft.add(election.partitions_with(draft.image, broker.broker_id))
        return broker
    if request.wants_fence or not works:
        broker = _become(draft, broker, fenced=True)
    elif request.wants_shutdown and not broker.shutting_down:
        broker = _become(draft, broker, shutting_down=True)
    if not broker.active:
        draft.add(election.partitions_without(draft.image, broker.broker_id))
    return broker


def _become(
    draft: Draft, broker: BrokerImage, *, fenced: bool | None = None, shutting_down: bool | None = None
) -> BrokerImage:
    draft.add([_changed(broker, fenced=fenced, shutting_down=shutting_down)])
    return draft.image.brokers[broker.broker_id]


def _changed(
    broker: BrokerImage,
    *,
    fenced: bool | None = None,
    shutting_down: bool | None = None,
    failed_dirs: Iterable[UUID] = (),
) -> pb.MetadataRecord:
    return pb.MetadataRecord(
        broker_changed=pb.BrokerChanged(
            broker_id=broker.broker_id,
            broker_epoch=broker.epoch,
            fenced=fenced,
            shutting_down=shutting_down,
            log_dirs=[pb.LogDir(id=one.bytes, online=False) for one in failed_dirs],
        )
    )
