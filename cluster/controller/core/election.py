"""Leaders of partitions, when brokers come, go and come back, and when somebody asks for an election.

The functions `partitions_...` give the records of every partition that a change of one broker touches; they
go into the same entry as the record of that change. Whether `image` is the one before that change or the one
with it makes no difference: the broker counts as what it is about to be. Who is elected, and what becomes of
ISR, ELR and epochs: partition_change.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from uuid import UUID

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.partition_change import UNKNOWN_DIRECTORY, Wanted, directory_of
from tailrace.cluster.controller.core.partition_edits import Liveness, PartitionEdits
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1.metadata_pb2 import MetadataRecord


def partitions_without(image: ClusterImage, broker_id: int) -> list[MetadataRecord]:
    """The broker is fenced, unregistered or shutting down: it leaves every ISR, and others lead.

    Where it was the last in sync it stays in the ELR: what it has is all there is, and it leads again when it
    is back. A broker that shuts down leads nothing from here on, even where nobody takes over.
    """
    edits = PartitionEdits(image, Liveness(image, gone=broker_id))
    _edit_all(edits, lambda partition: broker_id in partition.isr, Wanted())
    return edits.records()


def partitions_with(image: ClusterImage, broker_id: int) -> list[MetadataRecord]:
    """The broker has become available: partitions without a leader get one, if it may lead them.

    Elsewhere nothing happens: it is for their leaders to take it into the ISR when it has caught up, and for
    the balancing of leaders (rebalance.py) or an operator to make it lead again.
    """
    edits = PartitionEdits(image, Liveness(image, back=broker_id))
    _edit_all(
        edits,
        lambda partition: partition.leader == NO_LEADER and broker_id in partition.replicas,
        Wanted(),
    )
    return edits.records()


def partitions_of_new_incarnation(
    image: ClusterImage, broker_id: int, *, clean: bool
) -> list[MetadataRecord]:
    """The broker registers as a new process, which is fenced until it has caught up with the metadata.

    It leads nothing under an epoch of the process before: records that were served before they were synced
    may be gone, and others must not be written at the same epoch and offset. When it is not certain to have
    kept what it acknowledged (not `clean`), it leaves ISR and ELR both. Where it was the last of them, nobody
    is known to have everything; the partition waits for an unclean election, with it as the best guess unless
    another has led since.
    """
    edits = PartitionEdits(image, Liveness(image, gone=broker_id))
    _edit_all(
        edits,
        lambda partition: broker_id in partition.isr or broker_id in partition.elr,
        Wanted(lost=frozenset() if clean else frozenset({broker_id})),
    )
    return edits.records()


def partitions_of_offline_dirs(
    image: ClusterImage, broker_id: int, directories: Collection[UUID]
) -> list[MetadataRecord]:
    """Log directories of the broker have failed: its replicas there leave ISR and ELR, and others lead them.

    What such a directory holds is not trusted as long as anybody else has everything. The last one that has
    stays in the ELR, and leads again when a new process has its directory back.

    Each of these partitions gets a new leader epoch, whether the replica was in sync or not: the broker may
    begin the log anew in another directory, and what it acknowledged from the old one must not count for
    that. It may do so once it has replayed this change and is not in the ELR; earlier it could find itself
    leading with an empty log, in an epoch from before. A replica of which it is not known where it lies is
    touched only when no directory is left.
    """
    liveness = Liveness(image, failed=directories)
    failed = frozenset(directories)

    def lies_there(partition: PartitionImage) -> bool:
        if broker_id not in partition.replicas:
            return False
        directory = directory_of(partition, broker_id)
        if directory == UNKNOWN_DIRECTORY:
            return not liveness.directory_works(partition, broker_id)
        return directory in failed

    edits = PartitionEdits(image, liveness)
    for topic, number, partition in image.partitions():
        if lies_there(partition):
            others = any(one != broker_id for one in (*partition.isr, *partition.elr))
            lost = frozenset({broker_id} if others else ())
            edits.edit(topic, number, Wanted(new_leader_epoch=True, lost=lost))
    return edits.records()


def elect_leaders(
    image: ClusterImage, request: admin.ElectLeadersRequest
) -> Decision[admin.ElectLeadersResponse]:
    """Elections that somebody asks for. Without named partitions: of all that need one.

    KIND_PREFERRED makes the first replica lead, if it is in sync. KIND_UNCLEAN makes somebody lead a
    partition that has no leader, even without everything that was committed, whatever the topic's settings
    say.
    What is wrong with the request as a whole is said of each named partition, or once and of none.
    """
    response = admin.ElectLeadersResponse()
    try:
        done = already_done(image, request.request_id, admin.ElectLeadersResponse)
    except TailraceError as failure:
        for ref in request.partitions or [None]:
            response.partitions.add(partition=ref, error=error_from(failure))
        return Decision(response)
    if done is not None:
        return Decision(done)
    edits = PartitionEdits(image)
    unclean = request.kind == admin.ElectLeadersRequest.KIND_UNCLEAN
    elect = _elect_unclean if unclean else _elect_preferred
    for ref in request.partitions or _that_need_it(image, unclean):
        outcome = admin.ElectLeadersResponse.Partition(partition=ref)
        try:
            elect(edits, *find_partition(image, ref))
        except TailraceError as failure:
            outcome.error.CopyFrom(error_from(failure))
        response.partitions.append(outcome)
    records = edits.records()
    if records and request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(response, records)


def find_partition(image: ClusterImage, ref: admin.PartitionRef) -> tuple[TopicImage, int]:
    """Raises UNKNOWN_TOPIC_OR_PARTITION."""
    topic = image.topic(ref.topic)
    if topic is None:
        problem = f"there is no topic {ref.topic!r}; create it, or check the name"
    elif not 0 <= ref.partition < len(topic.partitions):
        last = len(topic.partitions) - 1
        problem = f"topic {ref.topic!r} has no partition {ref.partition}; it has 0 to {last}"
    else:
        return topic, ref.partition
    raise TailraceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)


def _elect_preferred(edits: PartitionEdits, topic: TopicImage, number: int) -> None:
    now = edits.partition(topic, number)
    preferred = now.replicas[0]
    if now.leader == preferred:
        raise TailraceError(
            ErrorCode.ELECTION_NOT_NEEDED, f"broker {preferred}, the preferred replica, leads already"
        )
    planned = edits.plan(topic, number, Wanted(prefer_first=True))
    if planned.leader != preferred:
        why = "is not in sync" if edits.liveness.may_lead(now, preferred) else "is not available"
        raise TailraceError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"broker {preferred}, the preferred replica, {why}; ask again once it is in the ISR",
        )
    edits.put(topic, number, planned)


def _elect_unclean(edits: PartitionEdits, topic: TopicImage, number: int) -> None:
    now = edits.partition(topic, number)
    if now.leader != NO_LEADER:
        raise TailraceError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {now.leader} leads the partition")
    planned = edits.plan(topic, number, Wanted(force_leader=True))
    if planned.leader == NO_LEADER:
        replicas = ", ".join(map(str, now.replicas))
        raise TailraceError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the replicas {replicas} is available; start one of these brokers",
        )
    edits.put(topic, number, planned)


def _that_need_it(image: ClusterImage, unclean: bool) -> Iterator[admin.PartitionRef]:
    for topic, number, partition in image.partitions():
        if partition.leader == NO_LEADER if unclean else partition.leader != partition.replicas[0]:
            yield admin.PartitionRef(topic=topic.name, partition=number)


def _edit_all(edits: PartitionEdits, touched: Callable[[PartitionImage], bool], wanted: Wanted) -> None:
    for topic, number, partition in edits.image.partitions():
        if touched(partition):
            edits.edit(topic, number, wanted)
