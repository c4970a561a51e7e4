"""Log events: JSON and text, levels, exceptions, and other libraries' records in the same form."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
import structlog

from tailrace.cluster.runtime.logs import Event, configure_logs, get_logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _root_logger_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines_of(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_events_are_json_with_level_time_and_fields_when_the_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    get_logger("tailrace.test").info("log_opened", topic="orders", partition=3, name="clash", args=1)
    [line] = lines_of(stream)
    assert list(line)[:4] == ["timestamp", "level", "event", "logger"]
    when = datetime.fromisoformat(str(line.pop("timestamp")))
    assert when.utcoffset() == timedelta(0)
    assert line == {
        "level": "info",
        "event": "log_opened",
        "logger": "tailrace.test",
        "topic": "orders",
        "partition": 3,
        "name": "clash",
        "args": 1,
    }


def test_events_are_readable_text_when_the_stream_is_a_terminal() -> None:
    stream = Terminal()
    configure_logs(stream=stream)
    get_logger("tailrace.test").warning("disk_slow", sync_ms=12)
    text = stream.getvalue()
    assert "disk_slow" in text
    assert "sync_ms" in text
    assert not text.startswith("{")


@pytest.mark.parametrize(("format_", "is_json"), [("json", True), ("text", False)])
def test_format_is_as_forced_whatever_the_stream_is(format_: str, is_json: bool) -> None:
    for stream in (Terminal(), io.StringIO()):
        configure_logs(format=format_, stream=stream)
        get_logger("tailrace.test").info("log_opened")
        assert stream.getvalue().startswith("{") is is_json


def test_text_has_no_colours_when_the_stream_is_no_terminal() -> None:
    stream = io.StringIO()
    configure_logs(format="text", stream=stream)
    get_logger("tailrace.test").info("log_opened", topic="orders")
    assert "\x1b" not in stream.getvalue()


def test_events_below_the_level_are_dropped() -> None:
    stream = io.StringIO()
    configure_logs(level="warning", stream=stream)
    log = get_logger("tailrace.test")
    log.info("log_opened")
    log.error("log_failed")
    assert [line["event"] for line in lines_of(stream)] == ["log_failed"]


def test_exceptions_are_written_with_their_stack() -> None:
    for format_ in ("json", "text"):
        stream = io.StringIO()
        configure_logs(format=format_, stream=stream)
        try:
            raise OSError("no space left")
        except OSError:
            get_logger("tailrace.test").exception("write_failed", topic="orders")
        assert "OSError: no space left" in stream.getvalue()
        assert "Traceback" in stream.getvalue()


def test_records_of_other_libraries_come_out_in_the_same_form() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    logging.getLogger("elsewhere").warning("took %d ms", 7)
    [line] = lines_of(stream)
    assert (line["event"], line["level"], line["logger"]) == ("took 7 ms", "warning", "elsewhere")


def test_context_is_added_to_events_while_it_is_bound() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    with structlog.contextvars.bound_contextvars(node_id=4):
        get_logger("tailrace.test").info("node_started")
    get_logger("tailrace.test").info("node_stopped")
    assert [line.get("node_id") for line in lines_of(stream)] == [4, None]


def test_configuring_again_replaces_the_handler_instead_of_writing_twice() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logs(stream=first)
    configure_logs(stream=second)
    get_logger("tailrace.test").info("log_opened")
    assert first.getvalue() == ""
    assert len(lines_of(second)) == 1


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    stream = io.StringIO()
    configure_logs(stream=stream)
    get_logger("tailrace.test").info("log_opened", owner=object)
    assert lines_of(stream)[0]["owner"] == str(object)


def test_event_is_readable_to_a_program_that_did_not_configure_our_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        get_logger("tailrace.test").info("log_opened", topic="orders", partition=3)
    assert caplog.messages == ["log_opened topic=orders partition=3"]
    assert str(Event("plain", {})) == "plain"


@pytest.mark.parametrize(("level", "format_"), [("loud", "json"), ("info", "xml")])
def test_configuring_is_refused_when_level_or_format_is_unknown(level: str, format_: str) -> None:
    with pytest.raises(ValueError, match="there are"):
        configure_logs(level, format_)
