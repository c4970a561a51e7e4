"""Settings that nothing reads yet say so, and all others are read by the node's code."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import pytest

from tailrace.cluster.common.config import components
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.common.settings import Setting, Settings
from tailrace.cluster.common.storage_config import StorageConfig, topic_sources
from tailrace.cluster.common.topic_config import TopicConfig

CLUSTER = Path(__file__).resolve().parent.parent.parent.parent / "cluster"
DECLARING = set((CLUSTER / "common").glob("*_config.py"))
HOLDERS = ("config", "_config", "server", "controller", "logging")
"""What code calls a settings object; an attribute of anything else is no setting."""


def attributes_read(text: str, owners: Iterable[str]) -> set[str]:
    """The attributes read from something whose name, or last part of it, is among `owners`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value).rpartition(".")[2] in owners
    }


def read_in_cluster() -> set[str]:
    """Fields of settings objects that the code reads, itself or through a property of the object."""
    texts = [path.read_text(encoding="utf-8") for path in CLUSTER.rglob("*.py") if path not in DECLARING]
    read = set[str]().union(*(attributes_read(text, HOLDERS) for text in texts))
    by_name = [re.findall(r'(?:node_setting\(\S+ |_number\()"([a-z.]+)"', text) for text in texts]
    read |= {name.replace(".", "_") for names in by_name for name in names}
    for cls in (TopicConfig, *components(NodeConfig).values()):
        for name, member in vars(cls).items():
            if isinstance(member, property) and name in read:
                read |= attributes_read(textwrap.dedent(inspect.getsource(member.fget)), ["self"])  # type: ignore[arg-type]
    return read


def unread(settings: Iterable[Setting], read: set[str]) -> set[str]:
    return {one.name for one in settings if one.field not in read}


def waiting(settings: Iterable[Setting]) -> set[str]:
    return {one.name for one in settings if one.waits_for}


def fed_topic_settings(node_setting: str) -> set[str]:
    """The topic settings whose default a setting of the node gives."""
    sources = topic_sources({}, {node_setting: "here"})
    return {name for name, source in sources.items() if source != "default"}


def test_topic_setting_is_read_unless_it_says_what_it_waits_for() -> None:
    settings = TopicConfig.settings()
    assert unread(settings, read_in_cluster()) == waiting(settings)


@pytest.mark.parametrize("component", components(NodeConfig).values(), ids=lambda cls: cls.__name__)
def test_node_setting_is_read_or_gives_a_default_unless_it_says_what_it_waits_for(
    component: type[Settings],
) -> None:
    read, topic_waits = read_in_cluster(), waiting(TopicConfig.settings())
    effective = {one.name for one in component.settings() if fed_topic_settings(one.name) - topic_waits}
    assert unread(component.settings(), read) - effective == waiting(component.settings())


def test_topic_settings_are_found_behind_the_nodes_that_give_their_defaults() -> None:
    fed = set[str]().union(*(fed_topic_settings(one.name) for one in StorageConfig.settings()))
    assert fed == {one.name for one in TopicConfig.settings() if one.broker_name}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log.config.flush", {"flush"}),
        ("self._config.log_dirs", {"log_dirs"}),
        ("compressor.flush()", set()),
        ("config.flush = 1", set()),
        ("# config.flush", set()),
    ],
)
def test_rule_on_reading_finds_the_attribute_when_a_settings_object_has_it(
    text: str, expected: set[str]
) -> None:
    assert attributes_read(text, HOLDERS) == expected
