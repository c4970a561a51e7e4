"""What every command that talks to a cluster shares: where it is, how answers are shown, how things end.

Exit codes: 0 all is done, 1 the cluster refused something, 2 the command could not ask (a wrong option, an
unusable file, nobody there), 141 whoever read the output stopped reading. What went wrong is said on standard
error; with `--json` it is also a line of the output, so that a program sees each item's outcome in one place.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tailrace.clients.admin import Admin
from tailrace.clients.admin_config import AdminConfig
from tailrace.clients.admin_types import AdminError
from tailrace.clients.cli.output import Event, json_line, readable
from tailrace.cluster.common.config import Found, from_toml
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.common.settings import ConfigError, Problem

REFUSED = 1
UNUSABLE = 2
UNREAD = 141

BOOTSTRAP_VARIABLE = "TAILRACE_BOOTSTRAP_CONTROLLER"
_BOOTSTRAP_SETTING = "bootstrap.controllers"
# Without a terminal nothing is cut off or wrapped, however long it is.
_UNBOUNDED = 1_000_000

# Errors that say that nobody was reached, or nobody who would listen.
_NOT_ASKED = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONNECTION_LOST,
        ErrorCode.CLIENT_CLOSED,
        ErrorCode.AUTHENTICATION_FAILED,
        ErrorCode.INVALID_CONFIG,
    )
)

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-controller",
        envvar=BOOTSTRAP_VARIABLE,
        metavar="HOST:PORT",
        help="A controller, or several with commas; the others are found through them.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A TOML file with options of the client, such as tls.ca.file (see docs/tools.md).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines, for programs.")]


class Output:
    """Standard output, for people or for programs."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.refused = False

    def event(self, event: Event) -> None:
        """For programs only."""
        if self.as_json:
            sys.stdout.write(json_line(event) + "\n")

    def line(self, text: str) -> None:
        """For people only."""
        if not self.as_json:
            sys.stdout.write(readable(text) + "\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """For people only; columns whose name ends in '>' are numbers, to the right."""
        if self.as_json:
            return
        table = Table(box=None, pad_edge=False)
        for name in columns:
            number = name.endswith(">")
            table.add_column(
                name.removesuffix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
            )
        for row in rows:
            table.add_row(*(readable(str(cell)) for cell in row))
        _console().print(table)

    def refusals(self, kind: str, error: AdminError, *, ignoring: ErrorCode | None = None) -> dict[Any, Any]:
        """Tells what the cluster refused, so that the command ends with 1, and gives the other results."""
        for item, one in error.errors.items():
            if one.code is not ignoring:
                self.refused = True
                complain(f"{kind} {item}: {one}".lstrip())
                self.event(_error_event(one, item=str(item)))
        return error.results


@contextlib.contextmanager
def cluster(
    bootstrap: str | None, command_config: Path | None, as_json: bool
) -> Iterator[tuple[Admin, Output]]:
    """The client and the output of a command; what stops it becomes a message and an exit code."""
    # What gRPC notes for itself on standard error says nothing that is not told here.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    output = Output(as_json)
    with _endings(output):
        with Admin.from_config(_load(bootstrap, command_config)) as admin:
            yield admin, output
        sys.stdout.flush()
    if output.refused:
        raise typer.Exit(REFUSED)


@contextlib.contextmanager
def _endings(output: Output) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        # What is still in the buffer would fail again, and loudly, when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(UNREAD) from None
    except TailraceError as error:
        if isinstance(error, AdminError):
            output.refusals("", error)
            raise typer.Exit(REFUSED) from None
        complain(str(error))
        output.event(_error_event(error, item=None))
        raise typer.Exit(UNUSABLE if error.code in _NOT_ASKED else REFUSED) from None
    except UnicodeEncodeError as error:
        complain(f"{readable(str(error.object))} is not text; give it in UTF-8")
        raise typer.Exit(UNUSABLE) from None


def _load(bootstrap: str | None, command_config: Path | None) -> AdminConfig:
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    if command_config is not None:
        for found in _read(command_config):
            if isinstance(found, Problem):
                raise ConfigError([found])
            values[found.name] = found.value
            sources[found.name] = found.source
    if bootstrap is not None:
        values[_BOOTSTRAP_SETTING] = bootstrap
        sources[_BOOTSTRAP_SETTING] = f"--bootstrap-controller or {BOOTSTRAP_VARIABLE}"
    if not any(name.startswith("bootstrap.") for name in values):
        raise TailraceError(
            ErrorCode.INVALID_CONFIG,
            f"which cluster? Give --bootstrap-controller HOST:PORT, set {BOOTSTRAP_VARIABLE}, or put "
            f"{_BOOTSTRAP_SETTING} into the file of --command-config",
        )
    return AdminConfig.from_names(values, sources)


def _read(path: Path) -> list[Found]:
    try:
        return from_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return [Problem("--command-config", f"file {path}", f"cannot be read: {reason}")]


def complain(message: str) -> None:
    """On standard error, harmless for the terminal, with its lines kept."""
    typer.echo("\n".join(readable(line) for line in f"tailrace: {message}".split("\n")), err=True)


def _error_event(error: TailraceError, item: str | None) -> Event:
    return {"type": "error", "item": item, "code": error.code.name, "message": error.args[0]}


class _Console(Console):
    """Leaves it to `_endings` what happens when nobody reads the output any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console() -> Console:
    # What a cluster holds is text, not markup.
    width = None if sys.stdout.isatty() else _UNBOUNDED
    return _Console(markup=False, emoji=False, highlight=False, width=width)
