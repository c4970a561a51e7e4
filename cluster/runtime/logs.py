"""What the process tells about itself: one event a line, readable on a terminal and JSON elsewhere.

Modules call `get_logger(__name__)` and log stable snake_case events with fields:
`log.info("log_opened", topic=..., partition=...)`. Events travel as ordinary records of the standard
library's logging, so that a program which only uses a client sees them in its own log, and events of
other libraries come out in our format once `configure_logs` has been called (by commands, never by
importing something).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_FIRST_KEYS = ("timestamp", "level", "event", "logger")


class Event:
    """The message of a log record: an event's name and fields, readable as text by any handler."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self.name = name
        self.fields = fields

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.fields.items())])


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module; nothing is written below the level that the program has set."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _to_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(structlog.stdlib.BoundLogger, wrapped)


def configure_logs(level: str = "info", format: str = "auto", stream: TextIO | None = None) -> None:  # noqa: A002
    """Sends every event of the process to `stream` (standard error). Calling it again replaces the first.

    `format` is text, json, or auto: text when the stream is a terminal.
    """
    if level not in _LEVELS:
        raise ValueError(f"no log level {level!r}; there are {', '.join(_LEVELS)}")
    if format not in ("auto", "text", "json"):
        raise ValueError(f"no log format {format!r}; there are auto, text, json")
    target = stream if stream is not None else sys.stderr
    terminal = target.isatty()
    as_text = terminal if format == "auto" else format == "text"
    renderer: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)]
        if as_text
        else [
            structlog.processors.format_exc_info,
            _order_keys,
            structlog.processors.JSONRenderer(default=str),
        ]
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
            foreign_pre_chain=[
                _from_record,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
            ],
        )
    )
    root = logging.getLogger()
    for old in [
        one for one in root.handlers if isinstance(one.formatter, structlog.stdlib.ProcessorFormatter)
    ]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])


def _to_record(_: Any, __: str, event: EventDict) -> tuple[tuple[Event], dict[str, object]]:
    """The last step of our loggers: the arguments of the standard library's logging call."""
    keywords = {key: event.pop(key) for key in ("exc_info", "stack_info") if key in event}
    name = str(event.pop("event"))
    return (Event(name, event),), keywords


def _from_record(_: Any, __: str, event: EventDict) -> EventDict:
    """The first step of the formatter: takes an event of ours apart again."""
    record: logging.LogRecord = event["_record"]
    # A handler before ours may have turned the message into text; then the text is all there is.
    message: object = record.msg
    if isinstance(message, Event):
        event.update(message.fields)
        event["event"] = message.name
    return event


def _order_keys(_: Any, __: str, event: MutableMapping[str, Any]) -> dict[str, Any]:
    first = {key: event[key] for key in _FIRST_KEYS if key in event}
    return first | {key: value for key, value in event.items() if key not in first}
