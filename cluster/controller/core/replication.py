"""AlterPartitions: leaders report who is in sync.

A leader proposes the whole new ISR, as a compare-and-set on the partition epoch: whatever it did not know of
when it asked (a broker fenced, a reassignment begun) refuses the proposal, and the answer carries the state
as it is. So at most one of several proposals from one state succeeds. A proposal that completes a
reassignment may move the lead to another broker; the leader learns it from the state that it is answered
with.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.controller.core.brokers import current_broker
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.partition_change import UNKNOWN_DIRECTORY, Wanted
from tailrace.cluster.controller.core.partition_edits import PartitionEdits
from tailrace.v1 import controller_pb2 as wire

# In place of a broker epoch that a leader has not heard of yet.
UNKNOWN_BROKER_EPOCH = -1

_Proposal = wire.AlterPartitionsRequest.Partition


def alter_partitions(
    image: ClusterImage, request: wire.AlterPartitionsRequest
) -> Decision[wire.AlterPartitionsResponse]:
    try:
        current_broker(image, request.broker_id, request.broker_epoch)
    except TailraceError as failure:
        return Decision(wire.AlterPartitionsResponse(error=error_from(failure)))
    edits = PartitionEdits(image)
    response = wire.AlterPartitionsResponse()
    for proposal in request.partitions:
        outcome = response.partitions.add()
        try:
            topic = _topic(image, proposal)
        except TailraceError as failure:
            outcome.error.CopyFrom(error_from(failure))
            continue
        try:
            _alter(edits, topic, proposal, request.broker_id)
        except TailraceError as failure:
            outcome.error.CopyFrom(error_from(failure))
        state = edits.partition(topic, proposal.partition)
        outcome.state.CopyFrom(partition_record(topic.topic_id, proposal.partition, state))
    return Decision(response, edits.records())


def _topic(image: ClusterImage, proposal: _Proposal) -> TopicImage:
    """The topic that has the partition."""
    if len(proposal.topic_id) != 16:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST, f"a topic id has 16 bytes, and this one has {len(proposal.topic_id)}"
        )
    topic_id = UUID(bytes=proposal.topic_id)
    topic = image.topics.get(topic_id)
    if topic is None:
        raise TailraceError(
            ErrorCode.UNKNOWN_TOPIC_ID,
            f"there is no topic {topic_id}; it may have been deleted since",
        )
    if not 0 <= proposal.partition < len(topic.partitions):
        raise TailraceError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has no partition {proposal.partition}",
        )
    return topic


def _alter(edits: PartitionEdits, topic: TopicImage, proposal: _Proposal, broker_id: int) -> None:
    now = edits.partition(topic, proposal.partition)
    _check_epochs(now, proposal, broker_id)
    isr = _checked_isr(now, proposal)
    # Until the leader has settled what its log is, nobody can be in sync with it.
    if now.recovering and not proposal.recovered and len(isr) > 1:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} was elected without everything that was committed; it has to say that it "
            "has recovered before others can be in sync with it",
        )
    problems = list(_ineligible(edits, now, proposal))
    if problems:
        raise TailraceError(ErrorCode.INELIGIBLE_REPLICA, "; ".join(problems))
    edits.edit(
        topic,
        proposal.partition,
        Wanted(isr=isr, recovered=proposal.recovered, directories=_directories_in_use(edits, now, isr)),
    )


def _check_epochs(now: PartitionImage, proposal: _Proposal, broker_id: int) -> None:
    if proposal.leader_epoch < now.leader_epoch:
        raise TailraceError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {proposal.leader_epoch} is over; it is {now.leader_epoch}, led by {_who(now)}",
        )
    if proposal.leader_epoch > now.leader_epoch:
        raise TailraceError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"leader epoch {proposal.leader_epoch} is not known here, where it is {now.leader_epoch}; "
            "try again, at the active controller",
        )
    if broker_id != now.leader:
        raise TailraceError(
            ErrorCode.NOT_LEADER,
            f"only the leader says who is in sync; in epoch {now.leader_epoch} that is {_who(now)}, not "
            f"broker {broker_id}",
        )
    if proposal.partition_epoch != now.partition_epoch:
        raise TailraceError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the proposal is based on partition epoch {proposal.partition_epoch}, and it is "
            f"{now.partition_epoch}; propose again from the state as it is",
        )


def _checked_isr(now: PartitionImage, proposal: _Proposal) -> tuple[int, ...]:
    isr = tuple(proposal.isr)
    strangers = [one for one in isr if one not in now.replicas]
    if len(set(isr)) != len(isr):
        problem = f"the ISR {_shown(isr)} names a broker twice"
    elif now.leader not in isr:
        problem = f"the ISR {_shown(isr)} is without the leader, broker {now.leader}"
    elif strangers:
        problem = f"{_shown(strangers)} cannot be in sync; the replicas are {_shown(now.replicas)}"
    elif len(proposal.isr_broker_epochs) != len(isr):
        problem = f"the ISR has {len(isr)} members and {len(proposal.isr_broker_epochs)} broker epochs"
    else:
        return now.isr if set(isr) == set(now.isr) else isr
    raise TailraceError(ErrorCode.INVALID_REQUEST, problem)


def _ineligible(edits: PartitionEdits, now: PartitionImage, proposal: _Proposal) -> Iterator[str]:
    """Why members of the proposed ISR cannot be in it (KIP-903).

    The epoch is that of the process whose fetches the leader has seen. One that has been started again since
    may have less than they said, so a new member's must be known and current. A leader that is new itself may
    not have heard yet from members that it found in the ISR.
    """
    for broker_id, epoch in zip(proposal.isr, proposal.isr_broker_epochs, strict=True):
        broker = edits.image.brokers.get(broker_id)
        if broker is None:
            yield f"broker {broker_id} is not registered"
        elif broker.fenced:
            yield f"broker {broker_id} is fenced"
        elif broker.shutting_down:
            yield f"broker {broker_id} is shutting down"
        elif epoch == UNKNOWN_BROKER_EPOCH and broker_id not in now.isr:
            yield f"broker {broker_id} is new in the ISR, and its broker epoch is not given"
        elif epoch not in (UNKNOWN_BROKER_EPOCH, broker.epoch):
            yield f"broker {broker_id} fetched with broker epoch {epoch}, and has {broker.epoch} now"


def _directories_in_use(
    edits: PartitionEdits, now: PartitionImage, isr: tuple[int, ...]
) -> tuple[UUID, ...] | None:
    """The log directories of the replicas, without those that are wrong by now.

    A replica whose directory failed gets a new leader epoch with that (election.py). If it is in sync in this
    epoch, its log has been begun anew in another directory of the broker, which is not known.
    """
    if not now.directories:
        return None
    return tuple(
        UNKNOWN_DIRECTORY if one in isr and not edits.liveness.directory_works(now, one) else directory
        for one, directory in zip(now.replicas, now.directories, strict=True)
    )


def _who(partition: PartitionImage) -> str:
    return "nobody" if partition.leader == NO_LEADER else f"broker {partition.leader}"


def _shown(brokers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, brokers)) or "of nobody"
