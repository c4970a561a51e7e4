"""Replay and snapshots against a model, for random histories: one image, whichever way it was reached."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.image import EMPTY_IMAGE, ClusterImage
from tailrace.cluster.common.image_records import digest_of, records_of
from tailrace.cluster.common.replay import Delta, ReplayError, image_from_records, replay
from tailrace.v1 import metadata_pb2 as pb
from tests.support.metadata_histories import (
    KINDS,
    Entry,
    History,
    anything,
    close_pairs,
    histories,
    model_of,
)


def replayed(image: ClusterImage, entries: list[Entry]) -> ClusterImage:
    for entry in entries:
        image, _ = replay(image, entry, version=image.version + 1, controller_epoch=1)
    return image


def through_snapshot(image: ClusterImage) -> ClusterImage:
    snapshot = pb.MetadataSnapshot(version=image.version, records=records_of(image)).SerializeToString()
    records = pb.MetadataSnapshot.FromString(snapshot).records
    return image_from_records(records, version=image.version, controller_epoch=image.controller_epoch)


def test_histories_hold_every_kind_of_record() -> None:
    assert {kind.__name__ for kind in KINDS} == {
        one.name for one in pb.MetadataRecord.DESCRIPTOR.oneofs_by_name["kind"].fields
    }


@settings(max_examples=60, deadline=None)
@given(histories())
def test_image_says_what_the_model_says_when_any_history_is_replayed(
    history: History,
) -> None:
    image = EMPTY_IMAGE
    images = []
    for entry, model in history:
        image, _ = replay(image, entry, version=image.version + 1, controller_epoch=1)
        images.append(image)
        assert model_of(image) == model
    # Nor has a later entry changed an image that was made before.
    assert [model_of(one) for one in images] == [model for _, model in history]


@settings(max_examples=60, deadline=None)
@given(histories())
def test_image_is_the_same_when_it_comes_from_a_snapshot_and_the_entries_after_it(
    history: History,
) -> None:
    entries = [entry for entry, _ in history]
    whole = replayed(EMPTY_IMAGE, entries)
    for taken_at in range(len(entries) + 1):
        snapshot = through_snapshot(replayed(EMPTY_IMAGE, entries[:taken_at]))
        later = replayed(snapshot, entries[taken_at:])
        assert later == whole
        assert list(records_of(later)) == list(records_of(whole))
        assert digest_of(later) == digest_of(whole)


@settings(max_examples=60, deadline=None)
@given(histories())
def test_image_is_the_same_when_the_records_come_in_entries_of_another_size(
    history: History,
) -> None:
    records = [record for entry, _ in history for record in entry]
    one_by_one = replayed(EMPTY_IMAGE, [[record] for record in records])
    at_once = replayed(EMPTY_IMAGE, [records])
    assert model_of(one_by_one) == model_of(at_once)


@settings(max_examples=60, deadline=None)
@given(close_pairs(), close_pairs())
def test_digests_are_equal_exactly_when_the_images_are(first: History, second: History) -> None:
    for (records, model), (other_records, other_model) in (first, second, (first[0], second[0])):
        image = image_from_records(records, version=5, controller_epoch=1)
        other = image_from_records(other_records, version=5, controller_epoch=1)
        event(f"equal: {model == other_model}")
        assert (digest_of(image) == digest_of(other)) == (model == other_model)


@settings(max_examples=60, deadline=None)
@given(histories(), st.integers(1, 3), st.integers(1, 3))
def test_digests_differ_when_version_or_epoch_do(
    history: History, version: int, controller_epoch: int
) -> None:
    records = list(records_of(replayed(EMPTY_IMAGE, [entry for entry, _ in history])))
    one = image_from_records(records, version=2, controller_epoch=2)
    other = image_from_records(records, version=version, controller_epoch=controller_epoch)
    assert (digest_of(one) == digest_of(other)) == ((version, controller_epoch) == (2, 2))


@settings(max_examples=60, deadline=None)
@given(histories())
def test_delta_names_everything_that_differs_between_two_images(history: History) -> None:
    before = EMPTY_IMAGE
    for entry, _ in history:
        image, delta = replay(before, entry, version=before.version + 1, controller_epoch=1)
        check_delta(before, image, delta)
        before = image


def check_delta(before: ClusterImage, after: ClusterImage, delta: Delta) -> None:
    assert delta.deleted_topics == {
        topic_id: topic for topic_id, topic in before.topics.items() if topic_id in delta.deleted_topics
    }
    gone = before.topics.keys() - after.topics.keys()
    assert gone <= delta.deleted_topics.keys()
    assert after.topics.keys() - before.topics.keys() <= delta.created_topics <= after.topics.keys()
    assert delta.partitions.keys() <= after.topics.keys()
    for topic_id, topic in after.topics.items():
        known = before.topics[topic_id].partitions if topic_id in before.topics else ()
        for number, one in enumerate(topic.partitions):
            if number >= len(known) or one != known[number]:
                assert number in delta.partitions[topic_id]
        assert all(number < len(topic.partitions) for number in delta.partitions.get(topic_id, ()))
    assert _differing(before.brokers, after.brokers) <= delta.brokers
    assert _differing(before.configs, after.configs) <= delta.configs
    assert _differing(before.features, after.features) <= delta.features


def _differing(before: Any, after: Any) -> set[Any]:
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


@settings(max_examples=60, deadline=None)
@given(histories(), st.lists(anything, min_size=1, max_size=4))
def test_replay_refuses_in_one_way_and_leaves_the_image_alone_when_records_make_no_sense(
    history: History, records: Entry
) -> None:
    image = replayed(EMPTY_IMAGE, [entry for entry, _ in history])
    kept = model_of(image)
    try:
        changed, _ = replay(image, records, version=image.version + 1, controller_epoch=1)
    except ReplayError:
        pass
    else:
        assert through_snapshot(changed) == changed
    assert model_of(image) == kept
