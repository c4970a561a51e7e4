"""Sessions of brokers: silence, broken connections, probes, and a controller that was away itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.controller.core.sessions import BrokerSessions, Probe, SessionOver, SessionTimes
from tests.support.metadata import broker, image_with

TIMES = SessionTimes(session_timeout_ms=900, heartbeat_interval_ms=200)
IMAGE = image_with(brokers=[1, 2, broker(3, fenced=True)])
START = 10_000


def sessions() -> BrokerSessions:
    return BrokerSessions(IMAGE, times=TIMES, now_ms=START)


def run_until(tested: BrokerSessions, now_ms: int) -> list[tuple[int, SessionOver]]:
    """What a caller does that wakes when it is told to; each session that ended, and when."""
    ended = []
    while (wake_at := tested.wake_at_ms()) is not None and wake_at <= now_ms:
        ended += [(wake_at, one) for one in tested.due(now_ms=wake_at)]
    return ended


def probe_of(tested: BrokerSessions, broker_id: int, now_ms: int) -> Probe:
    probe = tested.connection_lost(broker_id, now_ms=now_ms)
    assert probe is not None
    return probe


def test_sessions_give_every_open_broker_the_whole_timeout_when_the_controller_becomes_active() -> None:
    tested = sessions()
    assert tested.alive(1, now_ms=START)
    assert tested.alive(2, now_ms=START)
    assert not tested.alive(3, now_ms=START)
    ended = run_until(tested, START + 10_000)
    assert [(when, one.broker_id, one.broker_epoch) for when, one in ended] == [
        (START + 900, 1, 1),
        (START + 900, 2, 2),
    ]
    assert "900 ms" in ended[0][1].reason
    assert not tested.alive(1, now_ms=START + 10_000)


def test_session_goes_on_when_the_broker_is_heard_of() -> None:
    tested = sessions()
    tested.touched(2, 2, now_ms=START)
    assert run_until(tested, START + 800) == []
    tested.touched(1, 1, now_ms=START + 800)
    assert [(when, one.broker_id) for when, one in run_until(tested, START + 5_000)] == [
        (START + 900, 2),
        (START + 1_700, 1),
    ]


def test_session_begins_when_a_fenced_broker_is_heard_of() -> None:
    tested = sessions()
    tested.touched(3, 3, now_ms=START)
    assert tested.alive(3, now_ms=START)
    assert 3 in [one.broker_id for _, one in run_until(tested, START + 900)]


def test_session_begins_anew_when_the_broker_registers() -> None:
    tested = sessions()
    tested.registered(2, 7, 30, now_ms=START + 100)
    ended = run_until(tested, START + 5_000)
    assert [(one.broker_id, one.broker_epoch) for _, one in ended] == [(1, 1), (2, 7)]


def test_session_is_not_prolonged_when_an_earlier_registration_is_heard_of() -> None:
    tested = sessions()
    tested.registered(2, 7, 30, now_ms=START)
    run_until(tested, START + 500)
    tested.touched(2, 2, now_ms=START + 500)
    ended = run_until(tested, START + 5_000)
    assert (START + 900, 7) in [(when, one.broker_epoch) for when, one in ended]


def test_session_ends_at_once_when_the_connection_broke_and_the_probe_failed() -> None:
    tested = sessions()
    probe = probe_of(tested, 1, START + 10)
    assert (probe.broker_id, probe.broker_epoch) == (1, 1)
    assert tested.alive(1, now_ms=START + 10)
    over = tested.probe_failed(probe)
    assert over is not None
    assert (over.broker_id, over.broker_epoch) == (1, 1)
    assert not tested.alive(1, now_ms=START + 10)
    assert tested.probe_failed(probe) is None


def test_session_waits_for_the_timeout_when_the_probe_was_answered() -> None:
    tested = sessions()
    probe = probe_of(tested, 1, START + 10)
    tested.probe_answered(probe)
    assert tested.probe_failed(probe) is None
    assert tested.alive(1, now_ms=START + 20)
    assert (START + 900, 1) in [(when, one.broker_id) for when, one in run_until(tested, START + 900)]


def test_session_waits_for_the_timeout_when_nothing_comes_of_the_probe() -> None:
    tested = sessions()
    probe_of(tested, 1, START + 10)
    assert (START + 900, 1) in [(when, one.broker_id) for when, one in run_until(tested, START + 900)]


def test_session_goes_on_when_a_heartbeat_came_before_the_probe_failed() -> None:
    tested = sessions()
    probe = probe_of(tested, 1, START + 10)
    tested.touched(1, 1, now_ms=START + 20)
    assert tested.probe_failed(probe) is None
    assert tested.alive(1, now_ms=START + 20)


def test_session_ends_when_the_later_of_two_probes_failed_and_the_earlier_was_answered() -> None:
    tested = sessions()
    first = probe_of(tested, 1, START + 10)
    second = probe_of(tested, 1, START + 20)
    tested.probe_answered(first)
    assert tested.probe_failed(second) is not None


def test_session_goes_on_when_only_the_earlier_of_two_probes_failed() -> None:
    tested = sessions()
    first = probe_of(tested, 1, START + 10)
    second = probe_of(tested, 1, START + 20)
    assert tested.probe_failed(first) is None
    tested.probe_answered(second)
    assert tested.alive(1, now_ms=START + 20)


def test_session_of_the_next_process_goes_on_when_the_probe_of_the_last_failed() -> None:
    tested = sessions()
    probe = probe_of(tested, 1, START + 10)
    tested.registered(1, 9, 40, now_ms=START + 20)
    assert tested.probe_failed(probe) is None
    assert tested.alive(1, now_ms=START + 20)


def test_probe_is_not_asked_for_when_there_is_no_session() -> None:
    tested = sessions()
    assert tested.connection_lost(3, now_ms=START) is None
    assert tested.connection_lost(99, now_ms=START) is None


def test_probe_is_not_asked_for_when_the_connection_was_of_another_registration() -> None:
    tested = sessions()
    tested.registered(1, 9, 40, now_ms=START)
    current = tested.connection_lost(1, now_ms=START, broker_epoch=9)
    assert current is not None
    assert tested.connection_lost(1, now_ms=START, broker_epoch=1) is None
    assert tested.probe_failed(current) is not None


def test_session_is_forgotten_when_the_broker_is_unregistered() -> None:
    tested = sessions()
    probe = probe_of(tested, 1, START)
    tested.unregistered(1)
    tested.unregistered(99)
    assert not tested.alive(1, now_ms=START)
    assert tested.probe_failed(probe) is None
    assert [one.broker_id for _, one in run_until(tested, START + 5_000)] == [2]


def test_sessions_go_on_when_the_controller_itself_was_away() -> None:
    tested = sessions()
    run_until(tested, START + 300)
    back = START + 300 + 60_000
    assert tested.due(now_ms=back) == []
    assert tested.alive(1, now_ms=back)
    # 300 ms of silence were heard before, and one interval of 200 counts for the absence.
    assert [when for when, _ in run_until(tested, back + 5_000)] == [back + 400, back + 400]


def test_session_is_over_when_the_timeout_has_passed_though_nobody_looked_for_ended_ones() -> None:
    tested = sessions()
    # Each call hears the silence since the one before.
    for passed in range(150, 900, 150):
        assert tested.alive(1, now_ms=START + passed)
    assert tested.alive(1, now_ms=START + 899)
    assert not tested.alive(1, now_ms=START + 900)
    assert [one.broker_id for one in tested.due(now_ms=START + 900)] == [1, 2]


def test_silence_counts_when_a_connection_broke_meanwhile() -> None:
    tested = sessions()
    for passed in range(150, 901, 150):
        tested.connection_lost(1, now_ms=START + passed)
    assert [one.broker_id for one in tested.due(now_ms=START + 900)] == [1, 2]


def test_sessions_do_not_begin_anew_when_the_clock_goes_back() -> None:
    tested = sessions()
    run_until(tested, START + 800)
    assert tested.due(now_ms=START) == []
    assert len(run_until(tested, START + 900)) == 2


def test_sessions_need_no_wake_up_when_there_are_none() -> None:
    assert BrokerSessions(image_with(), times=TIMES, now_ms=START).wake_at_ms() is None


def test_registered_version_is_that_of_the_registration_or_of_the_beginning() -> None:
    tested = sessions()
    assert tested.registered_version(3) == IMAGE.version
    tested.registered(3, 8, 40, now_ms=START)
    assert tested.registered_version(3) == 40
    tested.unregistered(3)
    assert tested.registered_version(3) == IMAGE.version


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1_500), st.sampled_from([1, 2])), max_size=30))
def test_sessions_end_exactly_when_a_broker_was_silent_for_the_timeout(beats: list[tuple[int, int]]) -> None:
    tested = sessions()
    last = {1: START, 2: START}
    now = START
    for pause, broker_id in beats:
        now += pause
        for when, over in run_until(tested, now):
            assert when == last.pop(over.broker_id) + TIMES.session_timeout_ms
        tested.touched(broker_id, broker_id, now_ms=now)
        last[broker_id] = now
        for one in (1, 2):
            assert tested.alive(one, now_ms=now) == (one in last)
    for when, over in run_until(tested, now + 2 * TIMES.session_timeout_ms):
        assert when == last.pop(over.broker_id) + TIMES.session_timeout_ms
    assert last == {}
