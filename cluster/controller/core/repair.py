"""What an active controller sets right when it begins: what its predecessor did not finish.

When a broker with very many partitions comes or goes, that takes several entries. If the controller is lost
between them, brokers are left that may not lead and still do, or that may and have not been asked.
"""

from __future__ import annotations

from tailrace.cluster.common.image import NO_LEADER, ClusterImage
from tailrace.cluster.controller.core import election
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.draft import Draft


def finish_elections(image: ClusterImage) -> Decision[None]:
    leaders = {partition.leader for _, _, partition in image.partitions()} - {NO_LEADER}
    draft = Draft(image)
    for broker_id in sorted(leaders):
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active:
            draft.add(election.partitions_without(draft.image, broker_id))
    waiting = {
        replica
        for _, _, partition in draft.image.partitions()
        if partition.leader == NO_LEADER
        for replica in partition.replicas
    }
    for broker_id in sorted(waiting & {one.broker_id for one in image.brokers.values() if one.active}):
        draft.add(election.partitions_with(draft.image, broker_id))
    return Decision(None, draft.records)
