"""Whatever is asked for, what stands in the metadata can be read as it is, by nodes and topics alike."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.cluster.common.errors import ErrorCode
from tailrace.cluster.common.image import ClusterImage
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.controller.core.config_alter import alter_configs
from tailrace.cluster.controller.core.configs import merged, node_layers, topic_config
from tailrace.v1 import admin_pb2 as pb
from tailrace.v1.metadata_pb2 import CONFIG_RESOURCE_TYPE_BROKER, CONFIG_RESOURCE_TYPE_TOPIC
from tests.support.answers import codes_of
from tests.support.metadata import apply, image_with

Request = pb.AlterConfigsRequest

OPERATIONS = (Request.OP_SET, Request.OP_DELETE, Request.OP_APPEND, Request.OP_SUBTRACT)
TOPICS = ("t", "u")
BROKERS = ("", "1", "2")
RELATED = {
    CONFIG_RESOURCE_TYPE_TOPIC: (
        "segment.ms",
        "segment.jitter.ms",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "cleanup.policy",
    ),
    CONFIG_RESOURCE_TYPE_BROKER: (
        "log.roll.ms",
        "log.roll.jitter.ms",
        "log.cleaner.min.compaction.lag.ms",
        "log.cleaner.max.compaction.lag.ms",
        "log.cleanup.policy",
        "message.max.bytes",
        "log.pending.max.bytes",
    ),
}
VALUES = ("1", "5", "1000", "600000", "2097152", "4194304", "compact", "delete", "compact,delete", "")


@st.composite
def resources(draw: st.DrawFn) -> Request.Resource:
    kind = draw(st.sampled_from(list(RELATED)))
    names = TOPICS if kind == CONFIG_RESOURCE_TYPE_TOPIC else BROKERS
    keys = draw(st.lists(st.sampled_from(RELATED[kind]), min_size=1, max_size=3))
    changes = [
        Request.Change(
            key=key,
            op=draw(st.sampled_from(OPERATIONS)),
            value=draw(st.sampled_from(VALUES)),
        )
        for key in keys
    ]
    resource = pb.ConfigResource(type=kind, name=draw(st.sampled_from(names)))
    return Request.Resource(resource=resource, changes=changes)


def check_readable(image: ClusterImage) -> None:
    for broker_id in (None, 1, 2):
        StorageConfig.from_mapping(merged(node_layers(image, broker_id=broker_id)))
    node = StorageConfig.from_mapping(merged(node_layers(image)))
    for name in TOPICS:
        config = TopicConfig.from_mapping(image.topic_configs(name), defaults=node.topic_defaults())
        assert config == topic_config(image, name)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(resources(), min_size=1, max_size=4), max_size=8))
def test_altered_settings_are_readable_when_requests_are_arbitrary(
    requests: list[list[Request.Resource]],
) -> None:
    image = image_with(brokers=[1, 2], topics={name: [(1, 2)] for name in TOPICS})
    for asked in requests:
        before = image
        decision = alter_configs(image, Request(resources=asked))
        image = apply(image, decision)
        check_readable(image)
        for resource, code in zip(asked, codes_of(decision.response.resources), strict=True):
            key = (resource.resource.type, resource.resource.name)
            if code is not ErrorCode.NONE:
                assert image.configs.get(key) == before.configs.get(key)
        checked = alter_configs(before, Request(resources=asked, validate_only=True))
        assert (checked.response, checked.records) == (decision.response, [])
