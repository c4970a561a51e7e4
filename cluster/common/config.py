"""Merges settings from a TOML file, the environment and flags into a checked configuration.

Later wins: file, then TAILRACE_* variables, then flags in their order. Anything that is wrong, in any of
them, is reported at once with the file, variable or flag that it came from, and nothing is started. So what
reads one source raises nothing: a `Problem` stands in its list where a setting could not be made out.
Pure: cluster/runtime/config_file.py reads the file and the environment.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, cast

from tailrace.cluster.common.settings import ConfigError, Problem, Setting, Settings, explain_unknown

C = TypeVar("C")

PREFIX = "TAILRACE_"
FILE_VARIABLE = "TAILRACE_CONFIG"
"""Names the file; not a setting itself."""
_OF_COMMANDS = (FILE_VARIABLE, "TAILRACE_BOOTSTRAP_CONTROLLER")
"""Variables of the command line, no settings of a node."""

_SERVICE_LINK = re.compile(r"TAILRACE(_\w+)?_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""Variables that Kubernetes puts into every container beside a service whose name begins with tailrace."""


class Given(NamedTuple):
    """A value as someone gave it."""

    name: str
    value: object
    source: str


Found = Given | Problem
"""What a source holds."""


class Described(NamedTuple):
    """A setting with its value and where that came from."""

    setting: Setting
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Generic[C]):
    """A configuration, and where each value that is not a default came from (by dotted name)."""

    config: C
    sources: Mapping[str, str]

    def describe(self) -> list[Described]:
        """Every setting, sorted by name."""
        rows = []
        for field_name, component in components(type(self.config)).items():
            values = getattr(self.config, field_name).to_mapping()
            rows += [
                Described(one, values[one.name], self.sources.get(one.name, "default"))
                for one in component.settings()
            ]
        return sorted(rows, key=lambda row: row.setting.name)


def components(cls: type[Any]) -> dict[str, type[Settings]]:
    """The settings classes that a configuration is made of, by the name of their field."""
    return {field.name: cast(type[Settings], field.default_factory) for field in dataclasses.fields(cls)}


def from_toml(text: str, file: str) -> list[Found]:
    """The settings of a file. `"log.retention.ms" = 1`, `log.retention.ms = 1` and tables are the same."""
    source = f"file {file}"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return [Problem("TOML", source, f"cannot be read: {error}")]
    return [Given(name, value, source) for name, value in _flatten(document, "")]


def _flatten(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def from_environment(environ: Mapping[str, str]) -> list[Found]:
    """The settings among the variables: TAILRACE_LOG_RETENTION_MS is log.retention.ms."""
    return [
        Given(
            variable.removeprefix(PREFIX).lower().replace("_", "."), value, f"environment variable {variable}"
        )
        for variable, value in sorted(environ.items())
        if variable.startswith(PREFIX)
        and variable not in _OF_COMMANDS
        and not _is_service_link(variable, value)
    ]


def _is_service_link(variable: str, value: str) -> bool:
    if _SERVICE_LINK.fullmatch(variable) is None:
        return False
    return not variable.endswith("_PORT") or "://" in value or "_SERVICE_" in variable or "_TCP_" in variable


def from_flags(flags: Iterable[str]) -> list[Found]:
    """The settings among the arguments, each `key=value`."""
    return [_from_flag(flag) for flag in flags]


def _from_flag(flag: str) -> Found:
    name, equals, value = flag.partition("=")
    if equals and name.strip():
        return Given(name.strip(), value.strip(), f"flag {flag}")
    return Problem(flag or "''", "flag", "must have the form key=value, such as log.retention.ms=1000")


def load(
    cls: type[C],
    *,
    file: Sequence[Found] = (),
    environment: Sequence[Found] = (),
    flags: Sequence[Found] = (),
) -> Loaded[C]:
    """Merges what was given and builds `cls`, or raises `ConfigError` with all that is wrong."""
    parts = components(cls)
    owner = {name: part for part, known in parts.items() for one in known.settings() for name in _names(one)}
    canonical = {
        alias: one.name for known in parts.values() for one in known.settings() for alias in one.aliases
    }
    same = {name: group for known in parts.values() for group in known.same_thing for name in group}
    merged: dict[str, Given] = {}
    problems: list[Problem] = []
    # Every flag is a layer of its own, so that of two that set one thing the later one counts.
    for layer in (file, environment, *([flag] for flag in flags)):
        fresh: dict[str, Given] = {}
        for one in layer:
            if isinstance(one, Problem):
                problems.append(one)
                continue
            name = canonical.get(one.name, one.name)
            if name not in owner:
                problems.append(Problem(one.name, one.source, explain_unknown(one.name, owner)))
            elif name in fresh:
                message = f"is given twice, also as {fresh[name].name}; give only one"
                problems.append(Problem(one.name, one.source, message))
            else:
                fresh[name] = one
        for name in fresh:
            for other in same.get(name, ()):
                merged.pop(other, None)
        merged |= fresh
    built: dict[str, Settings] = {}
    for part, component in parts.items():
        values = {name: one.value for name, one in merged.items() if owner[name] == part}
        sources = {name: one.source for name, one in merged.items() if owner[name] == part}
        try:
            built[part] = component.from_mapping(values, sources=sources)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Loaded(config=cls(**built), sources={name: one.source for name, one in merged.items()})


def _names(one: Setting) -> tuple[str, ...]:
    return one.name, *one.aliases
