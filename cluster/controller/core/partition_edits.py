"""The partitions of an image as an operation changes them, and the records that say so.

An operation makes one `PartitionEdits`, edits partitions as often as it likes (each edit sees those before
it), and takes the records at the end: one for each partition that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from tailrace.cluster.common.image import ClusterImage, PartitionImage, TopicImage
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.controller.core.configs import (
    MIN_INSYNC_REPLICAS,
    min_insync_replicas,
    unclean_election_enabled,
)
from tailrace.cluster.controller.core.partition_change import (
    UNKNOWN_DIRECTORY,
    Rules,
    Wanted,
    directory_of,
    next_partition,
)
from tailrace.v1.metadata_pb2 import MetadataRecord

_UNSET = TopicConfig()


class Liveness:
    """Who may lead: registered, not fenced, not shutting down, with the replica's log directory online.

    What is about to become of one broker counts before the image says so: `gone` is not available, `back` is;
    `failed` are log directories that no longer work.
    """

    def __init__(
        self,
        image: ClusterImage,
        *,
        gone: int | None = None,
        back: int | None = None,
        failed: Collection[UUID] = (),
    ) -> None:
        self._active = {one.broker_id for one in image.brokers.values() if one.active}
        self._active -= set() if gone is None else {gone}
        self._active |= set() if back is None else {back}
        self._online_dirs = {
            one.broker_id: {known.directory_id for known in one.log_dirs if known.online}.difference(failed)
            for one in image.brokers.values()
            if one.log_dirs
        }

    def may_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        return broker_id in self._active and self.directory_works(partition, broker_id)

    def directory_works(self, partition: PartitionImage, broker_id: int) -> bool:
        """A replica of which it is not known where it lies is taken to lie where the disk works."""
        online = self._online_dirs.get(broker_id)
        if online is None:
            return True
        directory = directory_of(partition, broker_id)
        return bool(online) if directory == UNKNOWN_DIRECTORY else directory in online


class PartitionEdits:
    def __init__(self, image: ClusterImage, liveness: Liveness | None = None) -> None:
        self.image = image
        self.liveness = liveness or Liveness(image)
        self._changed: dict[tuple[UUID, int], PartitionImage] = {}
        self._rules: dict[UUID, Rules] = {}

    def partition(self, topic: TopicImage, number: int) -> PartitionImage:
        """As the edits so far have left it."""
        return self._changed.get((topic.topic_id, number)) or topic.partitions[number]

    def plan(
        self, topic: TopicImage, number: int, wanted: Wanted, *, rules: Rules | None = None
    ) -> PartitionImage:
        """What `edit` would make of the partition."""
        now = self.partition(topic, number)
        seen = now if wanted.directories is None else now._replace(directories=wanted.directories)
        return next_partition(
            now,
            wanted,
            rules=rules or self.rules(topic),
            may_lead=lambda broker_id: self.liveness.may_lead(seen, broker_id),
        )

    def edit(
        self, topic: TopicImage, number: int, wanted: Wanted, *, rules: Rules | None = None
    ) -> PartitionImage:
        changed = self.plan(topic, number, wanted, rules=rules)
        self.put(topic, number, changed)
        return changed

    def put(self, topic: TopicImage, number: int, changed: PartitionImage) -> None:
        if changed is not self.partition(topic, number):
            self._changed[topic.topic_id, number] = changed

    def rules(self, topic: TopicImage) -> Rules:
        known = self._rules.get(topic.topic_id)
        if known is None:
            known = self._rules[topic.topic_id] = rules_of(self.image, topic.name)
        return known

    def records(self) -> list[MetadataRecord]:
        return [
            MetadataRecord(partition=partition_record(topic_id, number, partition))
            for (topic_id, number), partition in self._changed.items()
        ]


def rules_of(image: ClusterImage, topic_name: str) -> Rules:
    return Rules(_min_insync(image, topic_name), unclean_election_enabled(image, topic_name))


def _min_insync(image: ClusterImage, topic_name: str) -> Callable[[int], int]:
    """Unless it is set it follows from the replication factor, in which partitions of a topic may differ."""
    settings = (image.topic_configs(topic_name), image.broker_configs(None))
    if any(MIN_INSYNC_REPLICAS in one for one in settings):
        least = min_insync_replicas(image, topic_name)
        return lambda _: least
    return _UNSET.min_insync
