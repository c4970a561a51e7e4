"""Feature levels: what every node of the cluster may count on, finalised by the controller.

A level is raised only when every registered node and every voter of the quorum supports it, so that nobody
meets a record that it does not know. Going back is allowed where nothing is lost by it: each level that is
left must be marked lossless, which a level is when it brought no record that the one below does not know.

`supported` is what this release knows; the operations take it as an argument, so that a test can be of a
release to come. A node that does not name a feature supports its level 0 alone, which means "not there".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import METADATA_VERSION, ClusterImage, FeatureSupport
from tailrace.cluster.common.replay import MAX_METADATA_LEVEL, MIN_METADATA_LEVEL
from tailrace.cluster.controller.core.decision import Decision, error_from
from tailrace.cluster.controller.core.requests import already_done, done_record
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import metadata_pb2 as pb

_ABSENT = FeatureSupport(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevels:
    min_level: int
    max_level: int
    # Those that can be left for the one below without losing anything.
    lossless: frozenset[int] = frozenset()


Supported = Mapping[str, FeatureLevels]

SUPPORTED: Supported = {
    METADATA_VERSION: FeatureLevels(min_level=MIN_METADATA_LEVEL, max_level=MAX_METADATA_LEVEL)
}


def feature_ranges(supported: Supported = SUPPORTED) -> list[pb.FeatureRange]:
    """What a node of this release registers with."""
    return [
        pb.FeatureRange(name=name, min_level=levels.min_level, max_level=levels.max_level)
        for name, levels in sorted(supported.items())
    ]


def level_record(name: str, level: int) -> pb.MetadataRecord:
    return pb.MetadataRecord(feature_level=pb.FeatureLevel(name=name, level=level))


def check_covers(image: ClusterImage, node: str, features: Mapping[str, FeatureSupport]) -> None:
    """Raise UNSUPPORTED_FEATURE unless the node ("broker 3") knows every level that is finalised."""
    for name, level in sorted(image.features.items()):
        support = features.get(name, _ABSENT)
        if not _covers(support, level):
            older = level > support.max_level
            raise TailraceError(
                ErrorCode.UNSUPPORTED_FEATURE,
                f"{node} supports {_range(name, support)}, and the cluster is at level {level}: start it "
                f"with {'a newer' if older else 'an older'} release"
                + ("" if older else f", or raise {name} to {support.min_level} first"),
            )


def update_features(
    image: ClusterImage,
    request: admin.UpdateFeaturesRequest,
    *,
    voters: Collection[int],
    supported: Supported = SUPPORTED,
) -> Decision[admin.UpdateFeaturesResponse]:
    """All of the changes or none. `voters` are the controllers of the quorum: one that never registered may
    be of any release, so it stands in the way of a change."""
    try:
        done = already_done(image, request.request_id, admin.UpdateFeaturesResponse)
        if done is not None:
            return Decision(done)
        changes = _checked_changes(image, request, voters, supported)
    except TailraceError as failure:
        return Decision(admin.UpdateFeaturesResponse(error=error_from(failure)))
    response = admin.UpdateFeaturesResponse()
    records = [level_record(name, level) for name, level in changes.items()]
    if request.validate_only or not records:
        return Decision(response)
    if request.request_id:
        records.append(done_record(request.request_id, response))
    return Decision(response, records)


def describe_features(
    image: ClusterImage, *, supported: Supported = SUPPORTED
) -> admin.DescribeFeaturesResponse:
    """Of each feature the level, and the levels to which it could be set as things are."""
    response = admin.DescribeFeaturesResponse()
    for name in sorted({*supported, *image.features}):
        levels = supported.get(name)
        ranges = [_ABSENT if levels is None else FeatureSupport(levels.min_level, levels.max_level)]
        ranges += [support for _, support in _supports(image, name)]
        response.features.add(
            name=name,
            level=image.features.get(name, 0),
            min_supported=max(one.min_level for one in ranges),
            max_supported=min(one.max_level for one in ranges),
        )
    return response


def _checked_changes(
    image: ClusterImage,
    request: admin.UpdateFeaturesRequest,
    voters: Collection[int],
    supported: Supported,
) -> dict[str, int]:
    if not request.features:
        raise TailraceError(ErrorCode.INVALID_REQUEST, "no feature is named; name at least one and its level")
    changes: dict[str, int] = {}
    for feature in request.features:
        if feature.name in changes:
            raise TailraceError(
                ErrorCode.INVALID_REQUEST, f"{feature.name!r} is named twice; name each feature once"
            )
        changes[feature.name] = feature.level
        _check_known(feature, supported)
        _check_direction(image, feature, supported[feature.name])
    changes = {name: level for name, level in changes.items() if level != image.features.get(name, 0)}
    problems = [one for name, level in changes.items() for one in _unsupporting(image, name, level, voters)]
    if problems:
        raise TailraceError(ErrorCode.UNSUPPORTED_FEATURE, "; ".join(problems))
    return changes


def _check_known(feature: admin.UpdateFeaturesRequest.Feature, supported: Supported) -> None:
    levels = supported.get(feature.name)
    if levels is None:
        raise TailraceError(
            ErrorCode.UNSUPPORTED_FEATURE,
            f"this release knows no feature {feature.name!r}; it knows {', '.join(sorted(supported))}",
        )
    support = FeatureSupport(levels.min_level, levels.max_level)
    if not _covers(support, feature.level):
        raise TailraceError(
            ErrorCode.UNSUPPORTED_FEATURE,
            f"{feature.name} cannot be set to {feature.level}: the active controller's release supports "
            f"{_range(feature.name, support)}",
        )


def _check_direction(
    image: ClusterImage, feature: admin.UpdateFeaturesRequest.Feature, levels: FeatureLevels
) -> None:
    current = image.features.get(feature.name, 0)
    if feature.level >= current:
        return
    if not feature.allow_downgrade:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"{feature.name} is at {current}, and {feature.level} is lower: ask for it with allow_downgrade "
            "if that is meant",
        )
    lossy = [level for level in range(current, feature.level, -1) if level not in levels.lossless]
    if lossy:
        raise TailraceError(
            ErrorCode.UNSUPPORTED_FEATURE,
            f"{feature.name} cannot go from {current} to {feature.level}: what level {lossy[0]} brought "
            f"would be lost; the lowest level to which it can go is {lossy[0]}",
        )


def _unsupporting(image: ClusterImage, name: str, level: int, voters: Collection[int]) -> Iterator[str]:
    for node, support in _supports(image, name):
        if not _covers(support, level):
            yield (
                f"{node} supports {_range(name, support)}, not {level}: start it with another release, or "
                "unregister it if it is gone for good"
                if node.startswith("broker")
                else f"{node} supports {_range(name, support)}, not {level}: start it with another release"
            )
    for voter in sorted(set(voters) - image.controllers.keys()):
        yield f"controller {voter} has not told what it supports: start it first"


def _supports(image: ClusterImage, name: str) -> Iterator[tuple[str, FeatureSupport]]:
    for broker_id, broker in sorted(image.brokers.items()):
        yield f"broker {broker_id}", broker.features.get(name, _ABSENT)
    for node_id, controller in sorted(image.controllers.items()):
        yield f"controller {node_id}", controller.features.get(name, _ABSENT)


def _covers(support: FeatureSupport, level: int) -> bool:
    return support.min_level <= level <= support.max_level


def _range(name: str, support: FeatureSupport) -> str:
    if support == _ABSENT:
        return f"no {name}"
    if support.min_level == support.max_level:
        return f"{name} {support.min_level} alone"
    return f"{name} {support.min_level} to {support.max_level}"
