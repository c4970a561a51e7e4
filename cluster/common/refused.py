"""Settings known from Kafka that are refused here, each with the reason and what to use instead.

A setting that makes no sense here, or whose part is not built yet, is never ignored: someone who sets it
expects something. `why_refused` is asked for every name that no component knows, so building a part and
declaring its settings takes precedence over what stands here. Pure.
"""

from __future__ import annotations

from typing import Final

_NO_LEVELS: Final = (
    "is refused: brokers keep batches as producers compressed them, and recompress only with the codec's"
    " default level; set the level at the producer"
)
_NO_TIERS: Final = "is refused: there is no tiered storage, all of a log stays in the log directories"
_ONE_FORMAT: Final = (
    "is refused: there is one batch format, with its version in every batch, so nothing is converted"
)
_NO_ZOOKEEPER: Final = "is refused: there is no ZooKeeper, the controller quorum keeps the metadata"
_NO_SERVER: Final = (
    "is not yet supported: it belongs to brokers, and this version has controllers and the storage engine;"
    " remove it"
)
_NO_ACCESS_CONTROL: Final = (
    "is not yet supported: there are no users and no access control lists in this version; remove it, and"
    " let only those in who show a certificate (tls.cert.file, tls.key.file, tls.ca.file)"
)
_NO_QUOTAS: Final = "is not yet supported: there are no quotas in this version; remove it"
_CHECKPOINT: Final = "is refused: checkpoints are written together; set log.checkpoint.interval.ms"

_NAMES: Final[dict[str, str]] = {
    # What makes no sense here.
    "compression.gzip.level": _NO_LEVELS,
    "compression.lz4.level": _NO_LEVELS,
    "compression.zstd.level": _NO_LEVELS,
    "remote.storage.enable": _NO_TIERS,
    "remote.log.copy.disable": _NO_TIERS,
    "remote.log.delete.on.disable": _NO_TIERS,
    "local.retention.ms": _NO_TIERS,
    "local.retention.bytes": _NO_TIERS,
    "message.format.version": _ONE_FORMAT,
    "log.message.format.version": _ONE_FORMAT,
    "message.downconversion.enable": _ONE_FORMAT,
    "log.message.downconversion.enable": _ONE_FORMAT,
    "message.timestamp.difference.max.ms": (
        "is refused: past and future have limits of their own; set message.timestamp.before.max.ms and"
        " message.timestamp.after.max.ms"
    ),
    "log.message.timestamp.difference.max.ms": (
        "is refused: past and future have limits of their own; set log.message.timestamp.before.max.ms and"
        " log.message.timestamp.after.max.ms"
    ),
    "log.flush.offset.checkpoint.interval.ms": _CHECKPOINT,
    "log.flush.start.offset.checkpoint.interval.ms": _CHECKPOINT,
    "log.cleaner.io.buffer.load.factor": (
        "is refused: the cleaner's table of keys has no load factor to choose; bound its memory with"
        " log.cleaner.dedupe.buffer.size"
    ),
    "log.dir.failure.timeout.ms": (
        "is refused: a node never stops because a log directory failed; the directory goes offline and the"
        " others go on"
    ),
    "inter.broker.protocol.version": (
        "is refused: what a cluster speaks is metadata.version, kept by the controllers and raised by an"
        " administrator's command, not by a file"
    ),
    "broker.id.generation.enable": "is refused: a node without an id is always given one; remove it",
    "reserved.broker.max.id": "is refused: ids given by a person and by the cluster share one range",
    "num.network.threads": "is refused: the network runs on one event loop; start one process for each core",
    "num.io.threads": "is refused: disk work runs in writer jobs, one for each log directory",
    "queued.max.requests": "is refused: what waits is bounded in bytes; set log.pending.max.bytes",
    # What brokers will bring.
    **dict.fromkeys(
        (
            "broker.rack",
            "auto.create.topics.enable",
            "controlled.shutdown.enable",
            "transactional.id.expiration.ms",
            "connections.max.idle.ms",
            "max.connections",
            "metadata.version",
            "num.replica.fetchers",
        ),
        _NO_SERVER,
    ),
    "authorizer.class.name": _NO_ACCESS_CONTROL,
    "super.users": _NO_ACCESS_CONTROL,
    "allow.everyone.if.no.acl.found": _NO_ACCESS_CONTROL,
}

_PREFIXES: Final[tuple[tuple[str, str], ...]] = (
    ("zookeeper.", _NO_ZOOKEEPER),
    ("remote.log.", _NO_TIERS),
    ("ssl.", _NO_ACCESS_CONTROL),
    ("sasl.", _NO_ACCESS_CONTROL),
    ("security.protocol", _NO_ACCESS_CONTROL),
    ("security.inter.broker.", _NO_ACCESS_CONTROL),
    ("delegation.token.", _NO_ACCESS_CONTROL),
    ("quota.", _NO_QUOTAS),
    ("client.quota.", _NO_QUOTAS),
    ("replica.", _NO_SERVER),
    ("offsets.", _NO_SERVER),
    ("group.", _NO_SERVER),
    ("transaction.", _NO_SERVER),
)


def why_refused(name: str) -> str | None:
    """The reason why a setting of this name is not taken, or None when nothing is known of it."""
    if (reason := _NAMES.get(name)) is not None:
        return reason
    return next((reason for prefix, reason in _PREFIXES if name.startswith(prefix)), None)


def refused_names() -> dict[str, str]:
    """Every refused name, and every refused group of names as `prefix.*`, with its reason."""
    return _NAMES | {f"{prefix}*": reason for prefix, reason in _PREFIXES}
