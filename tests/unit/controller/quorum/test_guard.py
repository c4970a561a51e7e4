"""Which commands are accepted; the same on every node, whatever arrives in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.guard import (
    Barrier,
    Claim,
    Command,
    Guard,
    Proposal,
    decode_command,
    encode_command,
)
from tailrace.cluster.controller.quorum.outcomes import Committed, Refused


def claimed(term: int = 3) -> Guard:
    guard = Guard()
    assert guard.decide(Claim(term, 1)) == Committed(0)
    return guard


commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Proposal, st.integers(0, 6), st.integers(0, 6), st.binary(max_size=20)),
    st.builds(Claim, st.integers(0, 6), st.integers(0, 2**31)),
    st.just(Barrier()),
)


@settings(deadline=None)
@given(commands)
def test_command_comes_back_when_decoded(command: Command) -> None:
    assert decode_command(encode_command(command)) == command


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x09abc", b"\x01", b"\x02\x01", b"\x03\x00"])
def test_decoding_stops_the_node_when_a_newer_release_wrote_the_command(data: bytes) -> None:
    with pytest.raises(TailraceError, match=r"newer release.*Start that release") as raised:
        decode_command(data)
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_proposals_are_accepted_one_after_the_other_when_epoch_and_version_are_current() -> None:
    guard = claimed()
    assert [guard.decide(Proposal(3, version, b"")) for version in range(3)] == [
        Committed(1),
        Committed(2),
        Committed(3),
    ]


def test_proposal_is_refused_when_it_comes_twice() -> None:
    guard = claimed()
    guard.decide(Proposal(3, 0, b"a"))
    outcome = guard.decide(Proposal(3, 0, b"a"))
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.INVALID_UPDATE_VERSION
    assert guard.version == 1


def test_those_after_it_are_refused_when_a_pipelined_proposal_falls_out() -> None:
    guard = claimed()
    outcomes = [guard.decide(Proposal(3, version, b"")) for version in (0, 2, 3)]
    assert [type(outcome) for outcome in outcomes] == [Committed, Refused, Refused]
    assert guard.version == 1


@pytest.mark.parametrize("epoch", [2, 4])
def test_proposal_is_refused_when_its_epoch_is_another(epoch: int) -> None:
    guard = claimed()
    outcome = guard.decide(Proposal(epoch, 0, b""))
    assert isinstance(outcome, Refused)
    assert outcome.code is ErrorCode.STALE_CONTROLLER_EPOCH


@pytest.mark.parametrize("term", [1, 3])
def test_claim_is_refused_when_its_term_is_not_above_the_epoch(term: int) -> None:
    guard = claimed()
    assert isinstance(guard.decide(Claim(term, 2)), Refused)
    assert guard.epoch == 3


def test_barrier_changes_nothing_when_applied() -> None:
    guard = claimed()
    assert guard.decide(Barrier()) == Committed(0)
    assert (guard.version, guard.epoch) == (0, 3)


@settings(deadline=None)
@given(st.lists(commands, max_size=40))
def test_version_counts_accepted_proposals_when_commands_are_arbitrary(history: list[Command]) -> None:
    guard = Guard()
    accepted = 0
    for command in history:
        epoch = guard.epoch
        outcome = guard.decide(command)
        if isinstance(command, Proposal) and isinstance(outcome, Committed):
            accepted += 1
            assert command.epoch == epoch
            assert command.base_version == accepted - 1
        assert guard.version == accepted
        assert guard.epoch >= epoch
