"""Reads a node's configuration from where it lies: the file, the environment, the flags.

The only part of configuration that does I/O; what it finds is merged and checked by
cluster/common/config.py. Called once, at the start of a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.cluster.common.config import (
    FILE_VARIABLE,
    Found,
    Given,
    Loaded,
    from_environment,
    from_flags,
    from_toml,
    load,
)
from tailrace.cluster.common.node_config import NodeConfig
from tailrace.cluster.common.settings import Problem
from tailrace.cluster.common.storage_config import CLUSTER_WIDE


def load_node_config(
    path: Path | None, environ: Mapping[str, str], flags: Sequence[str] = ()
) -> Loaded[NodeConfig]:
    """The configuration of a node; without `path`, the file that TAILRACE_CONFIG names, if it does.

    Raises `ConfigError` with everything that is wrong, also when the file cannot be read.
    """
    if path is None and (named := environ.get(FILE_VARIABLE)):
        path = Path(named)
    file = _read(path) if path is not None else []
    environment = from_environment(environ)
    return load(
        NodeConfig,
        file=[_of_a_node(one) for one in file],
        environment=[_of_a_node(one) for one in environment],
        flags=[_of_a_node(one) for one in from_flags(flags)],
    )


def _of_a_node(found: Found) -> Found:
    if isinstance(found, Given) and found.name in CLUSTER_WIDE:
        return Problem(
            found.name,
            found.source,
            "is one setting for the whole cluster, kept by the controllers; set it with `tailrace configs"
            f" alter --entity-type brokers --entity-default --add-config {found.name}=...`",
        )
    return found


def _read(path: Path) -> list[Found]:
    try:
        return from_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return [Problem("configuration", f"file {path}", f"cannot be read: {reason}")]
