"""Histories of partitions as text: tests/unit/controller/core/scenarios/*.txt.

A line that begins at the margin is a step; the indented lines after it are what it came to. Lines that begin
with # and empty lines are for people. `UPDATE_GOLDEN=1 pytest <this file>` writes the outcomes into the
files; look at the difference before you believe it.

    brokers 1 2 3 [dirs=2]          registered and in service, with log directories d1, d2, ...
    topic t 0:1,2,3 1:2,3,1         created with these replicas
    config t key=value              a setting of the topic; `config * ...` of all brokers; `key=` removes it
    place t-0 d1,d2,d1              says in which log directory each replica lies
    fence 1, unfence 1              the broker is out of service, and in it again
    shutdown 1                      it begins a controlled shutdown
    restart 1 [unclean]             it registers as a new process (and is fenced until `unfence`)
    unregister 1
    offline-dir 1 d1                a log directory of the broker fails
    alter t-0 leader=1 isr=1,2      the leader proposes an ISR. Unless given, epoch=, version= (the partition
                                    epoch) and broker-epochs= are the current ones; `recovered` says so
    reassign t-0 3,4,5              `reassign t-0 cancel` goes back
    elect preferred t-0 [t-1 ...]   also `elect unclean ...`, and `all` in place of partitions
    rebalance 10 [most=100]         leaders go back to preferred replicas, above 10 percent of imbalance
    list                            the reassignments that are going on
    show                            all partitions

A step comes to the partitions that it changed, as they are after it, and to the errors that it was answered
with. A partition is shown as

    t-0 leader=1 epoch=2/5 replicas=1,2,3 isr=1,2 ...

where epoch is leader epoch / partition epoch, and what is empty or usual is left out. Each step's records are
replayed as one entry, and the partitions must keep what tests/support/partitions.py says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.image_records import partition_record
from tailrace.cluster.controller.core import election
from tailrace.cluster.controller.core.config_effects import partitions_of_changed_configs
from tailrace.cluster.controller.core.reassignment import alter_reassignments, list_reassignments
from tailrace.cluster.controller.core.rebalance import rebalance_leaders
from tailrace.cluster.controller.core.replication import alter_partitions
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.answers import Answer, code_of
from tests.support.metadata import apply, broker, directory, image_with, topic_records
from tests.support.partitions import broken_invariants, broken_steps, shown_partition

SCENARIOS = Path(__file__).parent / "scenarios"
INDENT = "  "

Records = list[pb.MetadataRecord]


class Scenario:
    """The cluster of one file; each step answers with lines."""

    def __init__(self) -> None:
        self.image = image_with()
        self._lives: dict[int, int] = {}

    def step(self, line: str) -> list[str]:
        name, *words = line.split()
        before = self.image
        records, told = self._steps()[name](words)
        self.image = apply(before, records) if records else before
        problems = [*broken_invariants(self.image), *broken_steps(before, self.image)]
        assert not problems, f"{line}: {problems}"
        lines = [*self._changes(before), *told]
        return lines or ["unchanged"]

    def _steps(self) -> dict[str, Callable[[list[str]], tuple[Records, list[str]]]]:
        return {
            "brokers": self._brokers,
            "topic": self._topic,
            "config": self._config,
            "place": self._place,
            "fence": lambda words: (self._fence(int(words[0])), []),
            "unfence": lambda words: (self._unfence(int(words[0])), []),
            "shutdown": lambda words: (self._shutdown(int(words[0])), []),
            "restart": lambda words: (self._restart(int(words[0]), clean="unclean" not in words), []),
            "unregister": lambda words: (self._unregister(int(words[0])), []),
            "offline-dir": lambda words: (self._offline_dir(int(words[0]), words[1]), []),
            "alter": self._alter,
            "reassign": self._reassign,
            "elect": self._elect,
            "rebalance": self._rebalance,
            "list": self._list,
            "show": lambda _: ([], [shown_partition(*one) for one in self.image.partitions()]),
        }

    def _changes(self, before: ClusterImage) -> Iterable[str]:
        known = {(topic.topic_id, number): one for topic, number, one in before.partitions()}
        for topic, number, partition in self.image.partitions():
            if known.get((topic.topic_id, number)) != partition:
                yield shown_partition(topic, number, partition)

    # Brokers.

    def _brokers(self, words: list[str]) -> tuple[Records, list[str]]:
        dirs = int(_options(words).get("dirs", "1"))
        records = []
        for epoch, word in enumerate(
            (word for word in words if word.isdigit()), self.image.next_broker_epoch
        ):
            registered = broker(int(word), dirs=dirs)
            registered.broker_epoch = epoch
            records.append(pb.MetadataRecord(broker_registered=registered))
        return records, [f"registered {' '.join(word for word in words if word.isdigit())}"]

    def _changed(self, broker_id: int, **fields: bool) -> pb.MetadataRecord:
        epoch = self.image.brokers[broker_id].epoch
        changed = pb.BrokerChanged(broker_id=broker_id, broker_epoch=epoch)
        for name, value in fields.items():
            setattr(changed, name, value)
        return pb.MetadataRecord(broker_changed=changed)

    def _fence(self, broker_id: int) -> Records:
        change = self._changed(broker_id, fenced=True)
        return [change, *election.partitions_without(self.image, broker_id)]

    def _unfence(self, broker_id: int) -> Records:
        change = self._changed(broker_id, fenced=False)
        return [change, *election.partitions_with(self.image, broker_id)]

    def _shutdown(self, broker_id: int) -> Records:
        change = self._changed(broker_id, shutting_down=True)
        return [change, *election.partitions_without(self.image, broker_id)]

    def _restart(self, broker_id: int, *, clean: bool) -> Records:
        self._lives[broker_id] = self._lives.get(broker_id, 1) + 1
        known = self.image.brokers.get(broker_id)
        dirs = len(known.log_dirs) if known else 1
        registered = broker(broker_id, fenced=True, dirs=dirs, life=self._lives[broker_id])
        registered.broker_epoch = self.image.next_broker_epoch
        return [
            pb.MetadataRecord(broker_registered=registered),
            *election.partitions_of_new_incarnation(self.image, broker_id, clean=clean),
        ]

    def _unregister(self, broker_id: int) -> Records:
        epoch = self.image.brokers[broker_id].epoch
        gone = pb.BrokerUnregistered(broker_id=broker_id, broker_epoch=epoch)
        return [
            pb.MetadataRecord(broker_unregistered=gone),
            *election.partitions_without(self.image, broker_id),
        ]

    def _offline_dir(self, broker_id: int, name: str) -> Records:
        failed = directory(broker_id, _dir_number(name))
        change = self._changed(broker_id)
        change.broker_changed.log_dirs.add(id=failed.bytes, online=False)
        return [change, *election.partitions_of_offline_dirs(self.image, broker_id, {failed})]

    # Topics.

    def _topic(self, words: list[str]) -> tuple[Records, list[str]]:
        name, *partitions = words
        replicas = [_numbers(one.partition(":")[2]) for one in partitions]
        active = {one.broker_id for one in self.image.brokers.values() if one.active}
        return topic_records(name, replicas, active=active), []

    def _config(self, words: list[str]) -> tuple[Records, list[str]]:
        of_topic = words[0] != "*"
        records = [
            pb.MetadataRecord(
                config=pb.ConfigRecord(
                    type=pb.CONFIG_RESOURCE_TYPE_TOPIC if of_topic else pb.CONFIG_RESOURCE_TYPE_BROKER,
                    name=words[0] if of_topic else "",
                    key=key,
                    value=value or None,
                )
            )
            for key, value in _options(words).items()
        ]
        return [*records, *partitions_of_changed_configs(self.image, apply(self.image, records))], []

    def _place(self, words: list[str]) -> tuple[Records, list[str]]:
        topic, number = election.find_partition(self.image, _ref(words[0]))
        now = topic.partitions[number]
        names = words[1].split(",")
        placed = tuple(
            directory(broker_id, _dir_number(name))
            for broker_id, name in zip(now.replicas, names, strict=True)
        )
        changed = now._replace(directories=placed, partition_epoch=now.partition_epoch + 1)
        return [pb.MetadataRecord(partition=partition_record(topic.topic_id, number, changed))], []

    # Requests.

    def _alter(self, words: list[str]) -> tuple[Records, list[str]]:
        options = _options(words)
        topic, number = election.find_partition(self.image, _ref(words[0]))
        now = topic.partitions[number]
        leader, isr = int(options["leader"]), _numbers(options["isr"])
        epochs = [self.image.brokers[one].epoch if one in self.image.brokers else -1 for one in isr]
        proposal = wire.AlterPartitionsRequest.Partition(
            topic_id=topic.topic_id.bytes,
            partition=number,
            leader_epoch=int(options.get("epoch", now.leader_epoch)),
            partition_epoch=int(options.get("version", now.partition_epoch)),
            isr=isr,
            isr_broker_epochs=_numbers(options["broker-epochs"]) if "broker-epochs" in options else epochs,
            recovered="recovered" in words,
        )
        request = wire.AlterPartitionsRequest(
            broker_id=leader, broker_epoch=self.image.brokers[leader].epoch, partitions=[proposal]
        )
        decision = alter_partitions(self.image, request)
        return decision.records, _errors((words[0], one) for one in decision.response.partitions)

    def _reassign(self, words: list[str]) -> tuple[Records, list[str]]:
        replicas = [] if words[1] == "cancel" else _numbers(words[1])
        request = admin.AlterReassignmentsRequest()
        request.partitions.add(partition=_ref(words[0]), replicas=replicas)
        decision = alter_reassignments(self.image, request)
        return decision.records, _errors((words[0], one) for one in decision.response.partitions)

    def _elect(self, words: list[str]) -> tuple[Records, list[str]]:
        unclean = words[0] == "unclean"
        kinds = admin.ElectLeadersRequest
        request = admin.ElectLeadersRequest(kind=kinds.KIND_UNCLEAN if unclean else kinds.KIND_PREFERRED)
        request.partitions.extend(_ref(one) for one in words[1:] if one != "all")
        decision = election.elect_leaders(self.image, request)
        return decision.records, _errors(
            (f"{one.partition.topic}-{one.partition.partition}", one) for one in decision.response.partitions
        )

    def _rebalance(self, words: list[str]) -> tuple[Records, list[str]]:
        most = int(_options(words).get("most", "1000"))
        done = rebalance_leaders(
            self.image, imbalance_per_broker_percentage=int(words[0]), most_per_round=most
        )
        return done.records, ["more"] if done.more else []

    def _list(self, _: list[str]) -> tuple[Records, list[str]]:
        listed = list_reassignments(self.image, admin.ListReassignmentsRequest()).response.partitions
        return [], [
            f"{one.partition.topic}-{one.partition.partition} {list(one.replicas)} adding {list(one.adding)} "
            f"removing {list(one.removing)}"
            for one in listed
        ] or ["none"]


def _errors(outcomes: Iterable[tuple[str, Answer]]) -> list[str]:
    return [f"{name}: {code_of(one).name}: {one.error.message}" for name, one in outcomes if one.error.code]


def _options(words: list[str]) -> dict[str, str]:
    return {key: value for key, found, value in (word.partition("=") for word in words) if found}


def _numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _dir_number(name: str) -> int:
    return int(name.removeprefix("d")) - 1


def _ref(text: str) -> admin.PartitionRef:
    topic, _, number = text.rpartition("-")
    return admin.PartitionRef(topic=topic, partition=int(number))


def played(script: str) -> str:
    """The script with the outcomes that its steps have."""
    scenario = Scenario()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith(INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [INDENT + one for one in scenario.step(line)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario_has_the_outcomes_of_its_file_when_played(path: Path) -> None:
    script = path.read_text()
    outcome = played(script)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(outcome)
    else:
        assert outcome == script


def test_scenarios_are_there_when_looked_for() -> None:
    assert len(list(SCENARIOS.glob("*.txt"))) >= 8
