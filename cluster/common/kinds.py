"""What values a setting can take: reading them from text or TOML, showing them, and saying the range.

A kind turns what a file, a variable, a flag or a request carries into a Python value, or raises
ValueError with the end of a sentence that begins with the setting's name ("must be ..."). Pure;
used by the fields of the settings classes (settings.py) and by the loader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MAX_LONG = 2**63 - 1
MAX_INT = 2**31 - 1


class Kind(Protocol[T_co]):
    def parse(self, raw: object) -> T_co:
        """The value that `raw` (a string, or what TOML gives) stands for."""

    def show(self, value: object) -> str:
        """The text from which `parse` reads the same value again."""

    def range(self) -> str:
        """The values allowed, for documentation and messages."""


@dataclass(frozen=True, slots=True)
class Integer:
    least: int = 0
    most: int = MAX_LONG

    def parse(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int | str):
            raise ValueError(f"must be a whole number, {self.range()}")
        try:
            value = int(raw)
        except ValueError:
            raise ValueError(f"must be a whole number, {self.range()}") from None
        if not self.least <= value <= self.most:
            raise ValueError(f"must be {self.range()}")
        return value

    def show(self, value: object) -> str:
        return str(value)

    def range(self) -> str:
        return _bounds(self.least, self.most, self.most == MAX_LONG)


@dataclass(frozen=True, slots=True)
class Decimal:
    least: float = 0.0
    most: float = float("inf")

    def parse(self, raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError(f"must be a number, {self.range()}")
        try:
            value = float(raw)
        except (ValueError, OverflowError):
            raise ValueError(f"must be a number, {self.range()}") from None
        if not self.least <= value <= self.most:  # a NaN compares false and is refused too
            raise ValueError(f"must be {self.range()}")
        return value

    def show(self, value: object) -> str:
        return str(value)

    def range(self) -> str:
        return _bounds(self.least, self.most, self.most == float("inf"))


@dataclass(frozen=True, slots=True)
class Flag:
    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.strip().lower() in ("true", "false"):
            return raw.strip().lower() == "true"
        raise ValueError("must be true or false")

    def show(self, value: object) -> str:
        return "true" if value else "false"

    def range(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Choice:
    words: tuple[str, ...]

    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and raw.strip() in self.words:
            return raw.strip()
        raise ValueError(f"must be {self.range()}")

    def show(self, value: object) -> str:
        return str(value)

    def range(self) -> str:
        return "one of " + ", ".join(self.words)


@dataclass(frozen=True, slots=True)
class Text:
    def parse(self, raw: object) -> str:
        if isinstance(raw, str) and raw.strip():
            return raw.strip()
        raise ValueError("must be a text that is not empty")

    def show(self, value: object) -> str:
        return str(value)

    def range(self) -> str:
        return "a text that is not empty"


@dataclass(frozen=True, slots=True)
class Words:
    """A list: TOML's own, or one text with commas. A word may not stand in it twice."""

    allowed: tuple[str, ...] = ()
    """The words there are; none named means that any word is allowed."""
    pattern: str = ""
    """What each word must match wholly, and `described` says it for people."""
    described: str = ""
    may_be_empty: bool = False

    def parse(self, raw: object) -> tuple[str, ...]:
        if isinstance(raw, str):
            words = tuple(word.strip() for word in raw.split(",")) if raw.strip() else ()
        elif isinstance(raw, Sequence) and all(isinstance(word, str) for word in raw):
            words = tuple(str(word).strip() for word in raw)
        else:
            raise ValueError(f"must be {self.range()}")
        if not words and not self.may_be_empty:
            raise ValueError(f"must be {self.range()}")
        if len(set(words)) != len(words):
            raise ValueError("names something twice")
        for word in words:
            if not word or (self.allowed and word not in self.allowed) or not self._matches(word):
                raise ValueError(f"must be {self.range()}; {word!r} is not")
        return words

    def _matches(self, word: str) -> bool:
        return not self.pattern or re.fullmatch(self.pattern, word) is not None

    def show(self, value: object) -> str:
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def range(self) -> str:
        what = self.described or (f"of {', '.join(self.allowed)}" if self.allowed else "")
        return f"a list with commas {what}".rstrip() + (", or empty" if self.may_be_empty else "")


@dataclass(frozen=True, slots=True)
class Optional(Generic[T]):
    """A setting that may be left unset; `unset` says what happens then."""

    kind: Kind[T]
    unset: str

    def parse(self, raw: object) -> T | None:
        return None if raw is None or raw == "" else self.kind.parse(raw)

    def show(self, value: object) -> str:
        return "" if value is None else self.kind.show(value)

    def range(self) -> str:
        return f"{self.kind.range()}; unset: {self.unset}"


def _bounds(least: float, most: float, unbounded: bool) -> str:
    return f"{least} or more" if unbounded else f"from {least} to {most}"
