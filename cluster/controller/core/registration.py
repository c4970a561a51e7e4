"""Brokers come and go: registering a process as a broker, and taking a broker out for good.

A registration belongs to one process (its incarnation) and has an epoch that is larger than every one before,
which fences whatever an earlier process of the same id still says. It starts fenced; heartbeats open it
(brokers.py).

The record of the broker comes last, after those of its partitions. With very many of them these may become
several entries, and if only the first of those are agreed on, the broker is not registered (or is still), and
asking again does all of it. The other way round, a new process could count as registered before it was taken
out of an ISR for what it lost.
"""

from __future__ import annotations

from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import BrokerImage, ClusterImage
from tailrace.cluster.common.image_records import broker_record, feature_records
from tailrace.cluster.controller.core import election
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.draft import Draft
from tailrace.cluster.controller.core.features import check_covers
from tailrace.cluster.controller.core.node_checks import (
    check_endpoints,
    check_node_id,
    check_text,
    checked_features,
    checked_id,
    checked_log_dirs,
)
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb


def register_broker(
    image: ClusterImage, request: wire.RegisterBrokerRequest, *, session_alive: bool
) -> Decision[wire.RegisterBrokerResponse]:
    """`session_alive` tells of the broker registered under this id, fenced or not (`BrokerSessions.alive`).

    Another process of the same id is refused while that session goes on: most likely two nodes were given one
    id, and taking the id from each other in turns would hide it. When a process was killed and is back at
    once, its old session ends as soon as a probe finds nobody, and the next attempt succeeds.
    """
    try:
        before = _check(image, request, session_alive)
    except TailraceError as failure:
        return Decision(wire.RegisterBrokerResponse(error=error_from(failure), cluster_id=image.cluster_id))
    record = _record_of(request)
    draft = Draft(image)
    if before is not None and before.incarnation.bytes == request.incarnation:
        _renew(draft, record, before)
    else:
        _begin(draft, record, before, request)
    version = image.version + 1 if draft.records else image.version
    response = wire.RegisterBrokerResponse(
        broker_epoch=record.broker_epoch, cluster_id=image.cluster_id, metadata_version=version
    )
    return Decision(response, draft.records)


def unregister_broker(
    image: ClusterImage, request: admin.UnregisterBrokerRequest
) -> Decision[admin.UnregisterBrokerResponse]:
    """Forget a broker that is gone for good; its replicas lose their place in ISRs and as leaders.

    As in Kafka it is not asked whether the broker is alive. Nothing is lost if it is: others take over what
    it led, its heartbeats are answered with BROKER_NOT_REGISTERED, and it comes back only by registering
    again. Refusing would only make an operator wait who knows that the machine is gone before its session is
    over. Partitions keep it among their replicas until they are reassigned.
    """
    try:
        done = already_done(image, request.request_id, admin.UnregisterBrokerResponse)
        if done is not None:
            return Decision(done)
        broker = image.brokers.get(request.broker_id)
        if broker is None:
            raise TailraceError(
                ErrorCode.BROKER_NOT_REGISTERED,
                f"no broker {request.broker_id} is registered; registered are "
                f"{', '.join(map(str, sorted(image.brokers))) or 'none'}",
            )
    except TailraceError as failure:
        return Decision(admin.UnregisterBrokerResponse(error=error_from(failure)))
    response = admin.UnregisterBrokerResponse()
    draft = Draft(image)
    gone = pb.BrokerUnregistered(broker_id=broker.broker_id, broker_epoch=broker.epoch)
    draft.add(election.partitions_without(draft.image, broker.broker_id))
    draft.add([pb.MetadataRecord(broker_unregistered=gone)])
    if request.request_id:
        draft.add([done_record(request.request_id, response)])
    return Decision(response, draft.records)


