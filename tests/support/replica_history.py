"""Random histories of one partition with its data (replica_model.py), with everything that may happen to it.

A history is made by its seed. `run` takes one step after the other, each drawn from what is possible at that
moment, and checks after each that every member of ISR and ELR has all that was ever committed. Unclean
elections end what was promised before them: afterwards only what the leader has is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tailrace.cluster.common.image import NO_LEADER, ClusterImage
from tailrace.cluster.controller.core import election
from tailrace.cluster.controller.core.config_effects import partitions_of_changed_configs
from tailrace.cluster.controller.core.partition_change import UNKNOWN_DIRECTORY, directory_of
from tailrace.cluster.controller.core.reassignment import alter_reassignments
from tailrace.cluster.controller.core.replication import alter_partitions
from tailrace.v1 import admin_pb2 as admin
from tailrace.v1 import controller_pb2 as wire
from tailrace.v1 import metadata_pb2 as pb
from tests.support.metadata import apply, broker, directory, image_with, partition
from tests.support.partitions import broken_invariants, broken_steps
from tests.support.replica_model import TOPIC, Ack, Entry, Replica, common_prefix, partition_of

MIN_INSYNC = "min.insync.replicas"


class PartitionHistory:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trace: list[str] = []
        self.brokers = tuple(range(1, self.random.randint(3, 5)))
        factor = self.random.randint(1, min(3, len(self.brokers)))
        replicas = self.random.sample(self.brokers, factor)
        image = image_with(
            brokers=[broker(one, dirs=2) for one in self.brokers],
            topics={TOPIC: [partition(*replicas, directories=[directory(one) for one in replicas])]},
            configs={TOPIC: self.random.choice([{}, {MIN_INSYNC: "1"}, {MIN_INSYNC: "2"}])},
        )
        self.images = [image]
        self.replicas = {
            one: Replica(one, image.brokers[one].epoch, image, partition_of(image)) for one in self.brokers
        }
        self.committed: list[Entry] = []
        self.acks: list[Ack] = []
        self.requests: list[wire.AlterPartitionsRequest] = []
        self.answers: list[tuple[wire.AlterPartitionsRequest, wire.AlterPartitionsResponse]] = []
        self.lives = 1
        self.written = 0
        self.unclean_epoch = -1
        self._unclean_leader: int | None = None
        weights: dict[Callable[[], None], float] = {
            self.write: 6,
            self.fetch: 14,
            self.acknowledge: 14,
            self.commit: 10,
            self.propose: 8,
            self.alter: 8,
            self.answer: 7,
            self.replay: 12,
            self.settle: 4,
            self.fence: 2.5,
            self.unfence: 8,
            self.restart: 1.5,
            self.fail_directory: 1,
            self.reassign: 2,
            self.configure: 1.5,
            self.elect_preferred: 1,
            self.elect_unclean: 3,
        }
        # Each history has its own character: some things happen often in it, and some hardly ever.
        self._weights = {
            step: weight * self.random.choice([0.1, 1, 1, 4]) for step, weight in weights.items()
        }

    @property
    def image(self) -> ClusterImage:
        return self.images[-1]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            (step,) = self.random.choices(list(self._weights), list(self._weights.values()))
            self.trace.append(step.__name__)
            step()
            self.check()

    def check(self) -> None:
        self._forget_what_was_given_up()
        now = partition_of(self.image)
        for one in (*now.isr, *now.elr):
            log = self.replicas[one].log
            assert log[: len(self.committed)] == self.committed, (
                f"broker {one} lacks committed records: {now}"
            )
        problems = broken_invariants(self.image)
        assert not problems, problems

    def agree(self, records: list[pb.MetadataRecord]) -> None:
        """An entry of the metadata log."""
        if not records:
            return
        before, image = self.image, apply(self.image, records)
        problems = broken_steps(before, image)
        assert not problems, problems
        self.images.append(image)
        then, now = partition_of(before), partition_of(image)
        self.trace.append(str(now))
        unclean = now.recovering and now.leader_epoch > then.leader_epoch
        if unclean and now.leader not in (NO_LEADER, *then.isr, *then.elr):
            self.unclean_epoch = now.leader_epoch
            self._unclean_leader = now.leader

    # What brokers and clients do.

    def write(self) -> None:
        for replica in self._leaders():
            self.written += 1
            replica.log.append(Entry(replica.known.leader_epoch, self.written))

    def fetch(self) -> None:
        pairs = [
            (replica, leader)
            for leader in self._leaders()
            for replica in self.replicas.values()
            if replica.can_follow(leader)
        ]
        if pairs:
            replica, leader = self.random.choice(pairs)
            self.acks.append(replica.follow(leader, self.random.choice([0, 1, 100, 100])))

    def acknowledge(self) -> None:
        """The newest mostly; sometimes one that has been on its way for long, or that comes twice."""
        if not self.acks:
            return
        at = -1 if self.random.random() < 0.7 else self.random.randrange(len(self.acks))
        ack = self.acks[at] if self.random.random() < 0.3 else self.acks.pop(at)
        for replica in self.replicas.values():
            replica.hear(ack)

    def commit(self) -> None:
        for replica in self._leaders():
            if replica.known.leader_epoch < self.unclean_epoch:
                continue
            entries = replica.commit()
            shared = common_prefix(entries, self.committed)
            assert len(shared) == min(len(entries), len(self.committed)), "two histories are committed"
            self.committed = max(entries, self.committed, key=len)

    def propose(self) -> None:
        leaders = [one for one in self._leaders() if one.proposed is None]
        if not leaders:
            return
        leader = self.random.choice(leaders)
        isr = [
            one
            for one in leader.known.replicas
            if one != leader.broker_id and (one in leader.known.isr or leader.may_join(one))
        ]
        if self.random.random() < 0.5:
            isr = self.random.sample(isr, self.random.randint(0, len(isr)))
        proposal = leader.propose((leader.broker_id, *isr), recovered=leader.known.recovering)
        self.requests.append(proposal)

    def alter(self) -> None:
        if self.requests:
            request = self.requests.pop(self.random.randrange(len(self.requests)))
            decision = alter_partitions(self.image, request)
            self.agree(decision.records)
            self.answers.append((request, decision.response))

    def answer(self) -> None:
        if not self.answers:
            return
        request, response = self.answers.pop(self.random.randrange(len(self.answers)))
        replica = self.replicas[request.broker_id]
        if replica.broker_epoch == request.broker_epoch:
            replica.answered(request, response)

    def replay(self) -> None:
        replica = self.replicas[self.random.choice(self.brokers)]
        at = replica.view.version - self.images[0].version + self.random.choice([1, 1, 2, 100])
        replica.replay(self.images[min(at, len(self.images) - 1)])

    def settle(self) -> None:
        """A quiet moment: everybody hears of everything, and sometimes all are in sync again after it."""
        for replica in self.replicas.values():
            replica.replay(self.image)
        leader = self.replicas.get(partition_of(self.image).leader)
        if leader is not None:
            for replica in self.replicas.values():
                if replica.can_follow(leader):
                    leader.hear(replica.follow(leader, 100))
            if self.random.random() < 0.6:
                self._rejoin(leader)

    # What the controller and operators do.

    def fence(self) -> None:
        one = self.random.choice(self.brokers)
        if not self.image.brokers[one].fenced:
            self.agree([self._fenced(one, True), *election.partitions_without(self.image, one)])

    def unfence(self) -> None:
        fenced = [one for one in self.brokers if self.image.brokers[one].fenced]
        if fenced:
            one = self.random.choice(fenced)
            self.agree([self._fenced(one, False), *election.partitions_with(self.image, one)])

    def restart(self) -> None:
        one = self.random.choice(self.brokers)
        clean = self.random.random() < 0.75
        self.lives += 1
        registered = broker(one, fenced=True, dirs=2, life=self.lives)
        registered.broker_epoch = self.image.next_broker_epoch
        records = election.partitions_of_new_incarnation(self.image, one, clean=clean)
        self.agree([pb.MetadataRecord(broker_registered=registered), *records])
        length = len(self.replicas[one].log)
        self.replicas[one].restart(self.image, kept=length if clean else self.random.randint(0, length))

    def fail_directory(self) -> None:
        """One of which the controller knows that the replica lies in it."""
        one, now = self.random.choice(self.brokers), partition_of(self.image)
        known = self.image.brokers[one]
        failed = directory_of(now, one)
        if failed == UNKNOWN_DIRECTORY or failed in known.offline_dirs:
            return
        change = pb.BrokerChanged(broker_id=one, broker_epoch=known.epoch)
        change.log_dirs.add(id=failed.bytes, online=False)
        records = election.partitions_of_offline_dirs(self.image, one, {failed})
        self.agree([pb.MetadataRecord(broker_changed=change), *records])
        self.replicas[one].failed = failed

    def reassign(self) -> None:
        """Also cancels, when no replicas are wanted."""
        count = self.random.randint(0, min(3, len(self.brokers)))
        request = admin.AlterReassignmentsRequest()
        request.partitions.add(
            partition=admin.PartitionRef(topic=TOPIC), replicas=self.random.sample(self.brokers, count)
        )
        self.agree(alter_reassignments(self.image, request).records)

    def configure(self) -> None:
        config = pb.ConfigRecord(
            type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name=TOPIC, key=MIN_INSYNC, value=self.random.choice("123")
        )
        records = [pb.MetadataRecord(config=config)]
        after = apply(self.image, records)
        self.agree([*records, *partitions_of_changed_configs(self.image, after)])

    def elect_preferred(self) -> None:
        self.agree(election.elect_leaders(self.image, admin.ElectLeadersRequest()).records)

    def elect_unclean(self) -> None:
        """Soon when nothing else helps, and otherwise seldom: it is the end of what was promised before."""
        now = partition_of(self.image)
        if (now.isr or now.elr) and self.random.random() < 0.95:
            return
        kind = admin.ElectLeadersRequest.KIND_UNCLEAN
        self.agree(election.elect_leaders(self.image, admin.ElectLeadersRequest(kind=kind)).records)

    def _rejoin(self, leader: Replica) -> None:
        active = {one.broker_id for one in self.image.brokers.values() if one.active}
        isr = [one for one in leader.known.replicas if leader.may_join(one) and one in active]
        if leader.leads and leader.proposed is None:
            request = leader.propose((leader.broker_id, *isr), recovered=leader.known.recovering)
            decision = alter_partitions(self.image, request)
            self.agree(decision.records)
            self.answers.append((request, decision.response))

    def _forget_what_was_given_up(self) -> None:
        """Only what a leader of an unclean election has counts on, from when it knows that it is elected."""
        if self._unclean_leader is not None:
            leader = self.replicas[self._unclean_leader]
            self.committed = common_prefix(self.committed, leader.log)
            if leader.known.leader_epoch >= self.unclean_epoch:
                self._unclean_leader = None

    def _leaders(self) -> list[Replica]:
        """All that believe to lead; several, when some have not heard of the newest."""
        return [one for one in self.replicas.values() if one.leads]

    def _fenced(self, one: int, fenced: bool) -> pb.MetadataRecord:
        epoch = self.image.brokers[one].epoch
        return pb.MetadataRecord(
            broker_changed=pb.BrokerChanged(broker_id=one, broker_epoch=epoch, fenced=fenced)
        )
