"""Feature levels: who must support what before a level is raised, and which way back is open."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cluster.common import replay
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import METADATA_VERSION, ClusterImage, FeatureSupport
from tailrace.cluster.controller.core.features import (
    SUPPORTED,
    FeatureLevels,
    check_covers,
    describe_features,
    feature_ranges,
    level_record,
    update_features,
)
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.metadata import apply, broker, endpoints, image_with, incarnation
from tests.support.metadata import feature_ranges as ranges

# A release to come: level 3 of groups can be left again, levels 2 and 4 cannot.
RELEASE = {
    METADATA_VERSION: FeatureLevels(min_level=1, max_level=2),
    "groups": FeatureLevels(min_level=0, max_level=4, lossless=frozenset({3})),
}
WIDE = {METADATA_VERSION: (1, 2), "groups": (0, 4)}
NARROW = {METADATA_VERSION: (1, 1), "groups": (0, 2)}


@pytest.fixture(autouse=True)
def newer_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_METADATA_LEVEL", 2)


def cluster(*brokers: dict[str, tuple[int, int]], level: int = 0, controllers: Any = (WIDE,)) -> ClusterImage:
    """A broker for each range of features, numbered from 1; likewise controllers, from 100."""
    image = image_with(brokers=[broker(number, features=one) for number, one in enumerate(brokers, 1)])
    records = [
        pb.MetadataRecord(
            controller_registered=pb.ControllerRegistered(
                node_id=number,
                incarnation=incarnation(number).bytes,
                endpoints=endpoints(number),
                features=ranges(one),
            )
        )
        for number, one in enumerate(controllers, 100)
    ]
    records += [level_record("groups", level)] if level else []
    return apply(image, records) if records else image


def update(image: ClusterImage, *features: tuple[str, int, bool], **options: Any) -> Any:
    request = admin.UpdateFeaturesRequest(
        features=[
            admin.UpdateFeaturesRequest.Feature(name=name, level=level, allow_downgrade=down)
            for name, level, down in features
        ],
        validate_only=options.pop("validate_only", False),
        request_id=options.pop("request_id", b""),
    )
    return update_features(image, request, voters=options.pop("voters", (100,)), supported=RELEASE)


def updated(image: ClusterImage, *features: tuple[str, int, bool], **options: Any) -> ClusterImage:
    decision = update(image, *features, **options)
    assert code_of(decision.response) is ErrorCode.NONE, decision.response.error.message
    return apply(image, decision)


def refusal(image: ClusterImage, *features: tuple[str, int, bool], **options: Any) -> tuple[ErrorCode, str]:
    decision = update(image, *features, **options)
    assert decision.records == []
    return code_of(decision.response), decision.response.error.message


def test_update_raises_the_levels_when_every_node_supports_them() -> None:
    image = updated(cluster(WIDE, WIDE), ("groups", 4, False), (METADATA_VERSION, 2, False))
    assert image.features == {METADATA_VERSION: 2, "groups": 4}


@pytest.mark.parametrize("fenced", [False, True])
def test_update_is_refused_when_a_broker_does_not_support_the_level(fenced: bool) -> None:
    image = cluster(WIDE, NARROW)
    changed = pb.BrokerChanged(broker_id=2, broker_epoch=2, fenced=fenced)
    image = apply(image, [pb.MetadataRecord(broker_changed=changed)])
    code, message = refusal(image, ("groups", 3, False))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "broker 2 supports groups 0 to 2, not 3" in message
    assert "broker 1" not in message


def test_update_names_every_node_when_several_do_not_support_it() -> None:
    image = cluster(NARROW, {METADATA_VERSION: (1, 1)}, controllers=[WIDE, NARROW])
    _, message = refusal(image, ("groups", 3, False), (METADATA_VERSION, 2, False), voters=(100, 101, 102))
    assert "broker 1 supports groups 0 to 2" in message
    assert "broker 2 supports no groups" in message
    assert "controller 101 supports groups 0 to 2" in message
    assert "broker 1 supports metadata.version 1 alone" in message
    assert "controller 102 has not told what it supports" in message
    assert "controller 100" not in message


def test_update_is_done_for_none_when_one_of_several_is_refused() -> None:
    code, _ = refusal(cluster(WIDE), ("groups", 3, False), (METADATA_VERSION, 9, False))
    assert code is ErrorCode.UNSUPPORTED_FEATURE


def test_update_is_refused_when_a_voter_has_never_registered() -> None:
    code, message = refusal(cluster(WIDE), ("groups", 3, False), voters=(100, 101))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "controller 101" in message


def test_update_is_refused_when_the_feature_is_not_known() -> None:
    code, message = refusal(cluster(WIDE), ("gruops", 3, False))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "'gruops'" in message
    assert "groups, metadata.version" in message


@pytest.mark.parametrize(("name", "level"), [("groups", 5), ("groups", -1), (METADATA_VERSION, 0)])
def test_update_is_refused_when_this_release_does_not_know_the_level(name: str, level: int) -> None:
    code, message = refusal(cluster(WIDE), (name, level, True))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "the active controller's release supports" in message


@pytest.mark.parametrize("features", [[], [("groups", 3, False), ("groups", 4, False)]])
def test_update_is_refused_when_it_names_no_feature_or_one_twice(features: Any) -> None:
    code, _ = refusal(cluster(WIDE), *features)
    assert code is ErrorCode.INVALID_REQUEST


def test_update_lowers_the_level_when_it_is_allowed_and_nothing_is_lost() -> None:
    image = cluster(WIDE, level=3)
    code, message = refusal(image, ("groups", 2, False))
    assert code is ErrorCode.INVALID_REQUEST
    assert "allow_downgrade" in message
    assert updated(image, ("groups", 2, True)).features["groups"] == 2


@pytest.mark.parametrize(("current", "wanted", "lost"), [(4, 3, 4), (4, 2, 4), (3, 1, 2), (2, 0, 2)])
def test_update_is_refused_when_a_level_on_the_way_down_loses_something(
    current: int, wanted: int, lost: int
) -> None:
    code, message = refusal(cluster(WIDE, level=current), ("groups", wanted, True))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert f"the lowest level to which it can go is {lost}" in message


def test_update_is_refused_when_a_node_does_not_support_the_lower_level() -> None:
    image = cluster({METADATA_VERSION: (1, 2), "groups": (3, 4)}, level=3)
    code, message = refusal(image, ("groups", 2, True))
    assert code is ErrorCode.UNSUPPORTED_FEATURE
    assert "broker 1 supports groups 3 to 4, not 2" in message


def test_update_changes_nothing_when_the_level_is_the_current_one() -> None:
    # The broker of an older release would stand in the way of a change.
    decision = update(cluster(NARROW, level=2), ("groups", 2, False), voters=(100, 101))
    assert code_of(decision.response) is ErrorCode.NONE
    assert decision.records == []


def test_update_writes_nothing_when_it_is_only_to_be_checked() -> None:
    decision = update(cluster(WIDE), ("groups", 3, False), validate_only=True, request_id=b"id")
    assert code_of(decision.response) is ErrorCode.NONE
    assert decision.records == []
    code, _ = refusal(cluster(NARROW), ("groups", 3, False), validate_only=True)
    assert code is ErrorCode.UNSUPPORTED_FEATURE


def test_update_is_done_once_when_it_is_asked_twice_with_one_id() -> None:
    image = updated(cluster(WIDE), ("groups", 3, False), request_id=b"id")
    image = updated(image, ("groups", 4, False))
    again = update(image, ("groups", 3, False), request_id=b"id")
    assert code_of(again.response) is ErrorCode.NONE
    assert again.records == []


def test_describe_tells_the_levels_that_every_node_supports() -> None:
    image = cluster(WIDE, NARROW, level=2, controllers=[{METADATA_VERSION: (1, 2), "groups": (1, 3)}])
    answer = describe_features(image, supported=RELEASE)
    assert [(one.name, one.level, one.min_supported, one.max_supported) for one in answer.features] == [
        ("groups", 2, 1, 2),
        (METADATA_VERSION, 1, 1, 1),
    ]


def test_describe_tells_that_a_feature_is_unsupported_when_this_release_does_not_know_it() -> None:
    answer = describe_features(cluster(WIDE, level=2), supported=SUPPORTED)
    groups = answer.features[0]
    assert (groups.name, groups.level, groups.min_supported, groups.max_supported) == ("groups", 2, 0, 0)


def test_release_supports_what_it_replays() -> None:
    assert [(one.name, one.min_level, one.max_level) for one in feature_ranges()] == [
        (METADATA_VERSION, replay.MIN_METADATA_LEVEL, SUPPORTED[METADATA_VERSION].max_level)
    ]


def test_check_covers_says_which_release_to_start_when_a_level_is_not_supported() -> None:
    image = cluster(level=3)
    fine = {
        METADATA_VERSION: FeatureSupport(1, 1),
        "groups": FeatureSupport(3, 4),
        "more": FeatureSupport(1, 1),
    }
    check_covers(image, "broker 5", fine)
    with pytest.raises(
        TailraceError, match=r"broker 5 supports groups 0 to 2, .* at level 3: .* a newer release"
    ):
        check_covers(image, "broker 5", {**fine, "groups": FeatureSupport(0, 2)})
    with pytest.raises(TailraceError, match="an older release, or raise groups to 4 first"):
        check_covers(image, "broker 5", {**fine, "groups": FeatureSupport(4, 4)})
