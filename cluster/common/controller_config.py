"""The settings of a controller: its quorum, and what it decides by. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from tailrace.cluster.common.addresses import Address
from tailrace.cluster.common.kinds import MAX_INT, Flag, Integer, Optional, Words
from tailrace.cluster.common.server_config import HOST
from tailrace.cluster.common.settings import Relation, Settings, setting

_VOTER = rf"(\d+)@({HOST}):(\d{{1,5}})"
_MIB = 1 << 20


class VoterAddress(NamedTuple):
    node_id: int
    address: Address


def parse_voter(text: str) -> VoterAddress:
    match = re.fullmatch(_VOTER, text)
    if match is None:
        raise ValueError(f"{text!r} is not a voter: it must be id@host:port")
    return VoterAddress(int(match[1]), Address(match[2].strip("[]"), int(match[3])))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig(Settings):
    controller_quorum_voters: tuple[str, ...] = setting(
        Words(pattern=_VOTER, described="of id@host:port", may_be_empty=True),
        (),
        "The controllers, 1, 3 or 5 of them, with the addresses of their Raft traffic. The same on every"
        " controller.",
    )
    controller_quorum_election_timeout_ms: int = setting(
        Integer(100, 60_000),
        500,
        "A controller that has not heard from a leader for this long, up to twice as long, stands for"
        " election.",
    )
    controller_quorum_append_interval_ms: int = setting(
        Integer(10, 10_000), 100, "How often a leader tells the others that it is there."
    )
    controller_quorum_request_timeout_ms: int = setting(
        Integer(100, 600_000),
        5_000,
        "How long the active controller waits for a majority before it says that an outcome is not known.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        Integer(1024, MAX_INT), 20 * _MIB, "A snapshot is taken after so much of the metadata log."
    )
    broker_session_timeout_ms: int = setting(
        Integer(100, 600_000), 9_000, "A broker that is silent for this long is fenced."
    )
    broker_heartbeat_interval_ms: int = setting(
        Integer(10, 60_000), 2_000, "How often brokers tell the controller that they are there."
    )
    auto_leader_rebalance_enable: bool = setting(
        Flag(), True, "Whether preferred leaders are elected by themselves.", runtime=True
    )
    leader_imbalance_check_interval_seconds: int = setting(
        Integer(1, MAX_INT),
        300,
        "How often the controller looks for leaders that are not preferred.",
        runtime=True,
    )
    leader_imbalance_per_broker_percentage: int = setting(
        Integer(0, 100),
        10,
        "The share of a broker's preferred partitions that others may lead before leaders are moved.",
        runtime=True,
    )
    default_replication_factor: int | None = setting(
        Optional(Integer(1, 32_767), "3, or as many as there are brokers, if they are fewer"),
        None,
        "The replication factor of topics that name none.",
        runtime=True,
    )
    num_partitions: int = setting(
        Integer(1, MAX_INT), 1, "The number of partitions of topics that name none.", runtime=True
    )
    delete_topic_enable: bool = setting(Flag(), True, "Whether topics may be deleted.", runtime=True)

    relations: ClassVar[tuple[Relation, ...]] = (
        Relation(
            ("controller_quorum_voters",),
            lambda c: (
                len({one.partition("@")[0] for one in c.controller_quorum_voters})
                == len(c.controller_quorum_voters)
            ),
            "{controller_quorum_voters} gives two voters the same id",
        ),
        Relation(
            ("controller_quorum_voters",),
            lambda c: len(c.controller_quorum_voters) in (0, 1, 3, 5),
            "{controller_quorum_voters} must name 1, 3 or 5 voters: an even number bears no more failures"
            " than one less",
        ),
        Relation(
            ("controller_quorum_append_interval_ms", "controller_quorum_election_timeout_ms"),
            lambda c: 3 * c.controller_quorum_append_interval_ms <= c.controller_quorum_election_timeout_ms,
            "{controller_quorum_append_interval_ms} must be at most a third of"
            " {controller_quorum_election_timeout_ms}, or one lost message costs an election",
        ),
        Relation(
            ("broker_heartbeat_interval_ms", "broker_session_timeout_ms"),
            lambda c: 2 * c.broker_heartbeat_interval_ms <= c.broker_session_timeout_ms,
            "{broker_heartbeat_interval_ms} must be at most half of {broker_session_timeout_ms}, or one late"
            " heartbeat fences a broker",
        ),
    )

    @property
    def voters(self) -> tuple[VoterAddress, ...]:
        return tuple(parse_voter(one) for one in self.controller_quorum_voters)
