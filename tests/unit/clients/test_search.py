"""Whom to ask next, and whether to ask again."""

from __future__ import annotations

import pytest

from tailrace.clients.core.search import Search, Then, hinted_address, leaves_doubt, pause_ms, then_after
from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.failures import RemoteError

A, B, C, D = (Address(host, 9093) for host in ("a", "b", "c", "d"))
LOST = TailraceError(ErrorCode.CONNECTION_LOST)
NOBODY_ACTIVE = TailraceError(ErrorCode.CONTROLLER_NOT_AVAILABLE)


def not_active(hint: Address | None = None) -> TailraceError:
    told = {} if hint is None else {"controller-host": hint.host, "controller-port": str(hint.port)}
    return RemoteError(ErrorCode.NOT_CONTROLLER, "", told)


@pytest.mark.parametrize(
    ("code", "then"),
    [
        (ErrorCode.NOT_CONTROLLER, Then.ASK_ANOTHER),
        (ErrorCode.CONTROLLER_NOT_AVAILABLE, Then.ASK_ANOTHER),
        (ErrorCode.CONNECTION_LOST, Then.ASK_ANOTHER),
        (ErrorCode.REQUEST_TIMED_OUT, Then.ASK_ANOTHER),
        (ErrorCode.UNKNOWN_OUTCOME, Then.ASK_ANOTHER),
        (ErrorCode.STORAGE_OVERLOADED, Then.ASK_AGAIN),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, Then.ASK_AGAIN),
        (ErrorCode.INVALID_REQUEST, Then.GIVE_UP),
        (ErrorCode.INVALID_CONFIG, Then.GIVE_UP),
        (ErrorCode.CLIENT_CLOSED, Then.GIVE_UP),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, Then.GIVE_UP),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Then.GIVE_UP),
    ],
)
def test_error_decides_whether_to_ask_again(code: ErrorCode, then: Then) -> None:
    assert then_after(code) is then


def test_only_refusals_leave_no_doubt_that_nothing_was_done() -> None:
    certain = [code for code in ErrorCode if then_after(code) is not Then.GIVE_UP and not leaves_doubt(code)]
    assert certain == [
        ErrorCode.STORAGE_OVERLOADED,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONTROLLER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ]


def test_pauses_double_up_to_the_longest() -> None:
    assert [pause_ms(number, 100, 1_000) for number in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    assert pause_ms(10_000, 100, 1_000) == 1_000


def test_search_asks_every_address_once_before_a_pause() -> None:
    search = Search([A, B, A, C])
    assert search.current == A
    assert search.failed(LOST)
    assert search.current == B
    assert search.failed(NOBODY_ACTIVE)
    assert search.current == C
    assert not search.failed(LOST)
    assert search.current == A
    assert search.failed(LOST)
    assert search.current == B
    assert search.failures == {A: LOST, B: NOBODY_ACTIVE, C: LOST}


def test_search_follows_a_hint_first() -> None:
    search = Search([A, B])
    assert search.failed(not_active(D))
    assert search.current == D
    assert search.failed(LOST)
    assert search.current == B


def test_search_pauses_when_the_hint_was_asked_already() -> None:
    search = Search([A])
    assert search.failed(not_active(D))
    assert search.failed(not_active(A)) is False
    assert search.current == A
    search = Search([A, B])
    assert search.failed(LOST)
    assert not search.failed(not_active(A))
    assert search.current == A, "the hint is still the best guess after the pause"


def test_search_begins_the_next_round_with_another_address() -> None:
    search = Search([A, B])
    search.failed(LOST)
    assert not search.failed(LOST)
    assert search.current == A
    assert search.failed(LOST)
    assert not search.failed(LOST)
    search = Search([A])
    assert search.failed(not_active(D))
    assert not search.failed(LOST)
    assert search.current == A


def test_search_stays_with_a_controller_that_is_busy() -> None:
    search = Search([A, B])
    busy = TailraceError(ErrorCode.STORAGE_OVERLOADED)
    assert not search.failed(busy)
    assert (search.current, search.failures) == (A, {A: busy})


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"controller-id": "3"},
        {"controller-host": "h"},
        {"controller-host": "h", "controller-port": "many"},
        {"controller-host": "h", "controller-port": "70000"},
        {"controller-host": "", "controller-port": "1"},
        {"controller-host": "a b", "controller-port": "1"},
    ],
)
def test_hint_is_passed_over_when_it_is_no_address(told: dict[str, str]) -> None:
    assert hinted_address(RemoteError(ErrorCode.NOT_CONTROLLER, "", told)) is None


def test_hint_may_be_an_ipv6_address() -> None:
    told = {"controller-host": "::1", "controller-port": "9093"}
    assert hinted_address(RemoteError(ErrorCode.NOT_CONTROLLER, "", told)) == Address("::1", 9093)
    assert hinted_address(TailraceError(ErrorCode.NOT_CONTROLLER)) is None
