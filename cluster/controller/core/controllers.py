"""Controllers tell the cluster where they are and what they support.

Who votes is not decided here: the voters of the quorum are the same fixed list on all nodes
(`controller.quorum.voters`). A registration says under which endpoints clients and brokers reach a
controller, and which feature levels its release knows, so that no level is raised that a voter does not know.
"""

from __future__ import annotations

from collections.abc import Collection

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage, ControllerImage
from tailrace.cluster.common.image_records import endpoint_records, feature_records
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.features import check_covers
from tailrace.cluster.controller.core.node_checks import (
    check_endpoints,
    check_node_id,
    checked_features,
    checked_id,
)
from tailrace.v1.errors_pb2 import Error
from tailrace.v1.metadata_pb2 import ControllerRegistered, MetadataRecord


def register_controller(
    image: ClusterImage, request: ControllerRegistered, *, voters: Collection[int]
) -> Decision[Error]:
    """Sent by each controller when it starts, and as often as it likes: only what is new makes a record."""
    try:
        _check(image, request, voters)
    except TailraceError as failure:
        return Decision(error_from(failure))
    record = ControllerRegistered(
        node_id=request.node_id,
        incarnation=request.incarnation,
        endpoints=request.endpoints,
        # In the order of the image, so that a registration told again is seen to be the same.
        features=feature_records(checked_features(request.features)),
    )
    known = image.controllers.get(request.node_id)
    if known is not None and controller_record(known) == record:
        return Decision(Error())
    return Decision(Error(), [MetadataRecord(controller_registered=record)])


def controller_record(controller: ControllerImage) -> ControllerRegistered:
    return ControllerRegistered(
        node_id=controller.node_id,
        incarnation=controller.incarnation.bytes,
        endpoints=endpoint_records(controller.endpoints),
        features=feature_records(controller.features),
    )


def _check(image: ClusterImage, request: ControllerRegistered, voters: Collection[int]) -> None:
    check_node_id(request.node_id)
    if request.node_id not in voters:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"controller {request.node_id} is not among the voters of the quorum "
            f"({', '.join(map(str, sorted(voters)))}): set controller.quorum.voters alike on all nodes",
        )
    checked_id(request.incarnation, "the incarnation")
    check_endpoints(request.endpoints)
    check_covers(image, f"controller {request.node_id}", checked_features(request.features))
