"""The metadata feed: followers get every version once and in order, however far behind they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tailrace.cluster.common.image import EMPTY_IMAGE, ClusterImage
from tailrace.cluster.common.image_records import digest_of
from tailrace.cluster.common.replay import image_from_records, replay
from tailrace.cluster.controller import metadata
from tailrace.cluster.controller.metadata import MetadataFeed, MetadataMachine
from tailrace.cluster.controller.quorum.outcomes import Outcome
from tailrace.v1 import metadata_pb2 as pb
from tailrace.v1.controller_pb2 import MetadataUpdate
from tests.support.local_quorum import LocalQuorum


class Source:
    def __init__(self) -> None:
        self.feed = MetadataFeed()
        self.machine = MetadataMachine(self.feed.publish)
        self.quorum = LocalQuorum(self.machine)
        self.quorum.claim(1)

    def change(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.quorum.version
            config = pb.ConfigRecord(
                type=pb.CONFIG_RESOURCE_TYPE_BROKER, name=str(number % 7), key=f"k{number}", value="v"
            )
            batch = pb.MetadataBatch(records=[pb.MetadataRecord(config=config)])
            outcomes: list[Outcome] = []
            self.quorum.propose(self.quorum.epoch, number, batch.SerializeToString(), outcomes.append)
            assert outcomes


class Follower:
    """A broker's side: starts anew from a snapshot, replays batches, and minds the order."""

    def __init__(self, image: ClusterImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.snapshots = 0
        self._parts: list[pb.MetadataRecord] = []

    def take(self, update: MetadataUpdate) -> None:
        if update.WhichOneof("kind") == "batches":
            for one in update.batches.batches:
                self.image, _ = replay(
                    self.image, one.batch.records, version=one.version, controller_epoch=one.controller_epoch
                )
            return
        part = update.snapshot
        if part.first:
            self._parts = []
        self._parts += part.records
        if part.last:
            self.snapshots += 1
            self.image = image_from_records(
                self._parts, version=part.version, controller_epoch=part.controller_epoch
            )

    async def follow(self, updates: AsyncIterator[MetadataUpdate], version: int) -> None:
        while self.image.version < version:
            self.take(await anext(updates))


@pytest.mark.parametrize("behind", [0, 1, 5, 30])
def test_follower_replays_to_the_same_image_when_it_starts_behind(
    behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "BATCHES_AN_UPDATE", 4)
    monkeypatch.setattr(metadata, "ENTRIES_KEPT", 10)
    monkeypatch.setattr(metadata, "RECORDS_A_PART", 7)

    async def main() -> None:
        source = Source()
        source.change(20)
        follower = Follower(source.feed.image)
        source.change(behind)
        updates = source.feed.follow(follower.image.version)
        await follower.follow(updates, source.feed.image.version)
        assert follower.image == source.feed.image
        assert follower.snapshots == (1 if behind > 10 else 0)
        source.change(3)
        await follower.follow(updates, source.feed.image.version)
        assert digest_of(follower.image) == digest_of(source.feed.image)

    asyncio.run(main())


def test_follower_waits_when_it_is_ahead_of_this_controller() -> None:
    async def main() -> None:
        source = Source()
        source.change(2)
        ahead = asyncio.ensure_future(anext(source.feed.follow(3)))
        await asyncio.sleep(0)
        source.change(1)
        await asyncio.sleep(0)
        assert not ahead.done()
        source.change(1)
        update = await asyncio.wait_for(ahead, 10)
        assert [one.version for one in update.batches.batches] == [4]

    asyncio.run(main())


def test_follower_gets_a_snapshot_when_this_controller_was_given_one() -> None:
    async def main() -> None:
        source, other = Source(), Source()
        source.change(5)
        other.change(1)
        follower = Follower(other.feed.image)
        image = source.machine.image
        other.machine.load(source.machine.snapshot()(), image.version, image.controller_epoch)
        updates = other.feed.follow(follower.image.version)
        await follower.follow(updates, 5)
        assert follower.snapshots == 1
        assert follower.image == source.feed.image

    asyncio.run(main())


def test_snapshot_is_refused_when_it_is_not_what_was_announced() -> None:
    async def main() -> None:
        source = Source()
        source.change(5)
        state = source.machine.snapshot()()
        with pytest.raises(ValueError, match="version 5 of epoch 1"):
            MetadataMachine(lambda _: None).load(state, 6, 1)

    asyncio.run(main())


def test_version_stays_when_a_controller_takes_over() -> None:
    async def main() -> None:
        source = Source()
        source.change(3)
        updates = source.feed.follow(2)
        await anext(updates)
        source.quorum.claim(9)
        assert (source.feed.image.version, source.feed.image.controller_epoch) == (3, 9)
        source.change(1)
        update = await anext(updates)
        assert [(one.version, one.controller_epoch) for one in update.batches.batches] == [(4, 9)]

    asyncio.run(main())
