"""Names that become directories are checked before anything is made of them."""

from __future__ import annotations

import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.names import check_topic_partition
from tailrace.cluster.common.types import TopicPartition
from tests.support.engine import TOPIC_ID, Engine


@pytest.mark.parametrize(
    "topic", ["orders", "a", "A.b_c-9", "x" * 249, "x-delete", "...", "__consumer_offsets"]
)
def test_topic_name_is_taken_when_it_follows_the_rule(topic: str) -> None:
    check_topic_partition(TopicPartition(topic, 0))
    check_topic_partition(TopicPartition(topic, 2**31 - 1))


@pytest.mark.parametrize("topic", ["", ".", "..", "../escape", "a/b", " x", "ü", "x" * 250, "a\nb", "a\0"])
def test_topic_name_is_refused_when_it_could_leave_its_directory_or_not_be_one(topic: str) -> None:
    with pytest.raises(TailraceError) as refused:
        check_topic_partition(TopicPartition(topic, 0))
    assert refused.value.code is ErrorCode.INVALID_TOPIC


@pytest.mark.parametrize("partition", [-1, 2**31])
def test_partition_is_refused_when_it_is_no_number_of_one(partition: int) -> None:
    with pytest.raises(TailraceError) as refused:
        check_topic_partition(TopicPartition("orders", partition))
    assert refused.value.code is ErrorCode.INVALID_PARTITIONS


def test_log_is_not_created_when_its_topic_has_a_bad_name() -> None:
    engine = Engine()
    before = engine.files.list("/data")
    for name in ("../escape", "x" * 300):
        with pytest.raises(TailraceError):
            engine.manager.create(TopicPartition(name, 0), TOPIC_ID, now_ms=engine.now_ms)
    engine.drain()
    assert engine.files.list("/data") == before
    assert not engine.offline
