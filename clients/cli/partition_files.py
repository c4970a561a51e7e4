"""The JSON files of Kafka's tools for partitions: read with every mistake named, and written.

    {"version": 1, "partitions": [{"topic": "clicks", "partition": 0, "replicas": [1, 2]}]}   to reassign
    {"version": 1, "partitions": [{"topic": "clicks", "partition": 0}]}                       to elect leaders
    {"version": 1, "topics": [{"topic": "clicks"}]}                                           to move

Fields that Kafka has and that mean nothing yet are taken where they ask for nothing (`log_dirs` with "any"),
and refused where they do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from tailrace.clients.cli.arguments import MAX_INT
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.types import TopicPartition

VERSION = 1


def read_reassignment(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for place, entry in _entries(path, "partitions"):
        partition = _partition(path, place, entry)
        if partition in found:
            raise _wrong(path, f"{place}: {partition} is there twice")
        found[partition] = _replicas(path, place, entry)
    return found


def read_partitions(path: Path) -> list[TopicPartition]:
    return list(
        dict.fromkeys(_partition(path, place, entry) for place, entry in _entries(path, "partitions"))
    )


def read_topics(path: Path) -> list[str]:
    return list(dict.fromkeys(_topic(path, place, entry) for place, entry in _entries(path, "topics")))


def reassignment_text(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """What `read_reassignment` reads, on one line."""
    partitions = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(replicas)}
        for partition, replicas in sorted(assignment.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def _entries(path: Path, field: str) -> list[tuple[str, dict[str, Any]]]:
    document = _read(path)
    if not isinstance(document, dict):
        raise _wrong(path, f'must be an object with "version" and "{field}"')
    if document.get("version", VERSION) != VERSION:
        raise _wrong(path, f'has "version" {document["version"]!r}; only {VERSION} is known')
    entries = document.get(field)
    if not isinstance(entries, list) or not entries:
        raise _wrong(path, f'needs "{field}", a list that is not empty')
    places = [(f"{field}[{number}]", entry) for number, entry in enumerate(entries)]
    for place, entry in places:
        if not isinstance(entry, dict):
            raise _wrong(path, f"{place} must be an object, not {entry!r}")
    return places


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from None
    except RecursionError:
        raise _wrong(path, "is nested too deeply") from None
    except ValueError as error:
        raise _wrong(path, f"is not JSON: {error}") from None


def _topic(path: Path, place: str, entry: dict[str, Any]) -> str:
    topic = entry.get("topic")
    if not isinstance(topic, str) or not topic:
        raise _wrong(path, f'{place} needs "topic", the name of a topic')
    return topic


def _partition(path: Path, place: str, entry: dict[str, Any]) -> TopicPartition:
    number = entry.get("partition")
    if not _is_id(number):
        raise _wrong(path, f'{place} needs "partition", the number of a partition')
    return TopicPartition(_topic(path, place, entry), number)


def _replicas(path: Path, place: str, entry: dict[str, Any]) -> tuple[int, ...]:
    replicas = entry.get("replicas")
    if not isinstance(replicas, list) or not replicas or not all(map(_is_id, replicas)):
        raise _wrong(path, f'{place} needs "replicas", a list of the ids of brokers')
    directories = entry.get("log_dirs", [])
    if not isinstance(directories, list) or any(one != "any" for one in directories):
        raise _wrong(
            path, f'{place}: "log_dirs" is not yet supported; leave it out, and brokers choose the directory'
        )
    return tuple(replicas)


def _is_id(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_INT


def _wrong(path: Path, message: str) -> TailraceError:
    return TailraceError(ErrorCode.INVALID_CONFIG, f"{path} {message}")
