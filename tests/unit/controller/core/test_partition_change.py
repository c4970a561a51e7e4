from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

import pytest

from tailrace.cluster.common.image import NO_LEADER, PartitionImage
from tailrace.cluster.controller.core.partition_change import (
    UNKNOWN_DIRECTORY,
    Rules,
    Wanted,
    directory_of,
    effective_min_insync,
    next_partition,
    original_replicas,
)
from tests.support.metadata import directory, partition


def rules(min_insync: int = 1, *, unclean: bool = False) -> Rules:
    return Rules(lambda _: min_insync, unclean)


def after(
    now: PartitionImage,
    wanted: Wanted,
    *,
    alive: Collection[int],
    min_insync: int = 1,
    unclean: bool = False,
) -> PartitionImage:
    may_lead: Callable[[int], bool] = lambda broker_id: broker_id in alive  # noqa: E731
    return next_partition(now, wanted, rules=rules(min_insync, unclean=unclean), may_lead=may_lead)


def epochs(image: PartitionImage) -> tuple[int, int]:
    return image.leader_epoch, image.partition_epoch


def test_next_partition_is_the_same_object_when_nothing_changes() -> None:
    now = partition(1, 2, 3)
    assert after(now, Wanted(), alive={1, 2, 3}) is now


def test_next_partition_elects_by_preference_when_the_leader_is_gone() -> None:
    now = partition(3, 1, 2, isr=(2, 1, 3), leader=3, leader_epoch=4, partition_epoch=9)
    changed = after(now, Wanted(), alive={1, 2})
    assert (changed.leader, changed.isr) == (1, (2, 1))
    assert epochs(changed) == (5, 10)


def test_leader_epoch_stays_when_only_the_isr_shrinks() -> None:
    changed = after(partition(1, 2, 3), Wanted(isr=(1, 2)), alive={1, 2, 3})
    assert changed.leader == 1
    assert epochs(changed) == (0, 1)


def test_leader_epoch_grows_when_a_replica_leaves() -> None:
    wanted = Wanted(replicas=(1, 2))
    changed = after(partition(1, 2, 3), wanted, alive={1, 2, 3})
    assert (changed.leader, changed.isr) == (1, (1, 2))
    assert epochs(changed) == (1, 1)


def test_leader_epoch_stays_when_a_replica_is_added() -> None:
    wanted = Wanted(replicas=(1, 2, 3), adding=(3,))
    changed = after(partition(1, 2), wanted, alive={1, 2, 3})
    assert changed.adding == (3,)
    assert epochs(changed) == (0, 1)


def test_leader_epoch_grows_when_asked_for() -> None:
    changed = after(partition(1, 2), Wanted(new_leader_epoch=True), alive={1, 2})
    assert epochs(changed) == (1, 1)


def test_partition_epoch_alone_grows_when_asked_for() -> None:
    changed = after(partition(1, 2), Wanted(new_partition_epoch=True), alive={1, 2})
    assert epochs(changed) == (0, 1)


def test_isr_becomes_empty_and_the_elr_keeps_its_last_member_when_that_is_gone() -> None:
    now = partition(1, 2, 3, isr=(2,))
    changed = after(now, Wanted(), alive={1, 3})
    assert (changed.isr, changed.elr, changed.leader) == ((), (2,), NO_LEADER)
    assert changed.last_known_leader == 2
    assert epochs(changed) == (1, 1)


def test_elr_takes_whom_the_isr_loses_when_it_falls_below_min_insync() -> None:
    changed = after(partition(1, 2, 3), Wanted(isr=(1,)), alive={1, 2, 3}, min_insync=2)
    assert (changed.isr, changed.elr) == ((1,), (2, 3))


def test_elr_stays_empty_when_the_isr_is_still_large_enough() -> None:
    changed = after(partition(1, 2, 3), Wanted(isr=(1, 2)), alive={1, 2, 3}, min_insync=2)
    assert changed.elr == ()


def test_elr_is_emptied_when_the_isr_is_large_enough_again() -> None:
    now = partition(1, 2, 3, isr=(1,), elr=(2,))
    changed = after(now, Wanted(isr=(1, 3)), alive={1, 2, 3}, min_insync=2)
    assert (changed.isr, changed.elr) == ((1, 3), ())


