"""Blocks of producer ids: none is given away twice."""

from __future__ import annotations

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.decision import Decision
from tailrace.cluster.controller.core.producer_ids import BLOCK_SIZE, allocate_producer_ids
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.metadata import apply, image_with


def allocate(
    image: ClusterImage, broker_id: int = 1, broker_epoch: int = 1
) -> Decision[wire.AllocateProducerIdsResponse]:
    request = wire.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    return allocate_producer_ids(image, request)


def test_blocks_follow_each_other_when_brokers_ask() -> None:
    image = image_with(brokers=[1, 2])
    given: list[int] = []
    for broker_id in (1, 2, 1):
        decision = allocate(image, broker_id, broker_id)
        assert decision.response.count == BLOCK_SIZE == 1_000
        first = decision.response.first_producer_id
        given += range(first, first + decision.response.count)
        image = apply(image, decision)
    assert given == list(range(3_000))
    assert image.next_producer_id == 3_000


def test_block_is_refused_when_the_broker_is_not_registered_or_of_an_old_epoch() -> None:
    image = image_with(brokers=[1, 2])
    for broker_id, broker_epoch, code in (
        (3, 1, ErrorCode.BROKER_NOT_REGISTERED),
        (2, 1, ErrorCode.STALE_BROKER_EPOCH),
    ):
        decision = allocate(image, broker_id, broker_epoch)
        assert decision.records == []
        assert code_of(decision.response) is code
        assert decision.response.count == 0


def test_block_is_refused_when_no_ids_are_left() -> None:
    last_block = 2**63 - 1 - BLOCK_SIZE
    for first, code in ((last_block, ErrorCode.NONE), (last_block + 1, ErrorCode.UNKNOWN_SERVER_ERROR)):
        reserved = pb.ProducerIdsReserved(next_producer_id=first)
        image = apply(image_with(brokers=[1]), [pb.MetadataRecord(producer_ids_reserved=reserved)])
        decision = allocate(image)
        assert code_of(decision.response) is code
        assert bool(decision.records) == (code is ErrorCode.NONE)
