"""Which brokers get the replicas: validity, racks and hosts, balance, last resorts, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.controller.core.placement import Placer, place_replicas
from tests.support.metadata import broker, image_with, partition


def spread(counts: Counter[int], brokers: Iterable[int]) -> int:
    held = [counts[one] for one in brokers]
    return max(held) - min(held)


def leaders(placed: Iterable[Sequence[int]]) -> Counter[int]:
    return Counter(replicas[0] for replicas in placed)


def holders(placed: Iterable[Sequence[int]]) -> Counter[int]:
    return Counter(one for replicas in placed for one in replicas)


def refusal(image: ClusterImage, *, replication_factor: int) -> str:
    with pytest.raises(TailraceError) as raised:
        place_replicas(image, partitions=1, replication_factor=replication_factor, seed=0)
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    return str(raised.value)


def test_placement_uses_every_broker_when_all_run_on_one_laptop() -> None:
    image = image_with(brokers=[broker(one, host="laptop") for one in (1, 2, 3)])
    placed = place_replicas(image, partitions=6, replication_factor=3, seed=7)
    assert [sorted(replicas) for replicas in placed] == [[1, 2, 3]] * 6
    assert leaders(placed) == {1: 2, 2: 2, 3: 2}


def test_placement_takes_one_broker_of_each_rack_when_racks_suffice() -> None:
    racks = {number: f"rack-{number % 3}" for number in range(9)}
    image = image_with(brokers=[broker(number, rack=rack) for number, rack in racks.items()])
    placed = place_replicas(image, partitions=90, replication_factor=3, seed=1)
    assert all({racks[one] for one in replicas} == set(racks.values()) for replicas in placed)


def test_placement_takes_one_broker_of_each_host_when_a_rack_holds_several_replicas() -> None:
    hosts = {number: f"host-{number // 3}" for number in range(9)}
    image = image_with(brokers=[broker(number, host=host) for number, host in hosts.items()])
    placed = place_replicas(image, partitions=90, replication_factor=3, seed=1)
    assert all(len({hosts[one] for one in replicas}) == 3 for replicas in placed)


def test_placement_tells_hosts_of_two_racks_apart_when_they_have_one_name() -> None:
    brokers = [broker(1, rack="a", host="h"), broker(2, rack="b", host="h"), broker(3, rack="b", host="i")]
    placed = place_replicas(image_with(brokers=brokers), partitions=30, replication_factor=2, seed=1)
    assert all(1 in replicas for replicas in placed)
    assert holders(placed)[2] == holders(placed)[3] == 15


def test_placement_spreads_evenly_when_many_topics_have_one_partition() -> None:
    brokers = [broker(number, rack=f"rack-{number % 3}") for number in range(6)]
    topics: dict[str, list[tuple[int, ...]]] = {}
    for number in range(30):
        image = image_with(brokers=brokers, topics=topics)
        topics[f"topic-{number}"] = place_replicas(image, partitions=1, replication_factor=2, seed=number)
    everything = [replicas for placed in topics.values() for replicas in placed]
    assert spread(leaders(everything), range(6)) == 0
    assert spread(holders(everything), range(6)) <= 2


def test_placement_prefers_who_holds_less_when_a_topic_cannot_be_shared_evenly() -> None:
    image = image_with(brokers=[1, 2, 3], topics={"old": [(1, 2)] * 10})
    placed = place_replicas(image, partitions=1, replication_factor=1, seed=5)
    assert placed == [(3,)]


def test_placement_shares_a_topic_evenly_when_a_new_broker_is_empty() -> None:
    image = image_with(brokers=[1, 2, 3, 4], topics={"old": [(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 40})
    placed = place_replicas(image, partitions=40, replication_factor=3, seed=5)
    assert leaders(placed) == {1: 10, 2: 10, 3: 10, 4: 10}


def test_placement_does_not_count_replicas_when_they_are_being_removed() -> None:
    moving = partition(3, 1, isr=(1,), adding=(3,), removing=(1,))
    image = image_with(brokers=[1, 2, 3, 4], topics={"old": [moving] * 4, "other": [(4, 2)] * 2})
    assert place_replicas(image, partitions=1, replication_factor=1, seed=1) == [(1,)]


def test_placement_continues_a_topic_when_partitions_are_added() -> None:
    image = image_with(brokers=[1, 2, 3])
    existing = [(1, 2), (1, 3), (2, 1)]
    placed = place_replicas(
        image, partitions=3, replication_factor=2, start_partition=3, seed=2, existing=existing
    )
    assert leaders([*existing, *placed]) == {1: 2, 2: 2, 3: 2}


def test_placement_leaves_fenced_and_stopping_brokers_out_when_the_others_suffice() -> None:
    image = image_with(brokers=[1, 2, broker(3, fenced=True), broker(4, shutting_down=True)])
    placed = place_replicas(image, partitions=20, replication_factor=2, seed=3)
    assert set(holders(placed)) == {1, 2}


def test_placement_takes_fenced_brokers_last_when_nothing_else_suffices() -> None:
    image = image_with(brokers=[1, broker(2, fenced=True), broker(3, shutting_down=True)])
    placed = place_replicas(image, partitions=20, replication_factor=2, seed=3)
    assert {replicas[0] for replicas in placed} == {1}
    assert holders(placed) == {1: 20, 2: 10, 3: 10}


def test_placement_is_the_same_when_the_seed_is() -> None:
    image = image_with(brokers=range(10))
    first, again, other = (
        place_replicas(image, partitions=20, replication_factor=3, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_placement_gives_a_leader_different_followers_when_there_are_many_partitions() -> None:
    placed = place_replicas(image_with(brokers=range(6)), partitions=300, replication_factor=3, seed=9)
    seconds = Counter(replicas[1] for replicas in placed if replicas[0] == 0)
    assert set(seconds) == {1, 2, 3, 4, 5}


def test_placement_says_how_many_brokers_there_are_when_they_are_too_few() -> None:
    message = refusal(image_with(brokers=[1, 2, broker(3, fenced=True)]), replication_factor=4)
    assert "needs as many brokers, and 3 are registered (1, 2, 3)" in message
    assert "at most 3" in message


def test_placement_says_what_to_start_when_no_broker_can_take_partitions() -> None:
    assert "no broker is registered yet: start one" in refusal(image_with(), replication_factor=1)
    fenced = image_with(brokers=[broker(1, fenced=True), broker(2, shutting_down=True)])
    assert "(1, 2) takes new partitions" in refusal(fenced, replication_factor=1)


def test_placement_refuses_when_the_replication_factor_is_no_number_of_replicas() -> None:
    assert "must be 1 or more, not -2" in refusal(image_with(brokers=[1]), replication_factor=-2)


def test_placement_shortens_the_list_when_there_are_very_many_brokers() -> None:
    assert "19 and 80 more)" in refusal(image_with(brokers=range(100)), replication_factor=101)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ClusterImage, int]:
    """Brokers in racks and hosts of any shape, some not active, some partitions there; a possible factor."""
    count = draw(st.integers(1, 10))
    registered = [
        broker(
            number,
            rack=draw(st.sampled_from(("", "a", "b", "c"))),
            host=draw(st.sampled_from(("h", "i", "j"))),
            fenced=number > 0 and draw(st.integers(0, 4)) == 0,
            shutting_down=number > 0 and draw(st.integers(0, 6)) == 0,
        )
        for number in range(count)
    ]
    held = draw(st.lists(st.permutations(range(count)), max_size=8))
    replicas = [tuple(one[: draw(st.integers(1, count))]) for one in held]
    topics = {"held": replicas} if replicas else {}
    return image_with(brokers=registered, topics=topics), draw(st.integers(1, count))


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(1, 30), st.integers(0, 2**64))
def test_placement_is_valid_and_spread_when_clusters_are_arbitrary(
    cluster: tuple[ClusterImage, int], partitions: int, seed: int
) -> None:
    image, factor = cluster
    active = {one.broker_id for one in image.brokers.values() if one.active}
    placed = place_replicas(image, partitions=partitions, replication_factor=factor, seed=seed)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= set(image.brokers)
        assert replicas[0] in active
        usable = [one for one in replicas if one in active]
        assert len(usable) == min(factor, len(active))
        assert list(replicas[: len(usable)]) == usable
        racks = {one: image.brokers[one].rack for one in active}
        check_even(usable, racks)
        for rack in set(racks.values()):
            hosts = {one: image.brokers[one].host for one in active if racks[one] == rack}
            check_even([one for one in usable if one in hosts], hosts)


def check_even(chosen: list[int], group_of: dict[int, str]) -> None:
    """No group has two more than another that could have taken one of them."""
    size = Counter(group_of.values())
    used = Counter(group_of[one] for one in chosen)
    for group in size:
        for other in size:
            assert used[group] <= used[other] + 1 or used[other] == size[other]


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.integers(1, 60), st.integers(0, 2**32))
def test_placement_is_balanced_when_racks_are_alike(
    racks: int, brokers_of_rack: int, factor: int, partitions: int, seed: int
) -> None:
    count = racks * brokers_of_rack
    image = image_with(brokers=[broker(one, rack=f"rack-{one % racks}") for one in range(count)])
    placer = Placer(image, seed=seed)
    placed: list[tuple[int, ...]] = []
    for _ in range(3):
        topic = placer.place(partitions=partitions, replication_factor=min(factor, count))
        assert spread(leaders(topic), image.brokers) <= 1
        assert spread(holders(topic), image.brokers) <= 2
        placed += topic
    assert spread(leaders(placed), image.brokers) <= 1
    assert spread(holders(placed), image.brokers) <= 3


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(0, 2**32))
def test_placement_shares_leaders_among_active_brokers_when_clusters_are_arbitrary(
    cluster: tuple[ClusterImage, int], seed: int
) -> None:
    image, factor = cluster
    active = [one.broker_id for one in image.brokers.values() if one.active]
    placed = place_replicas(image, partitions=40, replication_factor=factor, seed=seed)
    assert spread(leaders(placed), active) <= 1
