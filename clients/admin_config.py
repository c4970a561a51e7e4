"""The options of an administrator's client, as keywords in Python and by dotted names in a file.

The same rules as for a node's settings: everything is checked before anything is opened, and what is not
known is refused with the nearest name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Required, Self, TypedDict

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.common.kinds import MAX_INT, Flag, Integer, Optional, Text, Words
from tailrace.cluster.common.settings import ConfigError, Problem, Relation, Settings, setting

_ADDRESS = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:,]+):\d{1,5}"
_CONTROLLERS = "bootstrap.controllers"
_NO_BROKERS = (
    "is not yet supported: brokers do not answer administrators in this version; give bootstrap_controllers,"
    " the CONTROLLER listeners of one or more controllers"
)
_REFUSED = {"bootstrap.servers": _NO_BROKERS, "bootstrap.server": _NO_BROKERS}


class AdminOptions(TypedDict, total=False):
    """What `Admin` and `AsyncAdmin` take; `AdminConfig` says what each means."""

    bootstrap_controllers: Required[str | Sequence[str]]
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    allow_plaintext: bool
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(Settings):
    bootstrap_controllers: tuple[str, ...] = setting(
        Words(pattern=_ADDRESS, described="of host:port", may_be_empty=True),
        (),
        "CONTROLLER listeners of one or more controllers; the others are found through them.",
    )
    tls_ca_file: str | None = setting(
        Optional(Text(), "the well-known public ones if a certificate is set, otherwise no TLS"),
        None,
        "The certificates that the controllers' are checked against (PEM).",
    )
    tls_cert_file: str | None = setting(
        Optional(Text(), "none is shown"), None, "The certificate that is shown to controllers (PEM)."
    )
    tls_key_file: str | None = setting(
        Optional(Text(), "none is shown"), None, "The private key of the certificate (PEM)."
    )
    allow_plaintext: bool = setting(
        Flag(), False, "Lets connections without TLS go to addresses other than loopback."
    )
    request_timeout_ms: int = setting(
        Integer(1, MAX_INT), 30_000, "How long a call may take in all, with every attempt."
    )
    retry_backoff_ms: int = setting(
        Integer(1, MAX_INT), 100, "The first pause after every controller was asked in vain."
    )
    retry_backoff_max_ms: int = setting(
        Integer(1, MAX_INT), 1_000, "The longest pause; each is twice the one before."
    )

    relations: ClassVar[tuple[Relation, ...]] = (
        Relation(
            ("tls_cert_file", "tls_key_file"),
            lambda c: (c.tls_cert_file is None) == (c.tls_key_file is None),
            "{tls_cert_file} and {tls_key_file} belong together; give both or none",
        ),
        Relation(
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            lambda c: c.retry_backoff_ms <= c.retry_backoff_max_ms,
            "{retry_backoff_ms} must not be larger than {retry_backoff_max_ms}",
        ),
    )

    @classmethod
    def from_options(cls, options: AdminOptions) -> Self:
        return cls.from_names({name.replace("_", "."): value for name, value in options.items()})

    @classmethod
    def from_names(cls, values: Mapping[str, object], sources: Mapping[str, str] | None = None) -> Self:
        """By dotted names; `sources` says, for messages, where a value came from."""
        given = sources or {}
        problems = [Problem(name, given.get(name, ""), _REFUSED[name]) for name in values if name in _REFUSED]
        if problems:
            raise ConfigError(problems)
        config = cls.from_mapping(values, sources=sources)
        if wrong := _wrong_controllers(config):
            raise ConfigError([Problem(_CONTROLLERS, given.get(_CONTROLLERS, ""), wrong)])
        return config

    @property
    def addresses(self) -> tuple[Address, ...]:
        return tuple(Address.parse(one) for one in self.bootstrap_controllers)


def _wrong_controllers(config: AdminConfig) -> str | None:
    try:
        return None if config.addresses else "is not set; give host:port of a controller"
    except TailraceError as error:
        return str(error.args[0])
