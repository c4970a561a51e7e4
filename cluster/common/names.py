"""What may be the name of a topic: Kafka's rule, since a topic's name is also that of a directory. Pure."""

from __future__ import annotations

import re

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition

LONGEST_NAME = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_partition(topic_partition: TopicPartition) -> None:
    """Raise INVALID_TOPIC or INVALID_PARTITIONS, before anything is made of the name."""
    topic, partition = topic_partition
    if not topic or len(topic) > LONGEST_NAME or topic in (".", "..") or not _NAME.fullmatch(topic):
        shown = topic if len(topic) <= 60 else f"{topic[:60]}..."
        raise TailraceError(
            ErrorCode.INVALID_TOPIC,
            f"{shown!r} cannot be a topic's name: use 1 to {LONGEST_NAME} of the characters a-z, A-Z, 0-9, "
            "'.', '_' and '-', and neither '.' nor '..'",
        )
    if not 0 <= partition < 2**31:
        raise TailraceError(
            ErrorCode.INVALID_PARTITIONS, f"{partition} cannot be a partition's number: it must be 0 or more"
        )
