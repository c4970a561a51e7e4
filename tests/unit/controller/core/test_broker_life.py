"""Random lives of brokers: processes start, beat, stop, are killed and forgotten, and controllers change.

After every step: whoever leads or is in an ISR is active, no epoch was given twice, every decision could be
replayed, and asking the same again changes nothing.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import NO_LEADER
from tailrace.cluster.controller.core.brokers import fence_brokers, heartbeat
from tailrace.cluster.controller.core.registration import register_broker, unregister_broker
from tailrace.cluster.controller.core.sessions import BrokerSessions, SessionOver, SessionTimes
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import code_of
from tests.support.metadata import (
    CLUSTER_ID,
    apply,
    directory,
    endpoints,
    feature_ranges,
    image_with,
    incarnation,
)

BROKERS = (1, 2, 3)
TIMES = SessionTimes(session_timeout_ms=900, heartbeat_interval_ms=200)
broker_ids = st.sampled_from(BROKERS)
directories = st.sets(st.sampled_from([0, 1]), min_size=1)


class BrokerLives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.image = image_with(
            brokers=BROKERS,
            topics={"t": [(1, 2, 3), (2, 3, 1), (3, 1, 2)], "alone": [(1,), (2,)]},
            configs={"t": {"min.insync.replicas": "2"}},
        )
        self.now_ms = 0
        self.sessions = BrokerSessions(self.image, times=TIMES, now_ms=0)
        self.lives = dict.fromkeys(BROKERS, 1)
        # Of each process that ever registered; the newest of a broker is its last.
        self.epochs: dict[int, list[int]] = {one: [self.image.brokers[one].epoch] for one in BROKERS}

    def carry_out(self, decision: Any) -> None:
        if decision.records:
            self.image = apply(self.image, decision)

    def fence(self, over: list[SessionOver]) -> None:
        epochs = {one.broker_id: one.broker_epoch for one in over}
        self.carry_out(fence_brokers(self.image, epochs))
        assert all(
            broker.fenced
            for broker_id, broker in self.image.brokers.items()
            if epochs.get(broker_id) == broker.epoch
        )
        assert fence_brokers(self.image, epochs).records == []

    @rule(broker_id=broker_ids, dirs=directories, flushes_to_os=st.booleans(), clean=st.booleans())
    def process_starts(self, broker_id: int, dirs: set[int], flushes_to_os: bool, clean: bool) -> None:
        life = self.lives[broker_id] + 1
        request = wire.RegisterBrokerRequest(
            cluster_id=CLUSTER_ID,
            broker_id=broker_id,
            incarnation=incarnation(broker_id, life).bytes,
            endpoints=endpoints(broker_id),
            log_dirs=[pb.LogDir(id=directory(broker_id, one).bytes, online=True) for one in sorted(dirs)],
            features=feature_ranges(),
            clean_shutdown_epoch=self.epochs[broker_id][-1] if clean else None,
            flushes_to_os=flushes_to_os,
        )
        alive = self.sessions.alive(broker_id, now_ms=self.now_ms)
        decision = register_broker(self.image, request, session_alive=alive)
        if alive:
            assert code_of(decision.response) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            assert decision.records == []
            return
        assert code_of(decision.response) is ErrorCode.NONE
        self.carry_out(decision)
        epoch, version = decision.response.broker_epoch, decision.response.metadata_version
        assert version == self.image.version
        assert epoch > max(each for every in self.epochs.values() for each in every)
        self.lives[broker_id] = life
        self.epochs[broker_id].append(epoch)
        self.sessions.registered(broker_id, epoch, version, now_ms=self.now_ms)
        again = register_broker(self.image, request, session_alive=True)
        assert again.records == []
        assert again.response.broker_epoch == epoch

    @rule(
        broker_id=broker_ids,
        behind=st.booleans(),
        wants_fence=st.booleans(),
        wants_shutdown=st.booleans(),
        offline=st.sets(st.sampled_from([0, 1]), max_size=1),
    )
    def process_beats(
        self, broker_id: int, behind: bool, wants_fence: bool, wants_shutdown: bool, offline: set[int]
    ) -> None:
        needed = self.sessions.registered_version(broker_id)
        request = wire.HeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id][-1],
            metadata_version=needed - 1 if behind else self.image.version,
            wants_fence=wants_fence,
            wants_shutdown=wants_shutdown,
            offline_log_dirs=[directory(broker_id, one).bytes for one in offline],
        )
        decision = heartbeat(self.image, request, registered_version=needed, times=TIMES)
        if broker_id not in self.image.brokers:
            assert code_of(decision.response) is ErrorCode.BROKER_NOT_REGISTERED
            return
        before = self.image.brokers[broker_id]
        self.carry_out(decision)
        self.sessions.touched(broker_id, request.broker_epoch, now_ms=self.now_ms)
        broker, answer = self.image.brokers[broker_id], decision.response
        assert (answer.fenced, answer.shutting_down) == (broker.fenced, broker.shutting_down)
        assert answer.may_stop == (wants_shutdown or broker.shutting_down)
        assert not (wants_fence and not broker.fenced)
        assert not (before.fenced and behind and not broker.fenced)
        assert broker.fenced or any(one.online for one in broker.log_dirs)
        assert heartbeat(self.image, request, registered_version=needed, times=TIMES).records == []

    @rule(broker_id=broker_ids, wants_fence=st.booleans())
    def process_of_an_earlier_epoch_beats(self, broker_id: int, wants_fence: bool) -> None:
        for epoch in self.epochs[broker_id][:-1]:
            request = wire.HeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=epoch,
                metadata_version=self.image.version,
                wants_fence=wants_fence,
            )
            decision = heartbeat(self.image, request, registered_version=0, times=TIMES)
            assert code_of(decision.response) in (
                ErrorCode.STALE_BROKER_EPOCH,
                ErrorCode.BROKER_NOT_REGISTERED,
            )
            assert decision.records == []

    @rule(ms=st.sampled_from([100, 500, 1_000]))
    def time_passes(self, ms: int) -> None:
        until = self.now_ms + ms
        while (wake_at := self.sessions.wake_at_ms()) is not None and wake_at <= until:
            self.now_ms = wake_at
            self.fence(self.sessions.due(now_ms=wake_at))
        self.now_ms = until

    @rule(broker_id=broker_ids)
    def process_is_killed(self, broker_id: int) -> None:
        probe = self.sessions.connection_lost(broker_id, now_ms=self.now_ms)
        if probe is not None:
            over = self.sessions.probe_failed(probe)
            assert over is not None
            self.fence([over])

    @precondition(lambda self: self.image.brokers)
    @rule(broker_id=broker_ids)
    def broker_is_unregistered(self, broker_id: int) -> None:
        decision = unregister_broker(self.image, admin.UnregisterBrokerRequest(broker_id=broker_id))
        known = broker_id in self.image.brokers
        assert code_of(decision.response) is (ErrorCode.NONE if known else ErrorCode.BROKER_NOT_REGISTERED)
        self.carry_out(decision)
        self.sessions.unregistered(broker_id)
        assert broker_id not in self.image.brokers

    @rule()
    def another_controller_becomes_active(self) -> None:
        self.sessions = BrokerSessions(self.image, times=TIMES, now_ms=self.now_ms)

    @invariant()
    def every_leader_and_isr_member_is_active(self) -> None:
        active = {one.broker_id for one in self.image.brokers.values() if one.active}
        for _, _, partition in self.image.partitions():
            assert partition.leader == NO_LEADER or partition.leader in partition.isr
            assert set(partition.isr) <= active

    @invariant()
    def open_brokers_have_sessions(self) -> None:
        for broker_id, broker in self.image.brokers.items():
            assert broker.fenced or self.sessions.alive(broker_id, now_ms=self.now_ms)


BrokerLives.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestBrokerLives = BrokerLives.TestCase
