"""Who a node is, what it runs, and where it listens.

Listeners are named by whom they serve: CLIENT (clients), CLUSTER (other brokers), CONTROLLER (brokers and
administrators, at a controller). The quorum's own traffic has the addresses of controller.quorum.voters.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.kinds import MAX_INT, Choice, Flag, Integer, Optional, Text, Words
from tailrace.cluster.common.settings import BROKER, Relation, Settings, setting

LISTENERS = ("CLIENT", "CLUSTER", "CONTROLLER")
ROLES = ("controller", "broker")

HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_LISTENER = rf"({'|'.join(LISTENERS)})://({HOST}):(\d{{1,5}})"
_ADDRESS = rf"({HOST}):(\d{{1,5}})"
_MAX_PORT = 65535


class Listener(NamedTuple):
    name: str
    address: Address


def parse_listener(text: str) -> Listener:
    match = re.fullmatch(_LISTENER, text)
    if match is None or int(match[3]) > _MAX_PORT:
        raise ValueError(f"{text!r} is not a listener: it must be NAME://host:port")
    return Listener(match[1], Address(match[2].strip("[]"), int(match[3])))


def _distinct_names(listeners: tuple[str, ...]) -> bool:
    names = [one.partition(":")[0] for one in listeners]
    return len(set(names)) == len(names)


_LISTENERS_KIND = Words(
    pattern=_LISTENER,
    described=f"of NAME://host:port, where NAME is one of {', '.join(LISTENERS)}",
    may_be_empty=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(Settings):
    node_id: int | None = setting(
        Optional(Integer(0, MAX_INT), "the node takes no part in a cluster"),
        None,
        "The number of the node, different for every node of the cluster and kept for its life.",
        aliases=("broker.id",),
    )
    process_roles: tuple[str, ...] = setting(
        Words(ROLES),
        ROLES,
        "What the node does: keep the metadata, keep the data, or both.",
        aliases=("roles",),
    )
    listeners: tuple[str, ...] = setting(
        _LISTENERS_KIND,
        (),
        "Where the node listens. Port 0 lets the system choose one.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        _LISTENERS_KIND, (), "What others connect to, where that differs from `listeners`."
    )
    metadata_log_dir: str | None = setting(
        Optional(Text(), "`__metadata` in the first of the log directories"),
        None,
        "Where a controller keeps the metadata log.",
    )
    controller_bootstrap_servers: tuple[str, ...] = setting(
        Words(pattern=_ADDRESS, described="of host:port", may_be_empty=True),
        (),
        "CONTROLLER listeners through which a broker finds the active controller.",
        waits_for=BROKER,
    )
    tls_cert_file: str | None = setting(
        Optional(Text(), "no TLS"), None, "The node's certificate (PEM). `tailrace certs create` makes a set."
    )
    tls_key_file: str | None = setting(
        Optional(Text(), "no TLS"), None, "The private key of the certificate (PEM)."
    )
    tls_ca_file: str | None = setting(
        Optional(Text(), "no TLS"), None, "The certificates that others' are checked against (PEM)."
    )
    tls_client_auth: str = setting(
        Choice(("required", "none")),
        "required",
        "Whether clients must show a certificate. Between nodes it is always required.",
        waits_for=BROKER,
    )
    security_allow_plaintext: bool = setting(
        Flag(), False, "Lets listeners without TLS have addresses other than loopback."
    )

    relations: ClassVar[tuple[Relation, ...]] = (
        Relation(
            ("listeners",), lambda c: _distinct_names(c.listeners), "{listeners} names a listener twice"
        ),
        Relation(
            ("advertised_listeners", "listeners"),
            lambda c: (
                {one.partition(":")[0] for one in c.advertised_listeners}
                <= {one.partition(":")[0] for one in c.listeners}
            ),
            "{advertised_listeners} may only name listeners that {listeners} has",
        ),
        Relation(
            ("tls_cert_file", "tls_key_file", "tls_ca_file"),
            lambda c: len({one is None for one in (c.tls_cert_file, c.tls_key_file, c.tls_ca_file)}) == 1,
            "{tls_cert_file}, {tls_key_file} and {tls_ca_file} belong together; give all or none",
        ),
    )

    @property
    def listens(self) -> dict[str, Address]:
        return dict(parse_listener(one) for one in self.listeners)

    @property
    def advertises(self) -> dict[str, Address]:
        return self.listens | dict(parse_listener(one) for one in self.advertised_listeners)

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles
