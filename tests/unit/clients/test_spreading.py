"""Proposals of where replicas should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.clients.core.spreading import propose
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition

History = tuple[dict[TopicPartition, Sequence[int]], list[int], dict[int, str | None]]


def assignment(*replicas: Sequence[int]) -> dict[TopicPartition, Sequence[int]]:
    return {TopicPartition("t", number): one for number, one in enumerate(replicas)}


def loads(proposed: Mapping[TopicPartition, Sequence[int]]) -> Counter[int]:
    return Counter(one for replicas in proposed.values() for one in replicas)


def leads(proposed: Mapping[TopicPartition, Sequence[int]]) -> Counter[int]:
    return Counter(replicas[0] for replicas in proposed.values())


def test_nothing_moves_when_all_is_even() -> None:
    current = assignment((1, 2), (2, 3), (3, 1))
    assert propose(current, [1, 2, 3], {}) == current


def test_only_replicas_of_a_removed_broker_move() -> None:
    current = assignment((1, 2), (2, 3), (3, 4), (4, 1))
    proposed = propose(current, [1, 2, 3], {})
    assert {one for replicas in proposed.values() for one in replicas} == {1, 2, 3}
    for partition, replicas in current.items():
        stayed = set(replicas) - {4}
        assert stayed <= set(proposed[partition])


def test_new_broker_gets_its_share_and_no_more() -> None:
    current = assignment((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    proposed = propose(current, [1, 2, 3], {})
    assert loads(proposed) == {1: 4, 2: 4, 3: 4}
    moved = sum(len(set(proposed[one]) - set(current[one])) for one in current)
    assert moved == 4


def test_leaders_are_spread() -> None:
    proposed = propose(assignment(*[(1, 2, 3)] * 9), [1, 2, 3], {})
    assert leads(proposed) == {1: 3, 2: 3, 3: 3}


def test_replicas_go_to_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    proposed = propose(assignment((1, 9), (2, 9), (9, 8), (8, 9)), [1, 2, 3, 4], racks)
    for replicas in proposed.values():
        assert {racks[one] for one in replicas} == {"a", "b"}
    assert set(loads(proposed).values()) == {2}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(TailraceError, match="name 3 brokers or more, not 2") as raised:
        propose(assignment((1, 2, 3)), [1, 2], {})
    assert raised.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@st.composite
def histories(draw: st.DrawFn) -> History:
    every = st.integers(0, 7)
    factor = draw(st.integers(1, 3))
    replicas = st.lists(every, min_size=factor, max_size=factor, unique=True)
    current = assignment(*draw(st.lists(replicas, min_size=1, max_size=20)))
    brokers = draw(st.lists(every, min_size=factor, max_size=8, unique=True))
    racks = draw(st.dictionaries(every, st.sampled_from(["a", "b", "c", None])))
    return current, brokers, racks


@given(histories())
def test_proposals_are_valid_even_and_stable(history: History) -> None:
    current, brokers, racks = history
    proposed = propose(current, brokers, racks)
    assert proposed.keys() == current.keys()
    for partition, replicas in proposed.items():
        assert len(set(replicas)) == len(replicas) == len(current[partition])
        assert set(replicas) <= set(brokers)
    assert propose(current, brokers, racks) == proposed
    again = propose(proposed, brokers, racks)
    assert {one: set(replicas) for one, replicas in again.items()} == {
        one: set(replicas) for one, replicas in proposed.items()
    }, "what was proposed is left in its place"
    if not any(racks.get(one) for one in brokers):
        counted = [loads(proposed)[one] for one in brokers]
        assert max(counted) - min(counted) <= 1