def test_elr_keeps_the_others_when_one_of_it_joins_the_isr_and_that_is_still_too_small() -> None:
    now = partition(1, 2, 3, 4, isr=(1,), elr=(2, 3))
    changed = after(now, Wanted(isr=(1, 2)), alive={1, 2, 3, 4}, min_insync=3)
    assert (changed.isr, changed.elr) == ((1, 2), (3,))


def test_elr_member_leads_when_the_isr_becomes_empty() -> None:
    now = partition(1, 2, 3, isr=(1,), elr=(2, 3))
    changed = after(now, Wanted(), alive={2, 3}, min_insync=2)
    assert (changed.leader, changed.isr, changed.elr) == (2, (2,), (1, 3))
    assert not changed.recovering
    assert changed.leader_epoch == 1


def test_elr_is_emptied_when_its_member_leads_and_min_insync_is_one() -> None:
    now = partition(1, 2, isr=(), leader=NO_LEADER, elr=(1, 2), last_known_leader=1)
    changed = after(now, Wanted(), alive={2})
    assert (changed.leader, changed.isr, changed.elr) == (2, (2,), ())
    assert changed.last_known_leader == NO_LEADER


def test_replica_outside_isr_and_elr_never_leads_when_the_election_is_clean() -> None:
    now = partition(1, 2, 3, isr=(1,))
    changed = after(now, Wanted(), alive={2, 3}, min_insync=2)
    assert (changed.leader, changed.elr) == (NO_LEADER, (1,))


def test_lost_replica_leaves_isr_and_elr_when_others_remain() -> None:
    now = partition(1, 2, 3, isr=(1,), elr=(2, 3))
    changed = after(now, Wanted(lost=frozenset({2})), alive={1, 3}, min_insync=2)
    assert (changed.isr, changed.elr, changed.leader) == ((1,), (3,), 1)


def test_lost_replica_leaves_only_its_name_behind_when_it_was_the_last() -> None:
    now = partition(1, 2, 3, isr=(1,))
    changed = after(now, Wanted(lost=frozenset({1})), alive={2, 3})
    assert (changed.isr, changed.elr, changed.leader) == ((), (), NO_LEADER)
    assert changed.last_known_leader == 1


def test_lost_replica_keeps_its_place_when_nobody_ever_led() -> None:
    now = partition(1, 2, leader=NO_LEADER)
    changed = after(now, Wanted(lost=frozenset({1})), alive=())
    assert (changed.isr, changed.elr) == ((), (1, 2))


def test_last_known_leader_is_who_led_last_when_the_elr_is_lost_one_by_one() -> None:
    now = partition(1, 2, isr=(2,), leader=2, elr=(1,))
    offline = after(now, Wanted(), alive=(), min_insync=2)
    assert (offline.elr, offline.last_known_leader) == ((1, 2), 2)
    first = after(offline, Wanted(lost=frozenset({2})), alive=(), min_insync=2)
    second = after(first, Wanted(lost=frozenset({1})), alive=(), min_insync=2)
    assert (second.isr, second.elr, second.last_known_leader) == ((), (), 2)


def test_unclean_election_prefers_the_last_known_leader_when_it_is_there() -> None:
    now = partition(1, 2, 3, isr=(), last_known_leader=3, leader=NO_LEADER)
    changed = after(now, Wanted(), alive={1, 3}, unclean=True)
    assert (changed.leader, changed.isr, changed.recovering) == (3, (3,), True)
    assert changed.last_known_leader == NO_LEADER


def test_unclean_election_takes_any_replica_when_nothing_better_is_there() -> None:
    now = partition(1, 2, 3, isr=(1,), elr=(2,))
    changed = after(now, Wanted(), alive={3}, min_insync=2, unclean=True)
    assert (changed.leader, changed.isr, changed.elr, changed.recovering) == (3, (3,), (), True)


def test_unclean_election_does_not_happen_when_a_clean_one_is_possible() -> None:
    now = partition(1, 2, 3, isr=(1,), elr=(3,))
    changed = after(now, Wanted(force_leader=True), alive={2, 3}, min_insync=2, unclean=True)
    assert (changed.leader, changed.recovering) == (3, False)


