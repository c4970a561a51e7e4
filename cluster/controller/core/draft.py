"""Records that an operation has come to so far, and the image as they leave it.

For operations of several steps of which a later one must see what an earlier one changed. The version of a
draft's image counts the looks at it and means nothing to others: the records become one entry.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.replay import replay
from tailrace.v1.metadata_pb2 import MetadataRecord


class Draft:
    def __init__(self, image: ClusterImage) -> None:
        self.records: list[MetadataRecord] = []
        self._image = image
        self._replayed = 0

    def add(self, records: Iterable[MetadataRecord]) -> None:
        self.records += records

    @property
    def image(self) -> ClusterImage:
        """Replays what was added since the last look: the last step of an operation, which may change very
        many partitions, is replayed only if somebody looks."""
        added = self.records[self._replayed :]
        if added:
            version, epoch = self._image.version + 1, self._image.controller_epoch
            self._image, _ = replay(self._image, added, version=version, controller_epoch=epoch)
            self._replayed = len(self.records)
        return self._image
