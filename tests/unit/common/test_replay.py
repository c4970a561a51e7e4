"""Replaying records one kind at a time: what becomes of the image, what the delta tells, what is refused."""

from __future__ import annotations

import pytest

from tailrace.cluster.common import replay as replay_module
from tailrace.cluster.common.image import (
    EMPTY_IMAGE,
    METADATA_VERSION,
    REQUESTS_KEPT,
    ClusterImage,
    EndpointImage,
    FeatureSupport,
    LogDirImage,
)
from tailrace.cluster.common.image_records import broker_record, partition_record
from tailrace.cluster.common.replay import Delta, ReplayError, image_from_records, partition_from, replay
from tailrace.v1 import metadata_pb2 as pb
from tests.support.metadata import (
    broker,
    directory,
    endpoints,
    feature_ranges,
    image_with,
    incarnation,
    partition,
    topic_id,
    topic_records,
)

R = pb.MetadataRecord
IMAGE = image_with(
    brokers=[1, 2], topics={"t": [(1, 2), (2, 1)], "u": [(1,)]}, configs={"t": {"a": "1", "b": "2"}}
)


def after(image: ClusterImage, *records: pb.MetadataRecord) -> tuple[ClusterImage, Delta]:
    return replay(image, records, version=image.version + 1, controller_epoch=3)


def refused(image: ClusterImage, *records: pb.MetadataRecord) -> str:
    with pytest.raises(ReplayError) as refusal:
        after(image, *records)
    return str(refusal.value)


def registered(broker_id: int, epoch: int, **fields: object) -> pb.MetadataRecord:
    record = broker(broker_id, **fields)  # type: ignore[arg-type]
    record.broker_epoch = epoch
    return R(broker_registered=record)


def changed_broker(broker_id: int, epoch: int, **fields: object) -> pb.MetadataRecord:
    return R(broker_changed=pb.BrokerChanged(broker_id=broker_id, broker_epoch=epoch, **fields))  # type: ignore[arg-type]


def deleted(name: str) -> pb.MetadataRecord:
    return R(topic_deleted=pb.TopicDeleted(topic_id=topic_id(name).bytes))


def state(name: str, number: int, *replicas: int, **fields: object) -> pb.MetadataRecord:
    image = partition(*replicas, **fields)  # type: ignore[arg-type]
    return R(partition=partition_record(topic_id(name), number, image))


def config(name: str, key: str, value: str | None) -> pb.MetadataRecord:
    return R(config=pb.ConfigRecord(type=pb.CONFIG_RESOURCE_TYPE_TOPIC, name=name, key=key, value=value))


def done(request_id: bytes, response: bytes = b"answer") -> pb.MetadataRecord:
    return R(request_done=pb.RequestDone(request_id=request_id, response=response))


def test_replay_takes_version_and_epoch_of_the_entry_when_it_has_no_records() -> None:
    image, delta = after(IMAGE)
    assert (image.version, image.controller_epoch) == (IMAGE.version + 1, 3)
    assert image.topics is IMAGE.topics
    assert delta == Delta()


@pytest.mark.parametrize("version", [0, 1, 3])
def test_replay_refuses_an_entry_when_its_version_does_not_follow(version: int) -> None:
    with pytest.raises(ReplayError, match=f"entry {version} cannot follow version 1"):
        replay(IMAGE, [], version=version, controller_epoch=1)


def test_replay_refuses_a_record_when_its_kind_is_not_known() -> None:
    # Field 39 belongs to a release to come.
    unknown = R.FromString(bytes([0xBA, 0x02, 0x00]))
    assert "does not know" in refused(IMAGE, unknown)
    assert "release" in refused(IMAGE, R())


