"""The first entry of a cluster, and its description."""

from __future__ import annotations

import re
from uuid import UUID

from tailrace.cluster.common.image import EMPTY_IMAGE, METADATA_VERSION
from tailrace.cluster.common.replay import MAX_METADATA_LEVEL
from tailrace.cluster.controller.core.cluster import cluster_id_from, create_cluster, describe_cluster
from tailrace.v1.metadata_pb2 import ControllerRegistered, MetadataRecord
from tests.support.metadata import (
    CLUSTER_ID,
    apply,
    broker,
    endpoints,
    feature_ranges,
    image_with,
    incarnation,
)


def test_cluster_gets_its_id_and_newest_levels_when_it_is_created() -> None:
    image = apply(EMPTY_IMAGE, create_cluster(EMPTY_IMAGE, cluster_id="new"))
    assert image.cluster_id == "new"
    assert image.features == {METADATA_VERSION: MAX_METADATA_LEVEL}


def test_cluster_is_not_created_again_when_there_is_one() -> None:
    assert create_cluster(image_with(), cluster_id="other").records == []


def test_cluster_ids_are_short_texts_and_differ_when_the_random_ids_do() -> None:
    made = {cluster_id_from(UUID(int=number * 2**90 + number)) for number in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", one) for one in made)


def test_description_names_brokers_and_controllers_in_order_with_their_states() -> None:
    image = image_with(brokers=[3, broker(1, fenced=True), broker(2, shutting_down=True, rack="r")])
    registered = ControllerRegistered(
        node_id=100,
        incarnation=incarnation(100).bytes,
        endpoints=endpoints(100),
        features=feature_ranges(),
    )
    image = apply(image, [MetadataRecord(controller_registered=registered)])
    answer = describe_cluster(image, controller_id=100)
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 100)
    assert (answer.controller_epoch, answer.metadata_version) == (image.controller_epoch, image.version)
    assert [(one.broker_id, one.fenced, one.shutting_down) for one in answer.brokers] == [
        (1, True, False),
        (2, False, True),
        (3, False, False),
    ]
    assert answer.brokers[1].rack == "r"
    assert list(answer.brokers[1].endpoints) == endpoints(2)
    assert list(answer.controllers) == [registered]


def test_description_says_that_there_is_no_controller_when_none_is_known() -> None:
    assert describe_cluster(image_with(), controller_id=None).controller_id == -1
