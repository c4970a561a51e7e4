"""Drafts: later steps see what earlier ones changed, and the records stay in order."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.replay import ReplayError
from tailrace.cluster.controller.core.draft import Draft
from tailrace.cluster.controller.core.features import level_record
from tailrace.v1.metadata_pb2 import BrokerUnregistered, MetadataRecord
from tests.support.metadata import apply, image_with

IMAGE = image_with(brokers=[1])


def test_draft_shows_the_image_itself_when_nothing_was_added() -> None:
    draft = Draft(IMAGE)
    draft.add([])
    assert draft.image is IMAGE
    assert draft.records == []


def test_draft_shows_what_was_added_when_somebody_looks_between_the_steps() -> None:
    draft = Draft(IMAGE)
    draft.add(level_record("f", level) for level in (1, 2))
    assert draft.image.features["f"] == 2
    assert draft.image is draft.image
    draft.add([level_record("g", 1)])
    draft.add([level_record("f", 3)])
    assert (draft.image.features["f"], draft.image.features["g"]) == (3, 1)
    assert [one.feature_level.level for one in draft.records] == [1, 2, 1, 3]
    assert apply(IMAGE, draft.records).features == draft.image.features
    assert "f" not in IMAGE.features


def test_draft_refuses_to_show_an_image_when_a_record_makes_no_sense() -> None:
    draft = Draft(IMAGE)
    gone = MetadataRecord(broker_unregistered=BrokerUnregistered(broker_id=1, broker_epoch=1))
    draft.add([gone])
    assert draft.image.brokers == {}
    draft.add([gone])
    with pytest.raises(ReplayError):
        draft.image  # noqa: B018
