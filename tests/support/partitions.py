"""What must hold of partitions, of each image and from one image to the next, and how tests show them."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.cluster.common.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage


def broken_invariants(image: ClusterImage) -> list[str]:
    """Of one image. Brokers must have been taken out of service together with their partitions."""
    return [
        f"{shown_partition(topic, number, partition)}: {problem}"
        for topic, number, partition in image.partitions()
        for problem in _broken(image, partition)
    ]


def broken_steps(before: ClusterImage, after: ClusterImage) -> list[str]:
    """Of one entry of the metadata log."""
    return [
        f"{shown_partition(topic, number, then)} -> {shown_partition(topic, number, partition)}: {problem}"
        for topic, number, partition in after.partitions()
        if topic.topic_id in before.topics
        for then in before.topics[topic.topic_id].partitions[number : number + 1]
        for problem in _broken_step(then, partition)
    ]


def shown_partition(topic: TopicImage, number: int, partition: PartitionImage) -> str:
    parts = [
        f"{topic.name}-{number}",
        f"leader={'none' if partition.leader == NO_LEADER else partition.leader}",
        f"epoch={partition.leader_epoch}/{partition.partition_epoch}",
        f"replicas={_shown(partition.replicas)}",
        f"isr={_shown(partition.isr)}",
    ]
    parts += [
        f"{name}={_shown(brokers)}"
        for name, brokers in (
            ("elr", partition.elr),
            ("adding", partition.adding),
            ("removing", partition.removing),
        )
        if brokers
    ]
    if partition.last_known_leader != NO_LEADER:
        parts.append(f"last={partition.last_known_leader}")
    if partition.recovering:
        parts.append("recovering")
    return " ".join(parts)


def _broken(image: ClusterImage, partition: PartitionImage) -> Iterator[str]:
    replicas, isr, elr = partition.replicas, partition.isr, partition.elr
    for name, brokers in (("replicas", replicas), ("isr", isr), ("elr", elr)):
        if len(set(brokers)) != len(brokers):
            yield f"a broker is twice in {name}"
    for name, brokers in (
        ("isr", isr),
        ("elr", elr),
        ("adding", partition.adding),
        ("removing", partition.removing),
    ):
        if not set(brokers) <= set(replicas):
            yield f"{name} has a broker that is no replica"
    if not replicas:
        yield "no replicas"
    if set(isr) & set(elr):
        yield "a broker is in ISR and ELR"
    if set(partition.adding) & set(partition.removing):
        yield "a broker is added and removed"
    if partition.leader != NO_LEADER and partition.leader not in isr:
        yield "the leader is not in the ISR"
    if NO_LEADER not in (partition.leader, partition.last_known_leader):
        yield "there are a leader and a last known leader"
    active = {one.broker_id for one in image.brokers.values() if one.active}
    if partition.leader != NO_LEADER and not set(isr) <= active:
        yield "the ISR has a broker that is not in service"
    targets = set(replicas) - set(partition.removing)
    if partition.reassigning and targets <= set(isr):
        yield "a reassignment that could end goes on"
    if partition.directories and len(partition.directories) != len(replicas):
        yield "not each replica has its directory"


def _broken_step(then: PartitionImage, now: PartitionImage) -> Iterator[str]:
    if now != then and now.partition_epoch <= then.partition_epoch:
        yield "the partition changed and its epoch did not grow"
    if now.leader_epoch < then.leader_epoch:
        yield "the leader epoch went down"
    if now.leader != then.leader and now.leader_epoch <= then.leader_epoch:
        yield "the leader changed within an epoch"
    if not set(then.replicas) <= set(now.replicas) and now.leader_epoch <= then.leader_epoch:
        yield "a replica left within a leader epoch"
    unclean = now.recovering and (not then.recovering or now.leader_epoch > then.leader_epoch)
    if not unclean and not set(now.elr) <= {*then.isr, *then.elr}:
        yield "the ELR has one who was in neither ISR nor ELR"
    if now.leader not in (NO_LEADER, then.leader) and not unclean:
        joined = {*then.isr, *then.elr, *(now.isr if now.replicas != then.replicas else ())}
        if now.leader not in joined:
            yield "a clean election took one who was in neither ISR nor ELR"


def _shown(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers)) or "none"
