"""The next state of a partition: who is in sync, who leads, and under which epochs.

Every change of a partition that exists goes through `next_partition`; the operations (election, replication,
reassignment) only say what they want. What holds afterwards, whatever was wanted:

- The leader, if there is one, is in the ISR; every ISR member is a replica that may lead.
- ISR and ELR have no member in common. As long as nothing unclean was asked for, each of their members has
  every committed record, because a leader commits only while the ISR has `min.insync.replicas` members
  (KIP-966): whoever leaves an ISR that is smaller than that, or becomes so by it, misses nothing until the
  ISR has grown again. So those go into the ELR, and the ELR is emptied as soon as the ISR is large enough.
  The ISR may become empty: then a member of the ELR leads as soon as one may.
- Only `lost` replicas leave ISR and ELR both. When these have become empty so, nobody is known to have
  everything committed, and only an unclean election brings a leader, preferably the last known one.
- The partition epoch grows by one with every change. The leader epoch grows when the leader changes (also to
  none), when a replica leaves the replicas, and when it is asked for.

Why the leader epoch grows with a replica that leaves: its log is deleted. If it were added again under the
same leader epoch, an acknowledgement that was still on its way from before would count for the new, empty
log, and take it into the ISR. Why not when the ISR shrinks: the leader goes on counting those who leave until
it knows that the change is committed, and the partition epoch refuses what it based on the ISR before. A new
epoch would only make followers and clients look for a leader that they have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from tailrace.cluster.common.image import NO_LEADER, PartitionImage

# In place of a replica's log directory that is not known.
UNKNOWN_DIRECTORY = UUID(int=0)


class Rules(NamedTuple):
    """What the topic's settings say. `min_insync` is for a given replication factor."""

    min_insync: Callable[[int], int]
    unclean: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to change. None stands for: as it is."""

    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    directories: tuple[UUID, ...] | None = None
    # Replicas that may have lost what they had acknowledged.
    lost: frozenset[int] = frozenset()
    # The first replica takes over if it is in sync.
    prefer_first: bool = False
    # Somebody said that a leader without everything committed is better than none.
    force_leader: bool = False
    recovered: bool = False
    new_leader_epoch: bool = False
    new_partition_epoch: bool = False


class _Assignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def targets(self) -> tuple[int, ...]:
        return _without(self.replicas, self.removing)


def next_partition(
    now: PartitionImage, wanted: Wanted, *, rules: Rules, may_lead: Callable[[int], bool]
) -> PartitionImage:
    """The partition as it is to be: `now` itself when nothing changes."""
    assignment = _Assignment(
        now.replicas if wanted.replicas is None else wanted.replicas,
        now.adding if wanted.adding is None else wanted.adding,
        now.removing if wanted.removing is None else wanted.removing,
    )
    # Where nobody ever led, nothing was ever written that could be lost.
    lost = frozenset() if _never_led(now) else wanted.lost
    complete = [one for one in assignment.replicas if (one in now.isr or one in now.elr) and one not in lost]
    isr = tuple(
        one
        for one in (now.isr if wanted.isr is None else wanted.isr)
        if one in assignment.replicas and one not in lost and may_lead(one)
    )
    unclean = False
    if not isr:
        isr = tuple(one for one in complete if may_lead(one))[:1]
    if not isr and (rules.unclean or wanted.force_leader):
        isr = _best_guess(now, assignment, may_lead, forced=wanted.force_leader)
        unclean = bool(isr)
    if (assignment.adding or assignment.removing) and set(assignment.targets) <= set(isr):
        isr = _without(isr, assignment.removing)
        assignment = _Assignment(assignment.targets, (), ())
    needed = effective_min_insync(rules.min_insync, *assignment)
    elr: tuple[int, ...] = ()
    if len(isr) < needed and not unclean:
        elr = tuple(one for one in complete if one in assignment.replicas and one not in isr)
    leader = _leader(now.leader, assignment.replicas, isr, wanted.prefer_first)
    changed = now._replace(
        replicas=assignment.replicas,
        adding=assignment.adding,
        removing=assignment.removing,
        isr=isr,
        elr=elr,
        leader=leader,
        last_known_leader=_last_known_leader(now, leader),
        recovering=unclean or (now.recovering and not wanted.recovered),
        directories=_directories(now, wanted, assignment.replicas),
    )
    return _with_epochs(now, changed, wanted)


def effective_min_insync(
    min_insync: Callable[[int], int],
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> int:
    """How large the ISR must be for anything to be committed.

    More than there are replicas cannot be asked for. During a reassignment the smaller of the old and the new
    replication factor counts: a number that is too small here only forgets members of the ELR earlier than
    needed, while one that is larger than what the leader goes by would keep some that lack committed records.
    """
    factor = len(replicas) - max(len(adding), len(removing))
    return min(min_insync(factor), factor)


def original_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """Those from before the reassignment that is going on, if one is."""
    return _without(partition.replicas, partition.adding)


def directory_of(partition: PartitionImage, broker_id: int) -> UUID:
    """Where the broker keeps the replica, or `UNKNOWN_DIRECTORY`."""
    if not partition.directories or broker_id not in partition.replicas:
        return UNKNOWN_DIRECTORY
    return partition.directories[partition.replicas.index(broker_id)]


def _never_led(partition: PartitionImage) -> bool:
    return partition.leader == NO_LEADER and partition.last_known_leader == NO_LEADER


def _best_guess(
    now: PartitionImage, assignment: _Assignment, may_lead: Callable[[int], bool], *, forced: bool
) -> tuple[int, ...]:
    """Who is likely to have most, when nobody is known to have everything.

    A replica that is being added may have nothing at all. It is taken only when somebody insists, and last.
    """
    guesses = [
        now.last_known_leader,
        *_without(assignment.replicas, assignment.adding),
        *(assignment.adding if forced else ()),
    ]
    return tuple(one for one in guesses if one in assignment.replicas and may_lead(one))[:1]


def _leader(current: int, replicas: tuple[int, ...], isr: tuple[int, ...], prefer_first: bool) -> int:
    if current in isr and not (prefer_first and replicas[0] in isr):
        return current
    return next((one for one in replicas if one in isr), NO_LEADER)


def _last_known_leader(now: PartitionImage, leader: int) -> int:
    if leader != NO_LEADER:
        return NO_LEADER
    return now.last_known_leader if now.leader == NO_LEADER else now.leader


def _directories(now: PartitionImage, wanted: Wanted, replicas: tuple[int, ...]) -> tuple[UUID, ...]:
    known = now if wanted.directories is None else now._replace(directories=wanted.directories)
    return tuple(directory_of(known, one) for one in replicas) if known.directories else ()


def _with_epochs(now: PartitionImage, changed: PartitionImage, wanted: Wanted) -> PartitionImage:
    bumps_leader = (
        wanted.new_leader_epoch
        or changed.leader != now.leader
        or not set(now.replicas) <= set(changed.replicas)
    )
    if changed == now and not bumps_leader and not wanted.new_partition_epoch:
        return now
    return changed._replace(
        leader_epoch=now.leader_epoch + bumps_leader, partition_epoch=now.partition_epoch + 1
    )


def _without(brokers: tuple[int, ...], left_out: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(one for one in brokers if one not in left_out)