def test_unclean_election_passes_over_a_replica_being_added_when_nobody_insists() -> None:
    now = partition(4, 1, adding=(4,), removing=(1,), isr=(), leader=NO_LEADER, elr=(1,), last_known_leader=1)
    assert after(now, Wanted(), alive={4}, unclean=True) is now
    assert after(now, Wanted(force_leader=True), alive={4}).leader == 4


def test_recovering_stays_when_the_leader_comes_back() -> None:
    now = partition(1, 2, isr=(), elr=(1,), leader=NO_LEADER, last_known_leader=1, recovering=True)
    assert after(now, Wanted(), alive={1}).recovering


def test_recovering_ends_when_the_leader_says_so() -> None:
    now = partition(1, 2, isr=(1,), recovering=True)
    changed = after(now, Wanted(recovered=True), alive={1})
    assert not changed.recovering
    assert epochs(changed) == (0, 1)


def test_preferred_replica_takes_over_when_it_is_in_sync() -> None:
    changed = after(partition(1, 2, leader=2), Wanted(prefer_first=True), alive={1, 2})
    assert (changed.leader, changed.leader_epoch) == (1, 1)


def test_leader_stays_when_the_preferred_replica_is_not_in_sync() -> None:
    now = partition(1, 2, isr=(2,))
    assert after(now, Wanted(prefer_first=True), alive={1, 2}) is now


def test_reassignment_goes_on_when_a_target_is_not_in_sync() -> None:
    now = partition(4, 5, 1, 2, adding=(4, 5), removing=(1, 2), isr=(1, 2), leader=1)
    changed = after(now, Wanted(isr=(1, 2, 4)), alive={1, 2, 4, 5})
    assert (changed.replicas, changed.isr, changed.leader) == ((4, 5, 1, 2), (1, 2, 4), 1)


def test_reassignment_completes_when_all_targets_are_in_sync() -> None:
    now = partition(4, 5, 1, 2, adding=(4, 5), removing=(1, 2), isr=(1, 2, 4), leader=1)
    changed = after(now, Wanted(isr=(1, 2, 4, 5)), alive={1, 2, 4, 5})
    assert (changed.replicas, changed.isr, changed.leader) == ((4, 5), (4, 5), 4)
    assert not changed.reassigning
    assert epochs(changed) == (1, 1)


def test_reassignment_completes_when_the_last_target_is_elected_out_of_the_elr() -> None:
    now = partition(4, 1, adding=(4,), removing=(1,), isr=(1,), elr=(4,))
    changed = after(now, Wanted(), alive={4})
    assert (changed.replicas, changed.isr, changed.elr, changed.leader) == ((4,), (4,), (), 4)


def test_directories_follow_their_replicas_when_these_change() -> None:
    now = partition(1, 2, 3, directories=(directory(1), directory(2), directory(3)))
    changed = after(now, Wanted(replicas=(4, 3, 1), adding=(4,)), alive={1, 2, 3, 4})
    assert changed.directories == (UNKNOWN_DIRECTORY, directory(3), directory(1))
    assert directory_of(changed, 3) == directory(3)
    assert directory_of(changed, 9) == UNKNOWN_DIRECTORY


def test_directories_stay_empty_when_none_was_told() -> None:
    no_directories: tuple[UUID, ...] = ()
    changed = after(partition(1, 2), Wanted(replicas=(2, 1)), alive={1, 2})
    assert changed.directories == no_directories


@pytest.mark.parametrize(
    ("replicas", "adding", "removing", "set_to", "needed"),
    [
        ((1, 2, 3), (), (), 2, 2),
        ((1, 2), (), (), 3, 2),
        ((4, 5, 1, 2, 3), (4, 5), (1, 2, 3), 3, 2),
        ((1, 2, 3, 4), (3, 4), (), 3, 2),
    ],
)
def test_min_insync_is_bounded_by_the_smaller_replication_factor_when_it_is_set_higher(
    replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...], set_to: int, needed: int
) -> None:
    assert effective_min_insync(lambda _: set_to, replicas, adding, removing) == needed


def test_original_replicas_are_those_not_being_added_when_a_reassignment_goes_on() -> None:
    assert original_replicas(partition(4, 2, 1, adding=(4,), removing=(1,), isr=(1, 2))) == (2, 1)