def _check(
    image: ClusterImage, request: wire.RegisterBrokerRequest, session_alive: bool
) -> BrokerImage | None:
    """The registration that there is under this id, once nothing speaks against the new one."""
    if not image.cluster_id:
        raise TailraceError(
            ErrorCode.CONTROLLER_NOT_AVAILABLE, "the cluster is being created; try again in a moment"
        )
    if request.cluster_id not in ("", image.cluster_id):
        raise TailraceError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"broker {request.broker_id} holds data of cluster {request.cluster_id}, and this is cluster "
            f"{image.cluster_id}: check controller.quorum.voters, or give it empty log.dirs",
        )
    check_node_id(request.broker_id)
    incarnation = checked_id(request.incarnation, "the incarnation")
    check_endpoints(request.endpoints)
    check_text(request.rack, "broker.rack")
    check_text(request.host, "the host")
    owners = {
        one.directory_id: broker.broker_id for broker in image.brokers.values() for one in broker.log_dirs
    }
    checked_log_dirs(request.log_dirs, owners, request.broker_id)
    check_covers(image, f"broker {request.broker_id}", checked_features(request.features))
    before = image.brokers.get(request.broker_id)
    if before is not None and before.incarnation != incarnation and session_alive:
        where = ", ".join(f"{one.host}:{one.port}" for one in before.endpoints)
        raise TailraceError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {request.broker_id} is alive at {where}: give this node another node.id; if it is the "
            "same node, started again, it can register once the session of its last process is over",
        )
    return before


def _renew(draft: Draft, record: pb.BrokerRegistered, before: BrokerImage) -> None:
    """The same process asks again, perhaps because the answer got lost: it keeps its epoch and its state."""
    record.broker_epoch = before.epoch
    record.fenced = before.fenced
    record.shutting_down = before.shutting_down
    known = {one.directory_id.bytes: one.online for one in before.log_dirs}
    for one in record.log_dirs:
        # That a directory fails is told by heartbeats, and it comes back with a new process only.
        one.online = known.get(one.id, one.online)
    if record != broker_record(before):
        draft.add([pb.MetadataRecord(broker_registered=record)])


def _begin(
    draft: Draft, record: pb.BrokerRegistered, before: BrokerImage | None, request: wire.RegisterBrokerRequest
) -> None:
    record.broker_epoch = draft.image.next_broker_epoch
    record.fenced = True
    missing = _missing_dirs(request, before)
    clean = before is not None and not missing and _kept_all(request, before)
    draft.add(election.partitions_of_new_incarnation(draft.image, record.broker_id, clean=clean))
    if missing:
        draft.add(election.partitions_of_offline_dirs(draft.image, record.broker_id, missing))
    draft.add([pb.MetadataRecord(broker_registered=record)])


def _kept_all(request: wire.RegisterBrokerRequest, before: BrokerImage) -> bool:
    """Whether the directories hold whatever the last process acknowledged.

    Synced data survives any stop. What was left to the operating system survives only a clean stop of the
    very last process, of which the new one must know the epoch. A broker that nothing is known of (`before`
    is None) counts as one that kept nothing: a new machine may have been given the id of one that was
    unregistered.
    """
    stopped_cleanly = (
        request.HasField("clean_shutdown_epoch") and request.clean_shutdown_epoch == before.epoch
    )
    return stopped_cleanly or not request.flushes_to_os


def _missing_dirs(request: wire.RegisterBrokerRequest, before: BrokerImage | None) -> set[UUID]:
    """Directories that the broker had or has, and cannot use: whatever was in them is not there."""
    every = {UUID(bytes=one.id) for one in request.log_dirs}
    if before is not None:
        every.update(one.directory_id for one in before.log_dirs)
    return every - {UUID(bytes=one.id) for one in request.log_dirs if one.online}


def _record_of(request: wire.RegisterBrokerRequest) -> pb.BrokerRegistered:
    return pb.BrokerRegistered(
        broker_id=request.broker_id,
        incarnation=request.incarnation,
        endpoints=request.endpoints,
        rack=request.rack,
        host=request.host,
        log_dirs=request.log_dirs,
        features=feature_records(checked_features(request.features)),
    )
