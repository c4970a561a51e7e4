"""Typed settings: how a component declares them, and how text becomes a checked object.

A component declares one frozen dataclass derived from `Settings`. Each field is made by `setting(...)`,
which records kind, default, meaning and whether the value may change while the process runs. A field's
name is the setting's own with underscores for the dots: `retention_ms` is `retention.ms`.

Invariant: an object of such a class holds only values of their kinds, and every relation between them
holds; building one that breaks this raises `ConfigError`, which names all problems at once. Pure.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.kinds import Kind
from tailrace.cluster.common.refused import why_refused

T = TypeVar("T")

# Parts that settings may wait for (`Setting.waits_for`).
BROKER = "the broker"
CONTROLLER = "the controller"

_UNITS = {"ms": "milliseconds", "bytes": "bytes", "minutes": "minutes", "hours": "hours"}


class Problem(NamedTuple):
    """One thing that is wrong: the setting, where its value came from ("" if nowhere), and what."""

    name: str
    source: str
    message: str

    def __str__(self) -> str:
        return f"{self.name}{f' ({self.source})' if self.source else ''}: {self.message}"


class ConfigError(TailraceError):
    """Settings that cannot be used; `problems` has every one of them, the message lists them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        heading = "a setting cannot be used" if count == 1 else f"{count} settings cannot be used"
        super().__init__(ErrorCode.INVALID_CONFIG, "\n  ".join([heading + ":", *map(str, self.problems)]))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The facts of one setting."""

    name: str
    field: str
    kind: Kind[object]
    default: object
    doc: str
    runtime: bool
    """May be changed while the process runs."""
    broker_name: str
    """For a topic's setting: the broker's setting that gives its default."""
    aliases: tuple[str, ...]
    waits_for: str
    """The part that will read it and is not built yet; until then the value is checked, no more."""

    @property
    def unit(self) -> str:
        return _UNITS.get(self.name.rpartition(".")[2], "")

    def parse(self, raw: object) -> object:
        try:
            return self.kind.parse(raw)
        except ValueError as error:
            unit = f" (in {self.unit})" if self.unit else ""
            raise ValueError(f"{raw!r} is not possible: it {error}{unit}") from None


def setting(
    kind: Kind[T],
    default: T,
    doc: str,
    *,
    runtime: bool = False,
    broker_name: str = "",
    aliases: tuple[str, ...] = (),
    waits_for: str = "",
) -> T:
    """Declares a field of a settings class."""
    metadata = {
        "kind": kind,
        "doc": doc,
        "runtime": runtime,
        "broker_name": broker_name,
        "aliases": aliases,
        "waits_for": waits_for,
    }
    declared: Any = dataclasses.field(default=default, metadata=metadata)
    return declared  # type: ignore[no-any-return]


class Relation(NamedTuple):
    """Something that must hold between several fields."""

    fields: tuple[str, ...]
    holds: Callable[[Any], bool]
    rule: str
    """The rule as a sentence in which each {field} stands for that setting's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Base of the settings classes."""

    relations: ClassVar[tuple[Relation, ...]] = ()
    same_thing: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of names that set one thing; a later source that gives one replaces all of its group."""

    def __post_init__(self) -> None:
        problems = [
            Problem(known.name, "", str(error))
            for known in self.settings()
            if (error := _wrong(known, getattr(self, known.field))) is not None
        ]
        bad = {problem.name.replace(".", "_") for problem in problems}
        problems += broken_relations(type(self), self, bad, {})
        if problems:
            raise ConfigError(problems)

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        return _settings_of(cls)

    @classmethod
    def from_mapping(
        cls,
        values: Mapping[str, object],
        *,
        defaults: Self | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> Self:
        """Reads settings by their dotted names; what is not named keeps the value of `defaults`.

        Raises `ConfigError` with everything that is wrong in `values`. `sources` says, for messages,
        where a value came from.
        """
        if not isinstance(values, Mapping):
            raise ConfigError([Problem("settings", "", f"must be names with values, not {values!r}")])
        whatever_given: Mapping[Any, object] = values
        base = defaults if defaults is not None else cls()
        sources = sources or {}
        known = {one.name: one for one in cls.settings()}
        canonical = {alias: one.name for one in cls.settings() for alias in one.aliases}
        read: dict[str, object] = {}
        bad: set[str] = set()
        problems: list[Problem] = []
        for given, raw in whatever_given.items():
            source = sources.get(given, "")
            if not isinstance(given, str):
                problems.append(Problem(repr(given), source, "is no name of a setting, which is text"))
            elif (one := known.get(canonical.get(given, given))) is None:
                problems.append(Problem(given, source, explain_unknown(given, [*known, *canonical])))
            elif one.field in read or one.field in bad:
                problems.append(Problem(given, source, f"is another name of {one.name}; give only one"))
            else:
                try:
                    read[one.field] = one.parse(raw)
                except ValueError as error:
                    bad.add(one.field)
                    problems.append(Problem(given, source, str(error)))
        merged = SimpleNamespace(**{one.field: getattr(base, one.field) for one in known.values()} | read)
        named = {canonical.get(name, name): source for name, source in sources.items()}
        field_sources = {one.field: named[one.name] for one in known.values() if one.name in named}
        problems += broken_relations(cls, merged, bad, field_sources)
        if problems:
            raise ConfigError(problems)
        return cls(**vars(merged))

    def to_mapping(self) -> dict[str, str]:
        """Every setting as text, by its dotted name."""
        return {one.name: one.kind.show(getattr(self, one.field)) for one in self.settings()}


def broken_relations(
    cls: type[Settings],
    values: object,
    bad: Iterable[str],
    sources: Mapping[str, str],
) -> list[Problem]:
    """The relations that `values` break, leaving out those that touch a `bad` field."""
    unusable = set(bad)
    fields = {one.field: one for one in cls.settings()}
    problems = []
    for relation in cls.relations:
        if unusable.intersection(relation.fields) or relation.holds(values):
            continue
        shown = {field: fields[field].name for field in relation.fields}
        now = ", ".join(
            f"{shown[field]}={fields[field].kind.show(getattr(values, field))}" for field in relation.fields
        )
        source = ", ".join(dict.fromkeys(sources[field] for field in relation.fields if field in sources))
        message = f"{relation.rule.format(**shown)} (now {now})"
        problems.append(Problem(shown[relation.fields[0]], source, message))
    return problems


def explain_unknown(name: str, known: Iterable[str]) -> str:
    """Why `name` is not taken: refused for a reason, or unknown, with the nearest that is known."""
    if (reason := why_refused(name)) is not None:
        return reason
    dotted = name.replace("_", ".").replace("-", ".").lower()
    nearest = difflib.get_close_matches(dotted, list(known), n=1, cutoff=0.75)
    return "unknown setting" + (f"; did you mean {nearest[0]}?" if nearest else "; see docs/configuration.md")


def _wrong(known: Setting, value: object) -> ValueError | None:
    try:
        if known.parse(value) != value:
            return ValueError(f"{value!r} is not possible: it must be {known.kind.range()}")
    except ValueError as error:
        return error
    return None


_known: dict[type[Settings], tuple[Setting, ...]] = {}


def _settings_of(cls: type[Settings]) -> tuple[Setting, ...]:
    if cls not in _known:
        _known[cls] = _read_fields(cls)
    return _known[cls]


def _read_fields(cls: type[Settings]) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            name=field.name.replace("_", "."),
            field=field.name,
            default=field.default,
            **field.metadata,
        )
        for field in dataclasses.fields(cls)
    )
