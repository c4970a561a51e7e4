"""Values of options in the forms that Kafka's tools take, read and checked before anything is asked.

What cannot be read is a `typer.BadParameter`, which names the option and the form that it must have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import typer

from tailrace.cluster.common.types import TopicPartition

MAX_INT = 2**31 - 1

# key=value pairs with commas between them; a value with commas stands in brackets.
_PAIR = re.compile(r"\s*(?P<key>[^=,\s]+)\s*=\s*(?:\[(?P<list>[^\]]*)\]|(?P<value>[^,]*))\s*(?:,|$)")


def usage_error(message: str, option: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint=option)


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value`, one in each text; the value is everything behind the first '='."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise usage_error(f"{text!r} must have the form key=value, such as retention.ms=1000", option)
        _add(pairs, key.strip(), value.strip(), option)
    return pairs


def parse_pair_lists(texts: Iterable[str], option: str) -> dict[str, str]:
    """`key=value,key=[value,value]`, any number of them in each text."""
    pairs: dict[str, str] = {}
    for text in texts:
        position = 0
        while position < len(text):
            match = _PAIR.match(text, position)
            if match is None:
                raise usage_error(
                    f"{text!r} must have the form key=value,key=[value,value]; it cannot be read from "
                    f"{text[position:]!r} on",
                    option,
                )
            value = match["list"] if match["list"] is not None else match["value"]
            _add(pairs, match["key"], value.strip(), option)
            position = match.end()
    return pairs


def _add(pairs: dict[str, str], key: str, value: str, option: str) -> None:
    if key in pairs:
        raise usage_error(f"{key} is given twice", option)
    pairs[key] = value


def parse_names(texts: Iterable[str]) -> list[str]:
    """Names with commas, any number of them in each text."""
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def parse_assignment(text: str | None, option: str) -> list[list[int]]:
    """`1:2,2:3`: partitions with commas, the brokers of each with colons."""
    if text is None:
        return []
    assignment = []
    for partition in text.split(","):
        try:
            brokers = [int(one) for one in partition.split(":")]
        except ValueError:
            brokers = []
        if not brokers or not _are_ids(brokers):
            raise usage_error(
                f"{partition!r} must be ids of brokers with colons between them, such as 1:2:3", option
            )
        assignment.append(brokers)
    return assignment


def parse_ids(text: str, option: str) -> list[int]:
    """Ids of brokers with commas, each once."""
    try:
        found = [int(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not _are_ids(found) or len(set(found)) != len(found):
        raise usage_error(f"{text!r} must be ids of brokers with commas, each once, such as 1,2,3", option)
    return found


def parse_level(text: str, option: str) -> tuple[str, int]:
    """`metadata.version=2`."""
    name, equals, level = text.partition("=")
    if not equals or not name.strip() or not level.strip().isdecimal() or int(level) > MAX_INT:
        raise usage_error(f"{text!r} must be the name of a feature and a level: metadata.version=2", option)
    return name.strip(), int(level)


def one_partition(topic: str | None, partition: int | None) -> TopicPartition | None:
    if (topic is None) != (partition is None):
        raise usage_error("belong together: give both", "--topic and --partition")
    return None if topic is None or partition is None else TopicPartition(topic, partition)


def exactly_one(options: dict[str, bool]) -> str:
    """The option that was given, when it must be one of several."""
    given = [name for name, present in options.items() if present]
    if len(given) != 1:
        raise usage_error(
            f"give exactly one of them{f', not {len(given)}' if given else ''}", ", ".join(options)
        )
    return given[0]


def shown_ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _are_ids(numbers: Iterable[int]) -> bool:
    return all(0 <= one <= MAX_INT for one in numbers)
