"""No record that was committed is lost, whatever brokers, networks and operators do, unless they ask for it.

`HISTORIES=5000 pytest <this file>` looks longer.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.config_effects import partitions_of_changed_configs
from tailrace.cluster.controller.core.replication import alter_partitions
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.metadata import apply, image_with
from tests.support.replica_history import MIN_INSYNC, PartitionHistory
from tests.support.replica_model import TOPIC, Ack, Entry, Replica, partition_of

HISTORIES = int(os.environ.get("HISTORIES", "400"))
STEPS = 300
SLICES = 5


def played(seed: int) -> PartitionHistory:
    history = PartitionHistory(seed)
    try:
        history.run(STEPS)
    except AssertionError as problem:
        last = "\n".join(history.trace[-40:])
        raise AssertionError(f"seed {seed}, after {len(history.trace)} steps: {problem}\n{last}") from problem
    return history


@pytest.mark.parametrize("part", range(SLICES))
def test_committed_records_stay_with_all_who_may_lead_when_anything_happens(part: int) -> None:
    for seed in range(part, HISTORIES, SLICES):
        played(seed)


def test_histories_meet_what_they_are_about_when_there_are_enough() -> None:
    met: Counter[str] = Counter()
    for seed in range(60):
        history = played(seed)
        states = [partition_of(image) for image in history.images]
        met["committed"] += len(history.committed)
        met["unclean"] += history.unclean_epoch >= 0
        for then, now in pairwise(states):
            met["elr"] += bool(now.elr)
            met["elected from elr"] += now.leader in then.elr and not then.isr
            met["all lost"] += not now.isr and not now.elr
            met["reassigned"] += then.reassigning and not now.reassigning
            met["expanded"] += now.leader == then.leader and set(now.isr) > set(then.isr)
    assert len(met) == 7
    assert min(met.values()) >= 5, met


def with_min_insync(image: ClusterImage, number: int) -> ClusterImage:
    config = pb.ConfigRecord(
        type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name=TOPIC, key=MIN_INSYNC, value=str(number)
    )
    records = [pb.MetadataRecord(config=config)]
    effects = partitions_of_changed_configs(image, apply(image, records))
    return apply(image, [*records, *effects])


def test_leader_cannot_commit_alone_when_it_shrinks_the_isr_after_min_insync_was_raised() -> None:
    """The history that the new partition epoch is for: the controller keeps in the ELR whom the leader drops,
    and the leader, by the smaller number, would commit without it."""
    before = image_with(brokers=[1, 2], topics={TOPIC: [(1, 2)]}, configs={TOPIC: {MIN_INSYNC: "1"}})
    leader = Replica(1, 1, before, partition_of(before), log=[Entry(0, 1)])
    leader.hear(Ack(leader_epoch=0, follower=2, broker_epoch=2, end=1))
    raised = with_min_insync(before, 2)
    proposal = leader.propose((1,), recovered=False)
    early = alter_partitions(raised, proposal)
    assert code_of(early.response.partitions[0]) is ErrorCode.INVALID_UPDATE_VERSION
    leader.answered(proposal, early.response)
    leader.replay(raised)
    proposal = leader.propose((1,), recovered=False)
    leader.answered(proposal, alter_partitions(raised, proposal).response)
    assert (leader.known.isr, leader.known.elr) == ((1,), (2,))
    leader.log.append(Entry(0, 2))
    assert Entry(0, 2) not in leader.commit()
