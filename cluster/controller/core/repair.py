"""What an active controller sets right when it begins: fencing that its predecessor did not finish.

A fencing of very many partitions takes several entries. If the controller is lost between them, brokers are
left that may not lead and still do.
"""

from __future__ import annotations

from tailrace.cluster.common.image import NO_LEADER, ClusterImage
from tailrace.cluster.controller.core import election
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.draft import Draft


def replace_lost_leaders(image: ClusterImage) -> Decision[None]:
    leaders = {partition.leader for _, _, partition in image.partitions()} - {NO_LEADER}
    draft = Draft(image)
    for broker_id in sorted(leaders):
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active:
            draft.add(election.partitions_without(draft.image, broker_id))
    return Decision(None, draft.records)
