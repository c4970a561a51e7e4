"""Random histories of the metadata log, with a model of plain dictionaries beside each.

A history is a list of entries, each a list of records that are valid where they stand. The model is changed
as each record is drawn, by rules written here a second time and without regard to speed; whatever an image is
made of a history by must say the same as the model (`model_of`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import strategies as st

from tailrace.cluster.common.image import METADATA_VERSION, NO_LEADER, ClusterImage
from tailrace.v1 import metadata_pb2 as pb

R = pb.MetadataRecord
Model = dict[str, Any]
Entry = list[pb.MetadataRecord]
History = list[tuple[Entry, Model]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

# Few of each, so that histories come back to the same ones.
IDS = [bytes([number]) * 16 for number in range(1, 7)]
NAMES = ["a", "b", "a.b"]
BROKERS = [0, 1, 2, 3]
replica_lists = st.lists(st.sampled_from(BROKERS), max_size=4, unique=True)
numbers = st.integers(0, 3)
endpoint_lists = st.lists(
    st.builds(
        pb.Endpoint,
        listener=st.sampled_from(NAMES),
        host=st.sampled_from(NAMES),
        port=numbers,
        tls=st.booleans(),
    ),
    max_size=2,
)
feature_lists = st.lists(
    st.builds(pb.FeatureRange, name=st.sampled_from(NAMES), min_level=numbers, max_level=numbers),
    max_size=2,
    unique_by=lambda one: one.name,
)
directory_lists = st.lists(
    st.builds(pb.LogDir, id=st.sampled_from(IDS), online=st.booleans()),
    max_size=3,
    unique_by=lambda one: one.id,
)


def empty_model() -> Model:
    return {
        "cluster_id": "",
        "features": {},
        "controllers": {},
        "brokers": {},
        "next_broker_epoch": 1,
        "topics": {},
        "configs": {},
        "next_producer_id": 0,
        "requests": [],
    }


def model_of(image: ClusterImage) -> Model:
    assert {topic.name: topic_id for topic_id, topic in image.topics.items()} == image.topic_ids
    return {
        "cluster_id": image.cluster_id,
        "features": dict(image.features),
        "controllers": {
            number: {
                "incarnation": one.incarnation.bytes,
                "endpoints": [tuple(endpoint) for endpoint in one.endpoints],
                "features": {name: tuple(levels) for name, levels in one.features.items()},
            }
            for number, one in image.controllers.items()
        },
        "brokers": {
            number: {
                "incarnation": one.incarnation.bytes,
                "epoch": one.epoch,
                "endpoints": [tuple(endpoint) for endpoint in one.endpoints],
                "rack": one.rack,
                "host": one.host,
                "log_dirs": [(each.directory_id.bytes, each.online) for each in one.log_dirs],
                "features": {name: tuple(levels) for name, levels in one.features.items()},
                "fenced": one.fenced,
                "shutting_down": one.shutting_down,
            }
            for number, one in image.brokers.items()
        },
        "next_broker_epoch": image.next_broker_epoch,
        "topics": {
            topic.name: {
                "id": topic.topic_id.bytes,
                "partitions": [
                    {**one._asdict(), "directories": tuple(each.bytes for each in one.directories)}
                    for one in topic.partitions
                ],
            }
            for topic in image.topics.values()
        },
        "configs": {key: dict(values) for key, values in image.configs.items()},
        "next_producer_id": image.next_producer_id,
        "requests": list(image.requests.items()),
    }


# One function for each kind of record: draws one that is valid now, and changes the model accordingly. None
# when none of the kind would be valid.


def cluster_created(draw: Draw, model: Model) -> pb.MetadataRecord | None:
    if model["cluster_id"]:
        return None
    model["cluster_id"] = draw(st.sampled_from(["c1", "c2"]))
    return R(cluster_created=pb.ClusterCreated(cluster_id=model["cluster_id"]))


def feature_level(draw: Draw, model: Model) -> pb.MetadataRecord:
    name = draw(st.sampled_from([METADATA_VERSION, "f"]))
    level = 1 if name == METADATA_VERSION else draw(numbers)
    model["features"].pop(name, None)
    if level:
        model["features"][name] = level
    return R(feature_level=pb.FeatureLevel(name=name, level=level))


def _shown(endpoints: list[pb.Endpoint], features: list[pb.FeatureRange]) -> Model:
    return {
        "endpoints": [(one.listener, one.host, one.port, one.tls) for one in endpoints],
        "features": {one.name: (one.min_level, one.max_level) for one in features},
    }


def controller_registered(draw: Draw, model: Model) -> pb.MetadataRecord:
    node_id, incarnation = draw(st.sampled_from(BROKERS)), draw(st.sampled_from(IDS))
    endpoints, features = draw(endpoint_lists), draw(feature_lists)
    model["controllers"][node_id] = {"incarnation": incarnation, **_shown(endpoints, features)}
    return R(
        controller_registered=pb.ControllerRegistered(
            node_id=node_id, incarnation=incarnation, endpoints=endpoints, features=features
        )
    )


def broker_registered(draw: Draw, model: Model) -> pb.MetadataRecord:
    broker_id, incarnation = draw(st.sampled_from(BROKERS)), draw(st.sampled_from(IDS))
    before = model["brokers"].get(broker_id)
    epoch = model["next_broker_epoch"] + draw(st.integers(0, 2))
    if before is not None and before["incarnation"] == incarnation and draw(st.booleans()):
        epoch = before["epoch"]
    endpoints, features, log_dirs = draw(endpoint_lists), draw(feature_lists), draw(directory_lists)
    shown = {
        "rack": draw(st.sampled_from(["", "r"])),
        "host": draw(st.sampled_from(NAMES)),
        "fenced": draw(st.booleans()),
        "shutting_down": draw(st.booleans()),
    }
    model["brokers"][broker_id] = {
        "incarnation": incarnation,
        "epoch": epoch,
        "log_dirs": [(one.id, one.online) for one in log_dirs],
        **_shown(endpoints, features),
        **shown,
    }
    model["next_broker_epoch"] = max(model["next_broker_epoch"], epoch + 1)
    return R(
        broker_registered=pb.BrokerRegistered(
            broker_id=broker_id,
            incarnation=incarnation,
            broker_epoch=epoch,
            endpoints=endpoints,
            features=features,
            log_dirs=log_dirs,
            **shown,
        )
    )


def broker_changed(draw: Draw, model: Model) -> pb.MetadataRecord | None:
    if not model["brokers"]:
        return None
    broker_id = draw(st.sampled_from(sorted(model["brokers"])))
    broker = model["brokers"][broker_id]
    record = pb.BrokerChanged(broker_id=broker_id, broker_epoch=broker["epoch"])
    for name in ("fenced", "shutting_down"):
        value = draw(st.none() | st.booleans())
        if value is not None:
            setattr(record, name, value)
            broker[name] = value
    directories = dict(broker["log_dirs"])
    for one in draw(directory_lists):
        record.log_dirs.append(one)
        directories[one.id] = one.online
    broker["log_dirs"] = list(directories.items())
    return R(broker_changed=record)


def broker_unregistered(draw: Draw, model: Model) -> pb.MetadataRecord | None:
    if not model["brokers"]:
        return None
    broker_id = draw(st.sampled_from(sorted(model["brokers"])))
    epoch = model["brokers"].pop(broker_id)["epoch"]
    return R(broker_unregistered=pb.BrokerUnregistered(broker_id=broker_id, broker_epoch=epoch))


def broker_epochs_used(draw: Draw, model: Model) -> pb.MetadataRecord:
    following = draw(st.integers(1, 40))
    model["next_broker_epoch"] = max(model["next_broker_epoch"], following)
    return R(broker_epochs_used=pb.BrokerEpochsUsed(next_broker_epoch=following))


def topic_created(draw: Draw, model: Model) -> pb.MetadataRecord | None:
    names = sorted(set(NAMES) - model["topics"].keys())
    taken = {one["id"] for one in model["topics"].values()}
    if not names:
        return None
    name = draw(st.sampled_from(names))
    topic_id = draw(st.sampled_from([one for one in IDS if one not in taken]))
    model["topics"][name] = {"id": topic_id, "partitions": []}
    return R(topic_created=pb.TopicCreated(topic_id=topic_id, name=name))


def topic_deleted(draw: Draw, model: Model) -> pb.MetadataRecord | None:
    if not model["topics"]:
        return None
    name = draw(st.sampled_from(sorted(model["topics"])))
    topic = model["topics"].pop(name)
    model["configs"].pop((pb.CONFIG_RESOURCE_TYPE_TOPIC, name), None)
    return R(topic_deleted=pb.TopicDeleted(topic_id=topic["id"]))


def partition(draw: Draw, model: Model) -> pb.MetadataRecord | None:
    if not model["topics"]:
        return None
    topic = model["topics"][draw(st.sampled_from(sorted(model["topics"])))]
    number = draw(st.integers(0, len(topic["partitions"])))
    replicas = tuple(draw(replica_lists))
    state = {
        "replicas": replicas,
        "isr": tuple(draw(replica_lists)),
        "leader": draw(st.sampled_from([NO_LEADER, *BROKERS])),
        "leader_epoch": draw(numbers),
        "partition_epoch": draw(numbers),
        "elr": tuple(draw(replica_lists)),
        "last_known_leader": draw(st.sampled_from([NO_LEADER, *BROKERS])),
        "adding": tuple(draw(replica_lists)),
        "removing": tuple(draw(replica_lists)),
        "recovering": draw(st.booleans()),
        "directories": tuple(draw(st.sampled_from(IDS)) for _ in replicas) if draw(st.booleans()) else (),
    }
    topic["partitions"][number : number + 1] = [state]
    known = state["last_known_leader"]
    written = {**state, "last_known_leader": [] if known == NO_LEADER else [known]}
    return R(partition=pb.PartitionRecord(topic_id=topic["id"], partition=number, **written))


def config(draw: Draw, model: Model) -> pb.MetadataRecord:
    kind = draw(st.sampled_from([pb.CONFIG_RESOURCE_TYPE_TOPIC, pb.CONFIG_RESOURCE_TYPE_BROKER]))
    key = (kind, draw(st.sampled_from([*NAMES, ""])))
    name, value = draw(st.sampled_from(["x", "y"])), draw(st.sampled_from([None, "", "1", "2"]))
    values = model["configs"].setdefault(key, {})
    values.pop(name, None)
    if value is not None:
        values[name] = value
    if not values:
        del model["configs"][key]
    return R(config=pb.ConfigRecord(type=kind, name=key[1], key=name, value=value))


def producer_ids_reserved(draw: Draw, model: Model) -> pb.MetadataRecord:
    model["next_producer_id"] += draw(numbers)
    return R(producer_ids_reserved=pb.ProducerIdsReserved(next_producer_id=model["next_producer_id"]))


def request_done(draw: Draw, model: Model) -> pb.MetadataRecord:
    request_id, response = draw(st.sampled_from(IDS)), draw(st.sampled_from([b"", b"yes", b"no"]))
    model["requests"] = [one for one in model["requests"] if one[0] != request_id] + [(request_id, response)]
    return R(request_done=pb.RequestDone(request_id=request_id, response=response))


KINDS: list[Callable[[Draw, Model], pb.MetadataRecord | None]] = [
    cluster_created,
    feature_level,
    controller_registered,
    broker_registered,
    broker_changed,
    broker_unregistered,
    broker_epochs_used,
    topic_created,
    topic_created,
    topic_deleted,
    partition,
    partition,
    partition,
    config,
    producer_ids_reserved,
    request_done,
]


@st.composite
def histories(draw: Draw, max_entries: int = 6) -> History:
    """Entries, and the model after each."""
    model, history = empty_model(), []
    for _ in range(draw(st.integers(0, max_entries))):
        entry: Entry = []
        for kind in draw(st.lists(st.sampled_from(KINDS), max_size=8)):
            record = kind(draw, model)
            entry += [] if record is None else [record]
        history.append((entry, copy.deepcopy(model)))
    return history


@st.composite
def close_pairs(draw: Draw) -> History:
    """The records of a history, and the same with a few more, with the model after each."""
    model = empty_model()
    records: Entry = []
    pair = []
    for most in (8, 2):
        for kind in draw(st.lists(st.sampled_from(KINDS), max_size=most)):
            record = kind(draw, model)
            records += [] if record is None else [record]
        pair.append((list(records), copy.deepcopy(model)))
    return pair


def _parsed(data: bytes) -> pb.MetadataRecord:
    try:
        return R.FromString(data)
    except DecodeError:
        return R()


# Records that need not make sense where they stand.
anything = st.one_of(
    st.builds(
        lambda topic_id, number: R(partition=pb.PartitionRecord(topic_id=topic_id, partition=number)),
        st.sampled_from([*IDS, b"", b"short"]),
        st.integers(-2, 4),
    ),
    st.builds(
        lambda topic_id, name: R(topic_created=pb.TopicCreated(topic_id=topic_id, name=name)),
        st.sampled_from([*IDS, b"short"]),
        st.sampled_from(NAMES),
    ),
    st.builds(
        lambda topic_id: R(topic_deleted=pb.TopicDeleted(topic_id=topic_id)), st.sampled_from([*IDS, b""])
    ),
    st.builds(
        lambda broker_id, epoch, incarnation: R(
            broker_registered=pb.BrokerRegistered(
                broker_id=broker_id, broker_epoch=epoch, incarnation=incarnation
            )
        ),
        st.sampled_from(BROKERS),
        numbers,
        st.sampled_from([*IDS, b""]),
    ),
    st.builds(
        lambda broker_id, epoch: R(
            broker_unregistered=pb.BrokerUnregistered(broker_id=broker_id, broker_epoch=epoch)
        ),
        st.sampled_from(BROKERS),
        numbers,
    ),
    st.binary(max_size=12).map(_parsed),
)
