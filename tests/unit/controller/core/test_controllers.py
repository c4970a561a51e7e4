"""Controllers register what they support and where they are."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import METADATA_VERSION, ClusterImage, EndpointImage, FeatureSupport
from tailrace.cluster.controller.core.controllers import register_controller
from tailrace.cluster.controller.core.decision import Decision
from tailrace.v1.errors_pb2 import Error
from tailrace.v1.metadata_pb2 import ControllerRegistered, Endpoint
from tests.support.metadata import apply, endpoints, feature_ranges, image_with, incarnation

VOTERS = (1, 2, 3)


def request(node_id: int = 1, *, life: int = 1, **fields: Any) -> ControllerRegistered:
    chosen: dict[str, Any] = {
        "node_id": node_id,
        "incarnation": incarnation(node_id, life).bytes,
        "endpoints": endpoints(node_id),
        "features": feature_ranges({"z": (0, 1), METADATA_VERSION: (1, 1)}),
    }
    return ControllerRegistered(**{**chosen, **fields})


def register(image: ClusterImage, asked: ControllerRegistered) -> Decision[Error]:
    return register_controller(image, asked, voters=VOTERS)


def test_controller_is_registered_when_it_starts_for_the_first_time() -> None:
    image = apply(image_with(), register(image_with(), request()))
    made = image.controllers[1]
    assert made.incarnation == incarnation(1)
    assert made.endpoints[0] == EndpointImage("CLIENT", "host-1", 9092, False)
    assert made.features == {METADATA_VERSION: FeatureSupport(1, 1), "z": FeatureSupport(0, 1)}


def test_controller_is_not_registered_again_when_nothing_is_new() -> None:
    image = apply(image_with(), register(image_with(), request()))
    assert register(image, request()) == Decision(Error())
    shuffled = request(features=reversed(feature_ranges({"z": (0, 1), METADATA_VERSION: (1, 1)})))
    assert register(image, shuffled).records == []


@pytest.mark.parametrize(
    "change",
    [
        {"life": 2},
        {"endpoints": [Endpoint(listener="CONTROLLER", host="elsewhere", port=1)]},
        {"features": feature_ranges()},
    ],
    ids=["incarnation", "endpoints", "features"],
)
def test_controller_is_registered_again_when_something_is_new(change: dict[str, Any]) -> None:
    image = apply(image_with(), register(image_with(), request()))
    decision = register(image, request(**change))
    assert decision.response == Error()
    assert apply(image, decision).controllers[1] != image.controllers[1]


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (request(4), ErrorCode.INVALID_REQUEST, "controller.quorum.voters"),
        (request(-1), ErrorCode.INVALID_REQUEST, "node.id"),
        (request(incarnation=b""), ErrorCode.INVALID_REQUEST, "incarnation"),
        (request(endpoints=[]), ErrorCode.INVALID_REQUEST, "endpoint"),
        (request(features=[]), ErrorCode.UNSUPPORTED_FEATURE, "controller 1 supports no metadata.version"),
    ],
)
def test_controller_is_refused_when_what_it_says_makes_no_sense(
    asked: ControllerRegistered, code: ErrorCode, said: str
) -> None:
    decision = register(image_with(), asked)
    assert decision.records == []
    assert decision.response.code == int(code)
    assert said in decision.response.message
