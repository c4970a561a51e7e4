"""Producer ids, given away in blocks: no two producers of a cluster ever get the same one.

A broker asks for a block and hands the ids out itself; what is left of a block when the broker stops is lost,
which 2^63 ids bear. A block is asked for again after an answer that got lost, so no request id is needed.
"""

from __future__ import annotations

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.brokers import current_broker
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb

BLOCK_SIZE = 1_000
_END_OF_IDS = 2**63 - 1


def allocate_producer_ids(
    image: ClusterImage, request: wire.AllocateProducerIdsRequest
) -> Decision[wire.AllocateProducerIdsResponse]:
    first = image.next_producer_id
    try:
        current_broker(image, request.broker_id, request.broker_epoch)
        if first > _END_OF_IDS - BLOCK_SIZE:
            raise TailraceError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids of this cluster have been given away"
            )
    except TailraceError as failure:
        return Decision(wire.AllocateProducerIdsResponse(error=error_from(failure)))
    reserved = pb.ProducerIdsReserved(next_producer_id=first + BLOCK_SIZE)
    return Decision(
        wire.AllocateProducerIdsResponse(first_producer_id=first, count=BLOCK_SIZE),
        [pb.MetadataRecord(producer_ids_reserved=reserved)],
    )
