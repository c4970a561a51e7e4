"""Control batches: the markers that end transactions.

A marker batch holds one record for each producer whose transaction it ends: key `<HB` (version 0; type 0
abort, 1 commit), value `<qii` (producer id, producer epoch, coordinator epoch). The header's own producer
fields stay -1, because the coordinator writes the batch, not the producers. Transaction coordinators write
markers; partitions and consumers read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple

from tailrace.cluster.common.assembly import invalid
from tailrace.cluster.common.batch import corrupt
from tailrace.cluster.common.columns import encode_batch
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.records import Batch

MARKER_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1
_KEY: Final = Struct("<HB")
_VALUE: Final = Struct("<qii")


class Marker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool


def encode_marker(
    *,
    commit: bool,
    producers: Sequence[tuple[int, int]],
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    append_timestamp: int = -1,
) -> bytes:
    """A control batch that ends the transactions of `producers`, pairs of producer id and epoch."""
    if not producers:
        raise invalid("a marker ends the transaction of at least one producer")
    key = _KEY.pack(MARKER_VERSION, _COMMIT if commit else _ABORT)
    try:
        values = [_VALUE.pack(producer_id, epoch, coordinator_epoch) for producer_id, epoch in producers]
    except (error, TypeError, ValueError) as reason:
        raise invalid(
            f"a marker cannot hold producers {producers!r} of epoch {coordinator_epoch}: {reason}"
        ) from None
    return encode_batch(
        keys=[key] * len(values),
        values=values,
        timestamps=timestamp,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        append_timestamp=append_timestamp,
    )


def decode_markers(batch: Batch) -> tuple[Marker, ...]:
    """The markers of a control batch, in its order; empty if the cleaner has removed them all."""
    header = batch.header
    if not header.is_control:
        raise corrupt(f"the batch at offset {header.base_offset} is not a control batch and has no markers")
    if header.has_producer:
        raise corrupt(f"the control batch at offset {header.base_offset} names a producer in its header")
    markers = []
    for key, value in zip(batch.keys(), batch.values(), strict=True):
        if key is None or len(key) != _KEY.size or value is None or len(value) != _VALUE.size:
            raise corrupt(f"the control batch at offset {header.base_offset} has a record that is no marker")
        version, kind = _KEY.unpack(key)
        if version != MARKER_VERSION or kind not in (_ABORT, _COMMIT):
            raise TailraceError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the control batch at offset {header.base_offset} has a record of version {version} and "
                f"type {kind}; a newer version wrote it",
            )
        producer_id, producer_epoch, coordinator_epoch = _VALUE.unpack(value)
        markers.append(Marker(producer_id, producer_epoch, coordinator_epoch, kind == _COMMIT))
    return tuple(markers)
