"""One partition with its data: what brokers do with the metadata that the controller decides.

The brokers here do as little as the rules allow them: they follow the metadata as late as they like, commit
as soon as they may, propose any ISR that is not forbidden, and what they send arrives late, twice or never.
What they must keep to, and so what the controller may count on:

- A leader commits what all of its ISR have acknowledged (with those that it has proposed to add, and those
  that it has proposed to drop until it knows that they are), and only while the ISR that it knows has
  `min.insync.replicas` members by the settings that it knows (`effective_min_insync`).
- It proposes a new ISR from the partition epoch that it knows by replaying the metadata, or by the answer to
  a proposal that succeeded. From an answer that refuses it, it learns nothing: it may be ahead of the
  settings.
- It takes in only followers that have acknowledged, in this leader epoch, all up to its high watermark and to
  where its epoch began, and names the broker epoch of the acknowledgement.
- A broker whose log directory fails begins the log anew in another one, but not before the metadata that it
  has replayed says that the directory is offline, and not while it is in the ELR.
- A follower makes its log a prefix of the leader's before it follows it in a new leader epoch. A broker that
  finds that it is no replica any more deletes its log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from tailrace.cluster.common.image import ClusterImage, PartitionImage
from tailrace.cluster.common.replay import partition_from
from tailrace.cluster.common.types import TopicPartition
from tailrace.cluster.controller.core.partition_change import effective_min_insync
from tailrace.cluster.controller.core.partition_edits import rules_of
from tailrace.v1 import controller_pb2 as wire
from tests.support.metadata import topic_id

TOPIC = "t"
PARTITION = TopicPartition(TOPIC, 0)


class Entry(NamedTuple):
    leader_epoch: int
    value: int


class Ack(NamedTuple):
    """A follower tells how much of the leader's log it has."""

    leader_epoch: int
    follower: int
    broker_epoch: int
    end: int


def partition_of(image: ClusterImage) -> PartitionImage:
    found = image.partition(PARTITION)
    assert found is not None
    return found


def common_prefix(one: list[Entry], other: list[Entry]) -> list[Entry]:
    length = next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )
    return one[:length]


@dataclass
class Replica:
    """A broker, as far as it concerns the partition. `view` is the metadata that it has replayed."""

    broker_id: int
    broker_epoch: int
    view: ClusterImage
    known: PartitionImage
    log: list[Entry] = field(default_factory=list)
    # Of a leader, in the leader epoch of `known`.
    acks: dict[int, Ack] = field(default_factory=dict)
    epoch_start: int = 0
    high_watermark: int = 0
    proposed: tuple[int, ...] | None = None
    asked: wire.AlterPartitionsRequest | None = None
    # The log directory that failed, with the log in it.
    failed: UUID | None = None

    @property
    def leads(self) -> bool:
        return self.known.leader == self.broker_id and self.failed is None

    def replay(self, image: ClusterImage) -> None:
        self.view = image
        self._learn(partition_of(image))
        counted_on = self.broker_id in (*self.known.isr, *self.known.elr)
        if self.failed in image.brokers[self.broker_id].offline_dirs and not counted_on:
            self.failed = None
            self.log.clear()

    def restart(self, image: ClusterImage, *, kept: int) -> None:
        """A new process, with the first `kept` entries of the log."""
        self.broker_epoch = image.brokers[self.broker_id].epoch
        self.view = image
        self.known = partition_of(image)
        self.failed = None
        del self.log[kept:]
        self._begin_epoch()
        self._delete_if_removed()

    def follow(self, leader: Replica, count: int) -> Ack:
        """Fetch up to `count` more entries."""
        shared = len(common_prefix(self.log, leader.log))
        self.log[shared:] = leader.log[shared : shared + count]
        return Ack(self.known.leader_epoch, self.broker_id, self.broker_epoch, len(self.log))

    def can_follow(self, leader: Replica) -> bool:
        return (
            leader.leads
            and self.failed is None
            and self.known.leader == leader.broker_id != self.broker_id
            and self.known.leader_epoch == leader.known.leader_epoch
            and self.broker_id in self.known.replicas
            and self.broker_id in leader.known.replicas
        )

    def hear(self, ack: Ack) -> None:
        if not self.leads or ack.leader_epoch != self.known.leader_epoch:
            return
        heard = self.acks.get(ack.follower)
        if heard is None or (ack.broker_epoch, ack.end) > (heard.broker_epoch, heard.end):
            self.acks[ack.follower] = ack

    def commit(self) -> list[Entry]:
        """Move the high watermark as far as it may go; what is committed by it."""
        now = self.known
        rules = rules_of(self.view, TOPIC)
        needed = effective_min_insync(rules.min_insync, now.replicas, now.adding, now.removing)
        if len(now.isr) >= needed:
            counted = {*now.isr, *(self.proposed or ())}
            self.high_watermark = max(self.high_watermark, min(self._end_of(one) for one in counted))
        return self.log[: self.high_watermark]

    def may_join(self, broker_id: int) -> bool:
        ack = self.acks.get(broker_id)
        return (
            ack is not None
            and broker_id in self.known.replicas
            and ack.end >= max(self.high_watermark, self.epoch_start)
        )

    def propose(self, isr: tuple[int, ...], *, recovered: bool) -> wire.AlterPartitionsRequest:
        self.proposed = isr
        known = {one: self.acks[one].broker_epoch if one in self.acks else -1 for one in isr}
        proposal = wire.AlterPartitionsRequest.Partition(
            topic_id=topic_id(TOPIC).bytes,
            partition=0,
            leader_epoch=self.known.leader_epoch,
            partition_epoch=self.known.partition_epoch,
            isr=isr,
            isr_broker_epochs=[known[one] for one in isr],
            recovered=recovered,
        )
        self.asked = wire.AlterPartitionsRequest(
            broker_id=self.broker_id, broker_epoch=self.broker_epoch, partitions=[proposal]
        )
        return self.asked

    def answered(self, request: wire.AlterPartitionsRequest, response: wire.AlterPartitionsResponse) -> None:
        """Settles the proposal of this request and no other. One that is refused never will be applied."""
        refused = response.HasField("error") or response.partitions[0].HasField("error")
        if not refused:
            self._learn(partition_from(response.partitions[0].state))
        if request is self.asked:
            self.proposed = None

    def _learn(self, state: PartitionImage) -> None:
        """States are learned in any order; an earlier one tells nothing new."""
        if state.partition_epoch <= self.known.partition_epoch:
            return
        new_epoch = state.leader_epoch != self.known.leader_epoch
        self.known = state
        self.proposed = None
        if new_epoch:
            self._begin_epoch()
        self._delete_if_removed()

    def _begin_epoch(self) -> None:
        self.acks = {}
        self.proposed = None
        self.epoch_start = len(self.log)
        self.high_watermark = 0

    def _delete_if_removed(self) -> None:
        if self.broker_id not in self.known.replicas:
            self.log.clear()

    def _end_of(self, broker_id: int) -> int:
        if broker_id == self.broker_id:
            return len(self.log)
        return self.acks[broker_id].end if broker_id in self.acks else 0