def test_replay_knows_every_kind_of_record() -> None:
    kinds = {one.name for one in R.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert kinds == set(replay_module._HANDLERS)


def test_cluster_is_created_once() -> None:
    created = R(cluster_created=pb.ClusterCreated(cluster_id="c"))
    image, _ = after(EMPTY_IMAGE, created)
    assert image.cluster_id == "c"
    assert "second" in refused(image, created)
    assert "second" in refused(EMPTY_IMAGE, created, created)


def test_feature_is_set_and_removed_when_its_level_is_zero() -> None:
    image, delta = after(IMAGE, R(feature_level=pb.FeatureLevel(name="f", level=4)))
    assert image.features == {METADATA_VERSION: 1, "f": 4}
    assert delta.features == {"f"}
    image, _ = after(image, R(feature_level=pb.FeatureLevel(name="f")))
    assert image.features == {METADATA_VERSION: 1}


@pytest.mark.parametrize("level", [0, 2])
def test_metadata_level_is_refused_when_this_release_does_not_know_it(level: int) -> None:
    message = refused(IMAGE, R(feature_level=pb.FeatureLevel(name=METADATA_VERSION, level=level)))
    assert f"{METADATA_VERSION} {level}" in message


def test_controller_replaces_its_registration_when_it_registers_again() -> None:
    for life in (1, 2):
        record = pb.ControllerRegistered(
            node_id=9,
            incarnation=incarnation(9, life).bytes,
            endpoints=endpoints(9),
            features=feature_ranges(),
        )
        image, _ = after(IMAGE, R(controller_registered=record))
        made = image.controllers[9]
        assert made.incarnation == incarnation(9, life)
        assert made.endpoints[1] == EndpointImage("CLUSTER", "host-9", 9093, False)
        assert made.features == {METADATA_VERSION: FeatureSupport(1, 1)}


def test_broker_is_registered_with_all_that_it_says() -> None:
    record = registered(3, 7, rack="r", fenced=True, shutting_down=True, dirs=2, offline_dirs=[1])
    image, delta = after(IMAGE, record)
    made = image.brokers[3]
    assert (made.epoch, made.rack, made.host, made.fenced, made.shutting_down) == (
        7,
        "r",
        "host-3",
        True,
        True,
    )
    assert made.log_dirs == (LogDirImage(directory(3, 0), True), LogDirImage(directory(3, 1), False))
    assert image.next_broker_epoch == 8
    assert delta.brokers == {3}
    assert broker_record(made) == record.broker_registered


def test_broker_is_refused_when_its_epoch_is_not_larger() -> None:
    assert "not larger" in refused(IMAGE, registered(2, 1, life=2))
    assert "not larger" in refused(IMAGE, registered(2, 2, life=2))
    assert "not larger" in refused(IMAGE, registered(2, 1))


def test_broker_keeps_its_epoch_when_the_same_process_registers_again() -> None:
    image, _ = after(IMAGE, registered(2, 2, rack="moved"))
    assert (image.brokers[2].rack, image.brokers[2].epoch) == ("moved", 2)
    assert image.next_broker_epoch == 3


def test_next_broker_epoch_never_goes_down_when_brokers_are_forgotten() -> None:
    image, _ = after(IMAGE, R(broker_unregistered=pb.BrokerUnregistered(broker_id=2, broker_epoch=2)))
    assert image.next_broker_epoch == 3
    image, _ = after(image, R(broker_epochs_used=pb.BrokerEpochsUsed(next_broker_epoch=9)))
    image, _ = after(image, R(broker_epochs_used=pb.BrokerEpochsUsed(next_broker_epoch=4)))
    assert image.next_broker_epoch == 9


def test_broker_changes_only_what_the_record_names() -> None:
    image, delta = after(IMAGE, changed_broker(1, 1, fenced=True))
    assert (image.brokers[1].fenced, image.brokers[1].shutting_down) == (True, False)
    assert delta.brokers == {1}
    image, _ = after(image, changed_broker(1, 1, shutting_down=True))
    assert (image.brokers[1].fenced, image.brokers[1].shutting_down) == (True, True)
    image, _ = after(image, changed_broker(1, 1, fenced=False, shutting_down=False))
    assert image.brokers == IMAGE.brokers


def test_broker_keeps_the_order_of_its_directories_when_some_change() -> None:
    image = image_with(brokers=[broker(1, dirs=3)])
    changes = [
        pb.LogDir(id=directory(1, 9).bytes, online=True),
        pb.LogDir(id=directory(1, 1).bytes, online=False),
    ]
    image, _ = after(image, changed_broker(1, 1, log_dirs=changes))
    assert image.brokers[1].log_dirs == (
        LogDirImage(directory(1, 0), True),
        LogDirImage(directory(1, 1), False),
        LogDirImage(directory(1, 2), True),
        LogDirImage(directory(1, 9), True),
    )


def test_broker_is_gone_when_it_is_unregistered() -> None:
    image, delta = after(IMAGE, R(broker_unregistered=pb.BrokerUnregistered(broker_id=2, broker_epoch=2)))
    assert set(image.brokers) == {1}
    assert delta.brokers == {2}


@pytest.mark.parametrize(("broker_id", "epoch"), [(9, 1), (2, 1), (2, 3)])
def test_broker_record_is_refused_when_no_such_registration_is_there(broker_id: int, epoch: int) -> None:
    gone = R(broker_unregistered=pb.BrokerUnregistered(broker_id=broker_id, broker_epoch=epoch))
    for record in (changed_broker(broker_id, epoch, fenced=True), gone):
        assert f"no broker {broker_id} is registered with epoch {epoch}" in refused(IMAGE, record)


def test_topic_is_created_with_its_partitions() -> None:
    image, delta = after(
        IMAGE, *topic_records("new", [(2, 1), partition(1, 2, isr=(1,), elr=(2,))], active=[1])
    )
    made = image.topic("new")
    assert made is not None
    assert [one.replicas for one in made.partitions] == [(2, 1), (1, 2)]
    assert made.partitions[1].elr == (2,)
    assert delta.created_topics == {topic_id("new")}
    assert delta.partitions == {topic_id("new"): {0, 1}}
    assert delta.deleted_topics == {}


def test_topic_has_no_partitions_when_none_follow() -> None:
    image, delta = after(IMAGE, R(topic_created=pb.TopicCreated(topic_id=topic_id("n").bytes, name="n")))
    made = image.topic("n")
    assert made is not None
    assert made.partitions == ()
    assert (delta.created_topics, delta.partitions) == ({topic_id("n")}, {})


def test_topic_is_refused_when_name_or_id_is_taken() -> None:
    for name, identity in (("t", topic_id("other")), ("other", topic_id("t"))):
        record = pb.TopicCreated(topic_id=identity.bytes, name=name)
        assert "twice" in refused(IMAGE, R(topic_created=record))


def test_topic_takes_its_configs_along_when_it_is_deleted() -> None:
    image, delta = after(IMAGE, deleted("t"))
    assert image.topic("t") is None
    assert topic_id("t") not in image.topics
    assert image.topic_configs("t") == {}
    assert delta.deleted_topics == {topic_id("t"): IMAGE.topics[topic_id("t")]}
    assert delta.configs == {(pb.CONFIG_RESOURCE_TYPE_TOPIC, "t")}
    assert image.topic("u") is IMAGE.topic("u")


def test_topic_leaves_no_trace_when_it_is_created_and_deleted_in_one_entry() -> None:
    image, delta = after(IMAGE, *topic_records("n", [(1,)], active=[1]), config("n", "k", "v"), deleted("n"))
    assert (image.topics, image.topic_ids, image.configs) == (IMAGE.topics, IMAGE.topic_ids, IMAGE.configs)
    assert (delta.created_topics, delta.deleted_topics, delta.partitions) == (set(), {}, {})


def test_topic_is_another_one_when_its_name_is_used_again_in_one_entry() -> None:
    again = pb.TopicCreated(topic_id=topic_id("second").bytes, name="t")
    one = R(partition=partition_record(topic_id("second"), 0, partition(2)))
    image, delta = after(IMAGE, state("t", 0, 1, 2), deleted("t"), R(topic_created=again), one)
    made = image.topic("t")
    assert made is not None
    assert (made.topic_id, len(made.partitions)) == (topic_id("second"), 1)
    assert image.topic_configs("t") == {}
    assert delta.partitions == {topic_id("second"): {0}}
    assert set(delta.deleted_topics) == {topic_id("t")}


def test_topic_is_refused_when_it_is_deleted_and_not_there() -> None:
    assert "does not exist" in refused(IMAGE, deleted("n"))
    assert "does not exist" in refused(IMAGE, deleted("t"), deleted("t"))
    assert "does not exist" in refused(IMAGE, deleted("t"), state("t", 0, 1))


def test_partition_is_replaced_as_a_whole_when_it_changes() -> None:
    everything = partition(
        2,
        1,
        isr=(2,),
        leader_epoch=4,
        partition_epoch=9,
        elr=(1,),
        adding=(2,),
        removing=(1,),
        recovering=True,
        directories=(directory(2), directory(1)),
    )
    image, delta = after(IMAGE, R(partition=partition_record(topic_id("t"), 1, everything)))
    assert image.topics[topic_id("t")].partitions == (IMAGE.topics[topic_id("t")].partitions[0], everything)
    assert delta.partitions == {topic_id("t"): {1}}
    image, _ = after(image, state("t", 1, 1))
    assert image.topics[topic_id("t")].partitions[1] == partition(1)


def test_partition_keeps_who_led_last_when_nobody_leads() -> None:
    for known in (-1, 0, 5):
        given = partition(1, isr=(), last_known_leader=known)
        assert partition_from(partition_record(topic_id("t"), 0, given)) == given


def test_partition_counts_as_changed_by_its_last_state_when_an_entry_has_several() -> None:
    image, delta = after(IMAGE, state("t", 0, 2), state("t", 0, 1), state("t", 2, 1), state("t", 2, 2))
    assert [one.replicas for one in image.topics[topic_id("t")].partitions] == [(1,), (2, 1), (2,)]
    assert delta.partitions == {topic_id("t"): {0, 2}}


@pytest.mark.parametrize("number", [-1, 3])
def test_partition_is_refused_when_its_number_does_not_follow(number: int) -> None:
    assert f"partition {number}" in refused(IMAGE, state("t", number, 1))


def test_partition_is_refused_when_its_topic_is_not_there() -> None:
    assert "does not exist" in refused(IMAGE, state("n", 0, 1))


def test_config_is_removed_when_it_has_no_value() -> None:
    image, delta = after(IMAGE, config("t", "a", None), config("t", "b", ""), config("t", "c", "3"))
    assert image.topic_configs("t") == {"b": "", "c": "3"}
    assert delta.configs == {(pb.CONFIG_RESOURCE_TYPE_TOPIC, "t")}
    image, _ = after(image, config("t", "b", None), config("t", "c", None), config("u", "never", None))
    assert image.configs == {}


def test_producer_ids_are_refused_when_they_go_down() -> None:
    image, _ = after(IMAGE, R(producer_ids_reserved=pb.ProducerIdsReserved(next_producer_id=50)))
    assert image.next_producer_id == 50
    assert "twice" in refused(image, R(producer_ids_reserved=pb.ProducerIdsReserved(next_producer_id=49)))


def test_requests_drop_the_oldest_when_there_are_too_many() -> None:
    image, _ = after(IMAGE, *(done(number.to_bytes(2, "big")) for number in range(REQUESTS_KEPT + 2)))
    assert list(image.requests)[:2] == [b"\x00\x02", b"\x00\x03"]
    assert len(image.requests) == REQUESTS_KEPT


def test_requests_drop_the_oldest_when_their_answers_are_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "REQUEST_BYTES_KEPT", 100)
    image, _ = after(IMAGE, done(b"a", b"x" * 40), done(b"b", b"x" * 40))
    image, _ = after(image, done(b"c", b"x" * 30))
    assert list(image.requests) == [b"b", b"c"]
    image, _ = after(image, done(b"b", b"y" * 70))
    assert list(image.requests.items()) == [(b"c", b"x" * 30), (b"b", b"y" * 70)]
    image, _ = after(image, done(b"d", b"x" * 101))
    assert list(image.requests) == [b"d"]


def test_replay_refuses_a_record_when_an_id_has_the_wrong_length() -> None:
    short = b"short"
    shortened = broker(3)
    shortened.broker_epoch, shortened.incarnation = 9, short
    strange = partition_record(topic_id("t"), 0, partition(1))
    strange.directories.append(short)
    for record in (
        R(topic_created=pb.TopicCreated(topic_id=short, name="n")),
        R(topic_deleted=pb.TopicDeleted(topic_id=short)),
        R(partition=pb.PartitionRecord(topic_id=short)),
        R(partition=strange),
        R(broker_registered=shortened),
        R(controller_registered=pb.ControllerRegistered(node_id=1, incarnation=short)),
        changed_broker(1, 1, log_dirs=[pb.LogDir(id=short)]),
    ):
        assert "5 bytes instead of 16" in refused(IMAGE, record)


def test_snapshot_gives_the_version_and_epoch_that_it_is_said_to_have() -> None:
    image = image_from_records([], version=17, controller_epoch=4)
    assert (image.version, image.controller_epoch) == (17, 4)
