"""Random scenarios on random clusters: whatever is done in whatever order, partitions stay sound.

Steps are lines of the language of test_scenarios.py, whose player checks after each of them what
tests/support/partitions.py says. A failure prints the lines; as a file in scenarios/ they are a test.
"""

from __future__ import annotations

from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage
from tests.support.partitions import shown_partition
from tests.unit.controller.core.test_scenarios import Scenario

TOPICS = ("t", "u")
Name = tuple[str, int]


def partitions_of(image: ClusterImage) -> dict[Name, PartitionImage]:
    return {(topic.name, number): one for topic, number, one in image.partitions()}


def holders(partition: PartitionImage) -> set[int]:
    return {*partition.isr, *partition.elr}


def comma(brokers: list[int] | tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


class Scenarios(RuleBasedStateMachine):
    @initialize(data=st.data(), brokers=st.integers(1, 6), unclean=st.booleans())
    def begin(self, data: st.DataObject, brokers: int, unclean: bool) -> None:
        self.scenario = Scenario()
        self.targets: dict[Name, list[int]] = {}
        ids = list(range(1, brokers + 1))
        self.scenario.step(f"brokers {' '.join(map(str, ids))} dirs=2")
        for topic in TOPICS:
            count = data.draw(st.integers(1, 3))
            replicas = [data.draw(st.permutations(ids))[: data.draw(st.integers(1, 4))] for _ in range(count)]
            self.play(f"topic {topic} " + " ".join(f"{at}:{comma(one)}" for at, one in enumerate(replicas)))
        if unclean:
            self.play("config u unclean.leader.election.enable=true")

    def play(self, line: str, *, lost: int | None = None, proposed: tuple[int, ...] = ()) -> list[str]:
        """Take the step, and check that those who have every committed record are still known."""
        note(line)
        before = partitions_of(self.scenario.image)
        answer = self.scenario.step(line)
        for name, now in partitions_of(self.scenario.image).items():
            if (then := before.get(name)) is not None:
                self.check(name, then, now, lost, {*proposed})
        return answer

    def check(
        self, name: Name, then: PartitionImage, now: PartitionImage, lost: int | None, proposed: set[int]
    ) -> None:
        elected = now.leader not in (NO_LEADER, then.leader)
        if elected and now.recovering and now.leader not in holders(then):
            return
        topic = self.scenario.image.topic(name[0])
        assert topic is not None
        shown = f"{shown_partition(topic, name[1], then)} -> {shown_partition(topic, name[1], now)}"
        never_led = then.leader == then.last_known_leader == NO_LEADER
        assert holders(now) <= holders(then) | proposed, f"somebody came from nowhere: {shown}"
        assert holders(now) or not holders(then) - {lost} or never_led, f"nobody has everything: {shown}"
        if then.reassigning and not now.reassigning:
            assert list(now.replicas) == self.targets[name], f"not what was asked for: {shown}"

    def a_broker(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.scenario.image.brokers)))

    def a_partition(self, data: st.DataObject) -> Name:
        return data.draw(st.sampled_from(sorted(partitions_of(self.scenario.image))))

    @rule(data=st.data())
    def fence(self, data: st.DataObject) -> None:
        if self.scenario.image.brokers:
            self.play(f"fence {self.a_broker(data)}")

    @rule(data=st.data())
    def unfence(self, data: st.DataObject) -> None:
        fenced = [
            one.broker_id
            for one in self.scenario.image.brokers.values()
            if one.fenced and not one.shutting_down and any(directory.online for directory in one.log_dirs)
        ]
        if fenced:
            self.play(f"unfence {data.draw(st.sampled_from(fenced))}")

    @rule(data=st.data())
    def shut_down(self, data: st.DataObject) -> None:
        if self.scenario.image.brokers:
            self.play(f"shutdown {self.a_broker(data)}")

    @rule(one=st.integers(1, 6), unclean=st.booleans())
    def restart(self, one: int, unclean: bool) -> None:
        """Also of brokers that nothing is known of any more, which counts as unclean."""
        unclean = unclean or one not in self.scenario.image.brokers
        self.play(f"restart {one}{' unclean' if unclean else ''}", lost=one if unclean else None)

    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        if len(self.scenario.image.brokers) > 1:
            self.play(f"unregister {self.a_broker(data)}")

    @rule(data=st.data())
    def place(self, data: st.DataObject) -> None:
        name = self.a_partition(data)
        now = partitions_of(self.scenario.image)[name]
        known = self.scenario.image.brokers
        if now.leader != NO_LEADER and not any(known[one].offline_dirs for one in now.isr):
            dirs = [data.draw(st.sampled_from(["d1", "d2"])) for _ in now.replicas]
            self.play(f"place {name[0]}-{name[1]} {','.join(dirs)}")

    @rule(data=st.data(), name=st.sampled_from(["d1", "d2"]))
    def fail_directory(self, data: st.DataObject, name: str) -> None:
        if self.scenario.image.brokers:
            one = self.a_broker(data)
            self.play(f"offline-dir {one} {name}", lost=None)

    @rule(data=st.data())
    def alter(self, data: st.DataObject) -> None:
        """Mostly what a leader may propose."""
        name = self.a_partition(data)
        now = partitions_of(self.scenario.image)[name]
        if now.leader == NO_LEADER:
            return
        image = self.scenario.image
        active = [one for one in now.replicas if one in image.brokers and image.brokers[one].active]
        pool = data.draw(st.sampled_from([active, active, active, list(now.replicas)]))
        others = data.draw(st.permutations([one for one in pool if one != now.leader]))
        everybody = data.draw(st.booleans())
        isr = (now.leader, *others[: len(others) if everybody else data.draw(st.integers(0, len(others)))])
        flags = " recovered" if now.recovering and data.draw(st.booleans()) else ""
        line = f"alter {name[0]}-{name[1]} leader={now.leader} isr={comma(isr)}{flags}"
        self.play(line, proposed=isr)

    @rule(data=st.data(), wanted=st.lists(st.integers(1, 7), min_size=1, max_size=4))
    def reassign(self, data: st.DataObject, wanted: list[int]) -> None:
        """Requests with brokers that do not exist, or named twice, are among them."""
        name = self.a_partition(data)
        earlier = self.targets.get(name)
        self.targets[name] = wanted
        answer = self.play(f"reassign {name[0]}-{name[1]} {comma(wanted)}")
        if any("INVALID" in one for one in answer) and earlier is not None:
            self.targets[name] = earlier

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = self.a_partition(data)
        now = partitions_of(self.scenario.image)[name]
        earlier = self.targets.get(name)
        self.targets[name] = [one for one in now.replicas if one not in now.adding]
        answer = self.play(f"reassign {name[0]}-{name[1]} cancel")
        if any(":" in one for one in answer) and earlier is not None:
            self.targets[name] = earlier

    @rule(data=st.data(), kind=st.sampled_from(["preferred", "unclean"]), every=st.booleans())
    def elect(self, data: st.DataObject, kind: str, every: bool) -> None:
        name = self.a_partition(data)
        self.play(f"elect {kind} {'all' if every else f'{name[0]}-{name[1]}'}")

    @rule(percentage=st.sampled_from([0, 10, 60]), most=st.integers(1, 4))
    def rebalance(self, percentage: int, most: int) -> None:
        self.play(f"rebalance {percentage} most={most}")

    @rule(resource=st.sampled_from(["t", "u", "*"]), number=st.sampled_from(["", "1", "2", "3"]))
    def configure(self, resource: str, number: str) -> None:
        self.play(f"config {resource} min.insync.replicas={number}")


TestScenarios = Scenarios.TestCase
TestScenarios.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
