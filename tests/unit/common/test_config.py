"""A node's settings: merged from file, environment and flags, with every problem and its source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tailrace.cluster.common.config import (
    Loaded,
    components,
    from_environment,
    from_flags,
    from_toml,
    load,
)
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.common.settings import ConfigError
from tailrace.cluster.common.storage_config import StorageConfig
from tailrace.cluster.common.topic_config import TopicConfig
from tailrace.cluster.runtime.config_file import load_node_config


def node(
    toml: str = "", environ: dict[str, str] | None = None, flags: tuple[str, ...] = ()
) -> Loaded[NodeConfig]:
    return load(
        NodeConfig,
        file=from_toml(toml, "node.toml"),
        environment=from_environment(environ or {}),
        flags=from_flags(flags),
    )


def problems(
    toml: str = "", environ: dict[str, str] | None = None, flags: tuple[str, ...] = ()
) -> list[tuple[str, str, str]]:
    with pytest.raises(ConfigError) as raised:
        node(toml, environ, flags)
    return [(problem.name, problem.source, problem.message) for problem in raised.value.problems]


def test_setting_names_belong_to_one_component_and_stand_for_one_field() -> None:
    names = Counter(
        name
        for component in components(NodeConfig).values()
        for one in component.settings()
        for name in (one.name, *one.aliases)
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("cls", [StorageConfig, TopicConfig, *components(NodeConfig).values()])
def test_setting_has_a_meaning_and_a_default_of_its_kind(cls: type[StorageConfig]) -> None:
    for one in cls.settings():
        assert one.doc.endswith("."), one.name
        assert one.kind.parse(one.kind.show(one.default)) == one.default, one.name


def test_topic_settings_name_a_setting_of_the_node_that_exists_as_their_default() -> None:
    known = {one.name for one in StorageConfig.settings()}
    named = {one.broker_name for one in TopicConfig.settings() if one.broker_name}
    assert named <= known


def test_node_gives_topics_kafkas_defaults_when_nothing_is_set() -> None:
    assert StorageConfig().topic_defaults() == TopicConfig()


@pytest.mark.parametrize(
    "toml",
    [
        '"log.retention.ms" = 5',
        "log.retention.ms = 5",
        "[log.retention]\nms = 5",
        '[log]\n"retention.ms" = "5"',
    ],
)
def test_file_gives_the_same_setting_when_names_are_quoted_dotted_or_in_tables(toml: str) -> None:
    assert node(toml).config.storage.log_retention_ms == 5


def test_flag_wins_over_environment_and_environment_over_file() -> None:
    loaded = node(
        'flush = "os"\njournal.bytes = 8388608\nlog.preallocate = true',
        {"TAILRACE_FLUSH": "commit", "TAILRACE_JOURNAL_BYTES": "16777216"},
        ("journal.bytes=33554432", "journal.bytes=67108864"),
    )
    storage = loaded.config.storage
    assert (storage.log_preallocate, storage.flush, storage.journal_bytes) == (True, "commit", 67108864)
    described = {row.setting.name: (row.value, row.source) for row in loaded.describe()}
    assert described["log.preallocate"] == ("true", "file node.toml")
    assert described["flush"] == ("commit", "environment variable TAILRACE_FLUSH")
    assert described["journal.bytes"] == ("67108864", "flag journal.bytes=67108864")
    assert described["logging.level"] == ("info", "default")
    assert list(described) == sorted(described)


def test_finest_unit_wins_when_several_are_in_one_source() -> None:
    both = "log.retention.hours = 1\nlog.retention.minutes = 2\nlog.roll.hours = 1\nlog.roll.ms = 7"
    topics = node(both).config.storage.topic_defaults()
    assert (topics.retention_ms, topics.segment_ms) == (120_000, 7)
    with_ms = node(both + "\nlog.retention.ms = 3").config.storage.topic_defaults()
    assert with_ms.retention_ms == 3


def test_later_source_wins_when_it_uses_a_coarser_unit() -> None:
    storage = node("log.retention.ms = 3", {"TAILRACE_LOG_RETENTION_HOURS": "2"}).config.storage
    assert storage.topic_defaults().retention_ms == 7_200_000


@pytest.mark.parametrize("name", ["ms", "minutes", "hours"])
def test_retention_is_for_ever_when_minus_one_in_any_unit(name: str) -> None:
    storage = node(f"log.retention.{name} = -1").config.storage
    assert storage.topic_defaults().retention_ms == -1


def test_flush_interval_comes_from_the_scheduler_when_not_set_itself() -> None:
    scheduler = node("log.flush.scheduler.interval.ms = 50").config.storage
    assert scheduler.topic_defaults().flush_ms == 50
    own = node("log.flush.scheduler.interval.ms = 50\nlog.flush.interval.ms = 9").config.storage
    assert own.topic_defaults().flush_ms == 9


def test_directories_are_log_dirs_or_else_log_dir() -> None:
    assert node().config.storage.directories == ("tailrace-data",)
    assert node('log.dir = "a"').config.storage.directories == ("a",)
    assert node('log.dir = "a"\nlog.dirs = ["b", "c"]').config.storage.directories == ("b", "c")
    assert node('log.dirs = ["b", "c"]', flags=("log.dir=a",)).config.storage.directories == ("a",)


def test_environment_takes_lists_with_commas() -> None:
    assert node(environ={"TAILRACE_LOG_DIRS": "a, b"}).config.storage.directories == ("a", "b")


def test_alias_sets_the_same_thing_across_sources_and_is_refused_twice_in_one() -> None:
    loaded = node(
        'log.message.timestamp.type = "CreateTime"', flags=("message.timestamp.type=LogAppendTime",)
    )
    assert loaded.config.storage.log_message_timestamp_type == "LogAppendTime"
    twice = 'log.message.timestamp.type = "CreateTime"\nmessage.timestamp.type = "LogAppendTime"'
    [(name, source, message)] = problems(twice)
    assert (name, source) == ("message.timestamp.type", "file node.toml")
    assert "given twice" in message


def test_all_problems_of_all_sources_are_reported_with_their_source() -> None:
    found = problems(
        'log.retention.msec = 1\nflush = "never"\nbroker.rack = "x"',
        {"TAILRACE_LOGGING_LEVEL": "loud"},
        ("journal.max.append.bytes=67108864", "zookeeper.connect=a"),
    )
    by_name = {name: (source, message) for name, source, message in found}
    assert by_name["log.retention.msec"][0] == "file node.toml"
    assert "did you mean log.retention.ms?" in by_name["log.retention.msec"][1]
    assert by_name["flush"][0] == "file node.toml"
    assert "not yet supported" in by_name["broker.rack"][1]
    assert by_name["logging.level"][0] == "environment variable TAILRACE_LOGGING_LEVEL"
    assert by_name["journal.max.append.bytes"][0] == "flag journal.max.append.bytes=67108864"
    assert "a quarter of journal.bytes" in by_name["journal.max.append.bytes"][1]
    assert "no ZooKeeper" in by_name["zookeeper.connect"][1]
    assert len(found) == 6


@pytest.mark.parametrize(
    "flags",
    [
        ("message.max.bytes=2000000", "log.pending.max.bytes=1048576"),
        ("log.roll.jitter.hours=2", "log.roll.hours=1"),
        ("log.cleaner.min.compaction.lag.ms=2", "log.cleaner.max.compaction.lag.ms=1"),
        ("log.cleaner.io.buffer.size=2097152", "log.cleaner.dedupe.buffer.size=1048576"),
        ("log.dirs=a,a",),
    ],
)
def test_node_config_is_refused_when_settings_do_not_fit_each_other(flags: tuple[str, ...]) -> None:
    assert len(problems(flags=flags)) == 1


def test_environment_variables_of_kubernetes_services_are_not_taken_for_settings() -> None:
    links = {
        "TAILRACE_SERVICE_HOST": "10.0.0.1",
        "TAILRACE_SERVICE_PORT": "9092",
        "TAILRACE_PORT": "tcp://10.0.0.1:9092",
        "TAILRACE_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "TAILRACE_PORT_9092_TCP_PORT": "9092",
        "TAILRACE_PORT_9092_TCP_ADDR": "10.0.0.1",
        "TAILRACE_UI_SERVICE_PORT_HTTP": "80",
    }
    assert from_environment(links | {"OTHER": "x", "TAILRACE_CONFIG": "node.toml"}) == []
    assert [one.name for one in from_environment({"TAILRACE_PORT": "9092"})] == ["port"]


@pytest.mark.parametrize(("flag", "name"), [("log.dirs", "log.dirs"), ("=x", "=x"), ("", "''")])
def test_flag_is_refused_when_it_is_not_key_and_value(flag: str, name: str) -> None:
    [(found, source, message)] = problems(flags=(flag,))
    assert (found, source) == (name, "flag")
    assert "key=value" in message


def test_file_is_refused_with_its_line_when_it_is_not_toml() -> None:
    [(name, source, message)] = problems("flush = 'os'\nflush = = 1\n")
    assert (name, source) == ("TOML", "file node.toml")
    assert "line 2" in message


def test_malformed_flags_and_file_are_reported_with_everything_else_that_is_wrong() -> None:
    found = problems(
        "flush = = 1", {"TAILRACE_LOGGING_LEVEL": "loud"}, ("log.dirs", "flush=never", "logging.format")
    )
    assert [name for name, _, _ in found] == ["TOML", "log.dirs", "logging.format", "flush", "logging.level"]


def test_node_config_is_read_from_the_file_that_the_environment_names(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('logging.level = "debug"')
    loaded = load_node_config(None, {"TAILRACE_CONFIG": str(path)}, ["logging.format=json"])
    assert (loaded.config.logging.logging_level, loaded.config.logging.logging_format) == ("debug", "json")
    assert loaded.sources["logging.level"] == f"file {path}"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_node_config_names_the_file_when_it_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "node.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_node_config(path, {"TAILRACE_FLUSH": "never"}, ["log.dirs"])
    unreadable, *others = raised.value.problems
    assert (unreadable.source, "cannot be read" in unreadable.message) == (f"file {path}", True)
    assert [problem.name for problem in others] == ["log.dirs", "flush"]
