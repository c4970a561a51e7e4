"""Term, vote and phase: durable when set, never taken back, refused when damaged or another's."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.votes import Phase, VoteFile, VoteState, read_votes
from tests.support.fault_files import FaultFiles, PowerLost, on

PATH = "/votes"
NEW = VoteState(node_id=1, voters=(1, 2, 3))


@pytest.fixture
def files() -> FaultFiles:
    return FaultFiles(Random(5))


def test_votes_come_back_when_the_power_went_after_they_were_set(files: FaultFiles) -> None:
    votes = VoteFile.create(files, PATH, NEW)
    votes.set_term(4, None)
    votes.set_term(4, 2)
    votes.enter(Phase.FOUNDING)
    for seed in range(10):
        found = VoteFile.open(files.crash(Random(seed)), PATH, 1, [3, 2, 1]).state
        assert found == VoteState(node_id=1, voters=(1, 2, 3), term=4, vote=2, phase=Phase.FOUNDING)


def test_votes_are_the_old_or_the_new_ones_when_the_power_goes_at_any_step() -> None:
    def run(files: FaultFiles) -> None:
        votes = VoteFile.create(files, PATH, NEW)
        votes.set_term(5, None)
        votes.set_term(6, 1)

    reference = FaultFiles(Random(1))
    run(reference)
    for step in range(1, reference.steps + 1):
        files = FaultFiles(Random(step))
        files.crash_after(step)
        with suppress(PowerLost):
            run(files)
        for seed in range(5):
            survivor = files.crash(Random(seed))
            if survivor.exists(PATH):
                assert (read_votes(survivor, PATH).term, read_votes(survivor, PATH).vote) in [
                    (0, None),
                    (5, None),
                    (6, 1),
                ]


@pytest.mark.parametrize(("term", "vote"), [(3, None), (4, None), (4, 3)])
def test_set_term_refuses_when_it_would_take_back_a_term_or_vote(
    files: FaultFiles, term: int, vote: int | None
) -> None:
    votes = VoteFile.create(files, PATH, NEW)
    votes.set_term(4, 2)
    with pytest.raises(ValueError, match="cannot follow"):
        votes.set_term(term, vote)


def test_phase_stays_when_an_earlier_one_is_entered(files: FaultFiles) -> None:
    votes = VoteFile.create(files, PATH, NEW)
    votes.enter(Phase.CAUGHT_UP)
    votes.enter(Phase.FOUNDING)
    assert votes.state.phase is Phase.CAUGHT_UP


def test_nothing_is_written_when_nothing_changes(files: FaultFiles) -> None:
    votes = VoteFile.create(files, PATH, NEW)
    votes.set_term(4, 2)
    steps = files.steps
    votes.set_term(4, 2)
    votes.enter(Phase.EMPTY)
    assert files.steps == steps


@pytest.mark.parametrize("position", [0, 12, 30, 60, 90])
def test_open_is_refused_when_a_bit_is_flipped(files: FaultFiles, position: int) -> None:
    VoteFile.create(files, PATH, NEW)
    files.flip_bit(PATH, position)
    with pytest.raises(
        TailraceError, match=r"/votes .*could vote twice in a term.*empty directory"
    ) as raised:
        VoteFile.open(files, PATH, 1, [1, 2, 3])
    assert raised.value.code is ErrorCode.STORAGE_CORRUPT


def test_open_is_refused_when_the_directory_belongs_to_another_controller(files: FaultFiles) -> None:
    VoteFile.create(files, PATH, NEW)
    with pytest.raises(TailraceError, match="belongs to controller 1, but this is controller 2"):
        VoteFile.open(files, PATH, 2, [1, 2, 3])


def test_open_is_refused_when_the_voters_were_changed_by_settings(files: FaultFiles) -> None:
    VoteFile.create(files, PATH, NEW)
    with pytest.raises(TailraceError, match=r"voters \[1, 2, 3\], but .* names \[1, 2, 4\].*recovery"):
        VoteFile.open(files, PATH, 1, [4, 2, 1])


def test_voters_are_noted_at_the_first_start_when_recovery_left_them_open(files: FaultFiles) -> None:
    VoteFile.create(files, PATH, VoteState(node_id=1, voters=None, term=9))
    VoteFile.open(files, PATH, 1, [7, 1])
    assert read_votes(files.crash(), PATH).voters == (1, 7)


def test_state_in_memory_stays_when_the_disk_fails(files: FaultFiles) -> None:
    votes = VoteFile.create(files, PATH, NEW)
    files.fail(errno.ENOSPC, on("write"))
    with pytest.raises(TailraceError, match="writing term and vote failed at /votes"):
        votes.set_term(4, 2)
    assert votes.state == NEW
