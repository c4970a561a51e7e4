"""The metadata of a controller: replayed as the quorum agrees on it, and handed on to those who follow it.

`MetadataMachine` is the quorum's state machine. It runs on the Raft thread, where it replays each entry onto
the image, and hands the result to the event loop in order. `MetadataFeed` lives on the loop: it keeps the
newest entries, so that a follower which is a little behind gets just what it misses, and one that is far
behind gets a snapshot.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from tailrace.cluster.common.image import EMPTY_IMAGE, ClusterImage
from tailrace.cluster.common.image_records import records_of
from tailrace.cluster.common.replay import Delta, image_from_records, replay
from tailrace.cluster.controller.quorum.machine import AppliedEntry, EntryKind
from tailrace.v1.controller_pb2 import MetadataUpdate
from tailrace.v1.metadata_pb2 import MetadataBatch, MetadataRecord, MetadataSnapshot

ENTRIES_KEPT = 5_000
BYTES_KEPT = 16 * 1024 * 1024
BATCHES_AN_UPDATE = 200
RECORDS_A_PART = 5_000


class AppliedBatch(NamedTuple):
    """One entry, and the image after it."""

    image: ClusterImage
    batch: MetadataBatch
    delta: Delta
    size: int


class Replaced(NamedTuple):
    """The image changed otherwise: a snapshot was loaded, or (same version) a controller took over."""

    image: ClusterImage


Applied = AppliedBatch | Replaced


class MetadataMachine:
    """`image` is what is committed and applied here; it may be read from any thread."""

    def __init__(self, hand_over: Callable[[Applied], None]) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self._hand_over = hand_over

    def apply(self, entry: AppliedEntry) -> None:
        if entry.kind is EntryKind.CLAIM:
            self.image = replace(self.image, controller_epoch=entry.epoch)
            self._hand_over(Replaced(self.image))
            return
        batch = MetadataBatch.FromString(entry.payload)
        self.image, delta = replay(
            self.image, batch.records, version=entry.version, controller_epoch=entry.epoch
        )
        self._hand_over(AppliedBatch(self.image, batch, delta, len(entry.payload)))

    def snapshot(self) -> Callable[[], bytes]:
        image = self.image
        return lambda: encode_snapshot(image)

    def load(self, state: bytes, version: int, epoch: int) -> None:
        self.image = decode_snapshot(state)
        if (self.image.version, self.image.controller_epoch) != (version, epoch):
            raise ValueError(
                f"the snapshot holds version {self.image.version} of epoch {self.image.controller_epoch}, "
                f"and was announced as version {version} of epoch {epoch}"
            )
        self._hand_over(Replaced(self.image))


def encode_snapshot(image: ClusterImage) -> bytes:
    snapshot = MetadataSnapshot(
        version=image.version, controller_epoch=image.controller_epoch, records=records_of(image)
    )
    return snapshot.SerializeToString()


def decode_snapshot(state: bytes) -> ClusterImage:
    snapshot = MetadataSnapshot.FromString(state)
    return image_from_records(
        snapshot.records, version=snapshot.version, controller_epoch=snapshot.controller_epoch
    )


class MetadataFeed:
    """The committed metadata, on the event loop."""

    def __init__(self) -> None:
        self.image: ClusterImage = EMPTY_IMAGE
        self._recent: deque[AppliedBatch] = deque()
        self._recent_bytes = 0
        self._moved = asyncio.Event()

    def publish(self, applied: Applied) -> None:
        if isinstance(applied, AppliedBatch):
            self._recent.append(applied)
            self._recent_bytes += applied.size
            while len(self._recent) > ENTRIES_KEPT or self._recent_bytes > BYTES_KEPT:
                self._recent_bytes -= self._recent.popleft().size
        elif applied.image.version != self.image.version:
            self._recent.clear()
            self._recent_bytes = 0
        self.image = applied.image
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait_for(self, version: int) -> ClusterImage:
        while self.image.version < version:
            await self._moved.wait()
        return self.image

    async def follow(self, version: int) -> AsyncIterator[MetadataUpdate]:
        """Everything after `version`, for ever. Who is ahead of this node waits until it has caught up."""
        while True:
            await self.wait_for(version + 1)
            missing = self.image.version - version
            if missing <= len(self._recent):
                first = len(self._recent) - missing
                chosen = list(islice(self._recent, first, first + BATCHES_AN_UPDATE))
                yield _batches_update(chosen)
                version = chosen[-1].image.version
            else:
                image = self.image
                for part in snapshot_parts(image):
                    yield part
                version = image.version


def _batches_update(chosen: list[AppliedBatch]) -> MetadataUpdate:
    return MetadataUpdate(
        batches=MetadataUpdate.Batches(
            batches=[
                MetadataUpdate.Batch(
                    version=one.image.version, controller_epoch=one.image.controller_epoch, batch=one.batch
                )
                for one in chosen
            ]
        )
    )


def snapshot_parts(image: ClusterImage) -> list[MetadataUpdate]:
    """At least one part, also for an image without records."""
    records = list(records_of(image))
    starts = range(0, max(len(records), 1), RECORDS_A_PART)
    return [
        MetadataUpdate(snapshot=_part(image, records[at : at + RECORDS_A_PART], at == 0, at == starts[-1]))
        for at in starts
    ]


def _part(
    image: ClusterImage, records: list[MetadataRecord], first: bool, last: bool
) -> MetadataUpdate.SnapshotPart:
    return MetadataUpdate.SnapshotPart(
        version=image.version,
        controller_epoch=image.controller_epoch,
        records=records,
        first=first,
        last=last,
    )
