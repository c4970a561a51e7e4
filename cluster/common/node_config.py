"""All settings of a node: one component for each part that it runs.

Names are flat, as Kafka's are, and belong to exactly one component (a test checks it). A new part of the
node adds its settings class as a field here; file, environment, flags, documentation and checks follow
from that. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.cluster.common.controller_config import ControllerConfig
from tailrace.cluster.common.kinds import Choice
from tailrace.cluster.common.server_config import ServerConfig
from tailrace.cluster.common.settings import Settings, setting
from tailrace.cluster.common.storage_config import StorageConfig

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "text", "json")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggingConfig(Settings):
    """How the node tells what it does (not the logs that it stores)."""

    logging_format: str = setting(
        Choice(LOG_FORMATS),
        "auto",
        "How events are written: `text` for people, `json` for machines, `auto` is text on a terminal and"
        " JSON elsewhere.",
    )
    logging_level: str = setting(
        Choice(LOG_LEVELS),
        "info",
        "The least important events that are written.",
        runtime=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    server: ServerConfig = field(default_factory=ServerConfig)
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
