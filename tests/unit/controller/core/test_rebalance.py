from __future__ import annotations

from collections import Counter

import pytest

from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.rebalance import rebalance_leaders
from tests.support.metadata import apply, broker, image_with, partition


def rebalanced(image: ClusterImage, *, percentage: int = 10, most: int = 1000) -> tuple[ClusterImage, bool]:
    done = rebalance_leaders(image, imbalance_per_broker_percentage=percentage, most_per_round=most)
    return apply(image, done.records), done.more


def leaders(image: ClusterImage) -> list[int]:
    return [one.leader for _, _, one in image.partitions()]


@pytest.mark.parametrize(("moved_away", "given_back"), [(1, False), (2, True)])
def test_leaders_are_given_back_when_more_than_the_percentage_are_led_by_others(
    moved_away: int, given_back: bool
) -> None:
    preferring = [partition(1, 2, leader=2)] * moved_away + [partition(1, 2)] * (10 - moved_away)
    image, more = rebalanced(image_with(brokers=[1, 2], topics={"t": preferring}))
    assert (leaders(image) == [1] * 10) is given_back
    assert not more


def test_each_broker_is_judged_alone_when_only_one_is_out_of_balance() -> None:
    few = [partition(2, 1, leader=1), *[partition(2, 1)] * 19]
    image = image_with(brokers=[1, 2, 3], topics={"few": few, "many": [partition(3, 1, leader=1)]})
    after, _ = rebalanced(image)
    assert leaders(after) == [1, *[2] * 19, 3]


def test_leaders_stay_when_the_preferred_replica_cannot_lead() -> None:
    partitions = [
        partition(1, 2, isr=(2,)),
        partition(3, 2, leader=2),
        partition(2, 4, 1, leader=1, isr=(1, 2), adding=(4,)),
    ]
    image = image_with(brokers=[1, 2, broker(3, fenced=True), 4], topics={"t": partitions})
    done = rebalance_leaders(image, imbalance_per_broker_percentage=0, most_per_round=10)
    assert (done.records, done.more) == ([], False)


def test_those_out_of_balance_most_come_first_when_a_round_is_bounded() -> None:
    half = [partition(1, 3), partition(1, 3, leader=3)]
    image = image_with(brokers=[1, 2, 3], topics={"half": half, "all": [partition(2, 3, leader=3)]})
    first, more = rebalanced(image, most=1)
    assert (leaders(first), more) == ([1, 3, 2], True)
    second, more = rebalanced(first, most=1)
    assert (leaders(second), more) == ([1, 1, 2], False)


def test_rounds_give_everything_back_when_they_are_repeated() -> None:
    image = image_with(brokers=[1, 2], topics={"t": [partition(1, 2, leader=2)] * 25})
    rounds, more = 0, True
    while more:
        image, more = rebalanced(image, most=10)
        rounds += 1
    assert rounds == 3
    assert Counter(leaders(image)) == {1: 25}
