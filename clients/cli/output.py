"""How commands show things: bytes, times and sizes for people, JSON lines for programs.

Commands describe what they found as flat dictionaries with a `type`; `json_line` and `text_line` are two
ways to print one, so that both always say the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

Event = dict[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Format(StrEnum):
    TEXT = "text"
    HEX = "hex"
    JSON = "json"
    BASE64 = "base64"


@lru_cache(maxsize=1024)
def iso_time(timestamp_ms: int) -> str:
    """UTC with milliseconds; the number itself where no calendar reaches."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms}ms"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def human_size(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def readable(text: str) -> str:
    """`text` on one line, and harmless: what a record holds must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def format_bytes(data: bytes | None, wanted: Format) -> Any:
    """A value for JSON: null, a string, or with Format.JSON what the bytes say (if it is JSON at all)."""
    if data is None:
        return None
    if wanted is Format.HEX:
        return data.hex()
    if wanted is Format.BASE64:
        return base64.b64encode(data).decode()
    if wanted is Format.JSON:
        try:
            return json.loads(data)
        except ValueError:
            pass
    return data.decode("utf-8", "backslashreplace")


def json_line(event: Event) -> str:
    return json.dumps(event, separators=(",", ":"))


def text_line(event: Event) -> str:
    return _TEXT[event["type"]](event)


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return readable(value)
    return readable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _partition(event: Event) -> str:
    facts = [f"{event['log']}  {event['path']}"]
    if event["topic_id"] is not None:
        facts.append(f"topic id {event['topic_id']}  log start {event['log_start_offset']}")
    return "  ".join(facts)


def _segment(event: Event) -> str:
    return f"segment {event['path'].rpartition('/')[2]}  {human_size(event['size'])}"


def _batch(event: Event) -> str:
    if event["append_timestamp"] >= 0:
        time = f"appended {iso_time(event['append_timestamp'])}"
    elif event["base_timestamp"] == event["max_timestamp"]:
        time = f"time {iso_time(event['base_timestamp'])}"
    else:
        time = f"time {iso_time(event['base_timestamp'])}..{iso_time(event['max_timestamp'])}"
    facts = [
        f"offset {_range(event['base_offset'], event['last_offset'])}",
        f"at {event['position']}",
        f"size {event['size']}",
        f"count {event['count']}",
        time,
        f"codec {event['codec']}",
    ]
    if event["producer_id"] >= 0:
        sequences = _range(event["base_sequence"], event["last_sequence"])
        facts.append(f"producer {event['producer_id']} epoch {event['producer_epoch']} sequence {sequences}")
    facts.append(f"leader epoch {event['leader_epoch']}")
    facts += [flag for flag in ("transactional", "control") if event[flag]]
    if event["delete_horizon"] >= 0:
        facts.append(f"delete horizon {iso_time(event['delete_horizon'])}")
    facts.append("crc ok" if event["crc_ok"] else "crc BAD")
    if event["problem"] is not None:
        facts.append(_damaged(event))
    return "  " + "  ".join(facts)


def _record(event: Event) -> str:
    shown = (
        f"      {event['offset']}  {iso_time(event['timestamp'])}  key {_value(event['key'])}"
        f"  value {_value(event['value'])}"
    )
    if event["headers"]:
        pairs = ", ".join(f"{readable(name)}={_value(value)}" for name, value in event["headers"])
        shown += f"  headers {pairs}"
    return shown


def _marker(event: Event) -> str:
    return (
        f"      {event['offset']}  {event['kind']}  producer {event['producer_id']} epoch "
        f"{event['producer_epoch']}  coordinator epoch {event['coordinator_epoch']}"
    )


def _damaged(event: Event) -> str:
    where = event["path"].rpartition("/")[2]
    at = "" if event["position"] is None else f" at byte {event['position']}"
    return f"DAMAGED {where}{at}: {event['code']}: {event['problem']}"


def _damage(event: Event) -> str:
    shown = "  " + _damaged(event)
    if event["resumes_at"] is not None:
        shown += f"; the next batch found is at byte {event['resumes_at']}"
    return shown


def _aborted(event: Event) -> str:
    return (
        f"  aborted transaction  producer {event['producer_id']}  offset {event['first_offset']}-"
        f"{event['last_offset']}  last stable offset {event['last_stable_offset']}"
    )


def _producer(event: Event) -> str:
    shown = (
        f"  producer {event['producer_id']}  epoch {event['producer_epoch']}  last sequence "
        f"{event['last_sequence']}  last time {iso_time(event['last_timestamp'])}  coordinator epoch "
        f"{event['coordinator_epoch']}"
    )
    if event["transaction_start_offset"] >= 0:
        shown += f"  transaction open since offset {event['transaction_start_offset']}"
    return shown


_TEXT: dict[str, Callable[[Event], str]] = {
    "partition": _partition,
    "segment": _segment,
    "batch": _batch,
    "record": _record,
    "marker": _marker,
    "damage": _damage,
    "reserved": lambda event: f"  {event['size']} zero bytes to the end, from byte {event['position']} on",
    "index_entry": lambda event: (
        f"  index  offset {event['offset']}  at {event['position']}  largest time "
        f"{iso_time(event['largest_timestamp'])}"
    ),
    "aborted_transaction": _aborted,
    "epoch": lambda event: f"  leader epoch {event['epoch']}  from offset {event['start_offset']}",
    "snapshot": lambda event: f"producers below offset {event['offset']}  {event['count']} of them",
    "producer": _producer,
}
