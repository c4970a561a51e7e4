"""A follower: what it takes, what it cuts, what it acknowledges, and when."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.journal import Journal
from tailrace.cluster.controller.quorum.messages import (
    AppendEntries,
    AppendResult,
    StaleTerm,
    VoteRequest,
    encode,
)
from tests.support.fault_files import PowerLost, on
from tests.support.raft_cluster import DIRECTORY
from tests.unit.controller.quorum.lone import Lone, entry

JOURNAL = f"{DIRECTORY}/journal"


def result(lone: Lone) -> AppendResult:
    [found] = lone.taken(AppendResult)
    return found


def test_entries_are_acknowledged_when_they_follow_the_log() -> None:
    lone = Lone(1, 1)
    lone.append(2, 1, 1, term=1, prev=(3, 1))
    assert lone.log == [1, 1, 1, 1]
    assert result(lone) == AppendResult(1, 6, True, True)


def test_acknowledgement_leaves_after_the_sync_when_entries_arrive() -> None:
    lone = Lone(1)
    sent_before_sync: list[int] = []
    lone.files.before_sync = lambda path: sent_before_sync.append(len(lone.sent))
    lone.append(2, 1, 1, term=1, prev=(2, 1))
    lone.append(2, 1, term=1, prev=(4, 1))
    assert (sent_before_sync, len(lone.sent)) == ([0, 1], 2)


def test_one_sync_and_one_acknowledgement_suffice_when_many_messages_arrive_in_a_tick() -> None:
    lone = Lone(1)
    before = lone.files.datasyncs[JOURNAL]
    lone.receive(2, *(AppendEntries(1, 1, index, 1, False, (entry(index + 1, 1),)) for index in range(2, 22)))
    assert lone.files.datasyncs[JOURNAL] == before + 1
    assert result(lone) == AppendResult(1, 23, True, True)


def test_acknowledged_entries_are_there_when_the_power_goes_at_any_step() -> None:
    def run(lone: Lone) -> None:
        lone.append(2, 1, 1, term=1, prev=(2, 1))
        lone.append(2, 1, term=1, prev=(4, 1))
        lone.append(3, 2, 2, term=2, prev=(5, 1))
        lone.append(3, 2, term=2, prev=(7, 2), commit=5)

    reference = Lone(1)
    first = reference.files.steps
    run(reference)
    for step in range(first + 1, reference.files.steps + 1):
        lone = Lone(1)
        lone.files.crash_after(step)
        with suppress(PowerLost):
            run(lone)
        acknowledged = [one for _, one in lone.sent if isinstance(one, AppendResult) and one.success]
        for seed in range(5):
            found = Journal.read(lone.files.crash(Random(seed)), JOURNAL)
            if acknowledged:
                assert found[-1].index >= acknowledged[-1].next_index - 1, (step, seed)


def test_nothing_is_acknowledged_and_the_node_ends_when_the_disk_fails() -> None:
    lone = Lone(1)
    lone.files.fail(errno.EIO, on("datasync", "journal"))
    with pytest.raises(TailraceError, match="writing the Raft journal failed"):
        lone.append(2, 1, term=1, prev=(2, 1))
    assert lone.taken(AppendResult) == []
    steps = lone.files.steps
    with pytest.raises(TailraceError, match="writing the Raft journal failed"):
        lone.append(2, 1, term=1, prev=(2, 1))
    lone.node.close()
    assert (lone.files.steps, lone.sent) == (steps, [])
    assert lone.files.open_handles == 0


# What is cut, and what is not.


def test_log_stays_when_a_heartbeat_speaks_of_an_earlier_entry() -> None:
    lone = Lone(1, 1, 1, 1)
    lone.append(2, term=1, prev=(3, 1))
    assert lone.log == [1, 1, 1, 1]
    assert result(lone).next_index == 4


def test_nothing_is_written_when_entries_come_again() -> None:
    lone = Lone(1, 1, 1, 1)
    lone.append(2, 1, term=1, prev=(5, 1))
    steps = lone.files.steps
    lone.append(2, 1, 1, term=1, prev=(2, 1))
    assert lone.log == [1, 1, 1, 1, 1]
    assert lone.files.steps == steps
    assert lone.taken(AppendResult)[-1].next_index == 5


def test_tail_is_cut_from_the_first_contradiction_when_entries_of_another_term_arrive() -> None:
    lone = Lone(1, 1, 2, 2, 2)
    lone.append(3, 1, 3, term=3, prev=(2, 1))
    assert lone.log == [1, 1, 3]
    assert result(lone) == AppendResult(3, 5, True, True)


def test_tail_of_an_old_leader_is_not_committed_when_a_heartbeat_has_compared_less() -> None:
    lone = Lone(1, 1, 2, 2)
    lone.append(3, term=3, prev=(3, 1), commit=5)
    assert lone.commit == 3
    assert lone.log == [1, 1, 2, 2]


def test_leader_is_told_where_to_go_on_when_entries_before_are_missing() -> None:
    lone = Lone(1, 1)
    lone.append(2, 1, term=1, prev=(8, 1))
    assert result(lone) == AppendResult(1, 4, False, True)


def test_leader_is_told_the_beginning_of_the_term_when_the_logs_differ() -> None:
    lone = Lone(1, 2, 2, 2, 2)
    lone.append(3, 3, term=3, prev=(6, 3))
    assert result(lone) == AppendResult(3, 3, False, True)
    assert lone.log == [1, 2, 2, 2, 2]


def test_node_ends_when_a_leader_contradicts_what_was_committed() -> None:
    lone = Lone(1, 1, 1)
    lone.append(2, term=1, prev=(4, 1), commit=4)
    assert lone.commit == 4
    with pytest.raises(TailraceError, match="entry 3 of the metadata log, which was committed") as raised:
        lone.append(3, 2, 2, term=2, prev=(2, 1))
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT
    assert Journal.read(lone.files.kill(), JOURNAL)[-1].index == 4


def test_cut_entries_are_gone_for_good_when_the_power_goes_after_the_new_ones_were_acknowledged() -> None:
    lone = Lone(1, 1, 2, 2, 2)
    lone.append(3, 3, term=3, prev=(3, 1))
    for seed in range(10):
        found = Journal.read(lone.files.crash(Random(seed)), JOURNAL)
        assert [one.term for one in found] == [0, 1, 1, 3]


# Terms.


def test_leader_of_an_older_term_is_told_the_newer_one() -> None:
    lone = Lone(1, term=5)
    lone.append(2, 1, term=4, prev=(2, 1))
    assert lone.taken(StaleTerm) == [StaleTerm(5)]
    assert lone.log == [1]


def test_acknowledgement_is_not_sent_when_the_term_has_moved_on_in_the_same_tick() -> None:
    lone = Lone(1)
    lone.receive(
        2,
        AppendEntries(1, 1, 2, 1, False, (entry(3, 1),)),
        VoteRequest(2, 9, 1, 2),
    )
    assert lone.taken(AppendResult) == []


def test_acknowledgement_is_for_the_newer_leader_when_both_speak_in_one_tick() -> None:
    lone = Lone(1)
    lone.node.on_message(2, encode(AppendEntries(1, 1, 2, 1, False, (entry(3, 1), entry(4, 1)))))
    lone.receive(3, AppendEntries(2, 1, 2, 1, False, (entry(3, 2),)))
    assert [(peer, one) for peer, one in lone.sent if isinstance(one, AppendResult)] == [
        (3, AppendResult(2, 4, True, True))
    ]
    assert lone.log == [1, 2]


def test_files_are_released_when_the_node_is_closed() -> None:
    lone = Lone(1)
    lone.append(2, 1, term=1, prev=(2, 1))
    lone.node.close()
    lone.node.close()
    assert lone.files.open_handles == 0
