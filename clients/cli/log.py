"""`tailrace log`: looks into the files of a log directory.

The commands only read. They take no lock and work on a directory that a node has open, on one that was
closed or that a crash has left, and on damaged files. Exit codes: 0 all is well, 1 damage was found, 2 the
command could not look, 141 whoever read the output stopped reading.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tailrace.clients.cli.dump import DumpOptions, dump, is_damage
from tailrace.clients.cli.output import Event, Format, human_size, json_line, readable, text_line
from tailrace.cluster.common.errors import TailraceError
from tailrace.cluster.storage.files import OsFiles, storage_error
from tailrace.cluster.storage.findings import Finding, Severity, Tally
from tailrace.cluster.storage.inspect import Kind, find
from tailrace.cluster.storage.verify import Verification

DAMAGED = 1
UNUSABLE = 2
UNREAD = 141
"""What shells show for a program that SIGPIPE has ended, such as `cat` before a `head` that has enough."""

# A table of more partitions than this shows only those that something was found in.
_TABLE_ROWS = 40

app = typer.Typer(no_args_is_help=True, help="Look into the files of a log directory.")

Where = Annotated[
    str,
    typer.Argument(metavar="DIR", help="A log directory, the directory of one partition, or a segment file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines, for programs.")]


@app.command("dump")
def dump_command(
    directory: Where,
    records: Annotated[bool, typer.Option("--records", help="Show the records of each batch.")] = False,
    indexes: Annotated[
        bool, typer.Option("--indexes", help="Show offset and transaction indexes of each segment.")
    ] = False,
    epochs: Annotated[
        bool, typer.Option("--epochs", help="Show which leader epochs wrote from which offsets.")
    ] = False,
    producers: Annotated[
        bool, typer.Option("--producers", help="Show the producers in the saved snapshots.")
    ] = False,
    first: Annotated[
        int, typer.Option("--from", min=0, metavar="OFFSET", help="Begin with the batch that holds OFFSET.")
    ] = 0,
    end: Annotated[
        int | None, typer.Option("--to", min=0, metavar="OFFSET", help="Stop before OFFSET.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="At most N batches (with --records: records) a partition."
        ),
    ] = None,
    key: Annotated[Format, typer.Option("--key", help="How to show keys.")] = Format.TEXT,
    value: Annotated[Format, typer.Option("--value", help="How to show values.")] = Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Show the batches of logs, and what else their files hold.

    Damage is shown where it is, and the dump goes on with the next batch that can be found.
    """
    if end is not None and end <= first:
        raise typer.BadParameter(f"{end} must be larger than --from ({first})", param_hint="--to")
    options = DumpOptions(
        records=records,
        indexes=indexes,
        epochs=epochs,
        producers=producers,
        first=first,
        key=key,
        value=value,
        **({} if end is None else {"end": end}),
        **({} if limit is None else {"limit": limit}),
    )
    files = OsFiles()
    render = json_line if as_json else text_line
    damaged = False
    with _endings():
        for event in dump(files, find(files, _absolute(directory)), options):
            damaged = damaged or is_damage(event)
            sys.stdout.write(render(event) + "\n")
    if damaged:
        raise typer.Exit(DAMAGED)


@app.command("verify")
def verify_command(
    directory: Where,
    deep: Annotated[
        bool, typer.Option("--deep/--shallow", help="Decode every record, or only check the checksums.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Check every batch, index and state file.

    Of a segment file only its batches and indexes are checked; whether others are missing around it can be
    seen in its directory.

    Errors are damaged or missing records. Warnings are damaged or missing files that can be rebuilt from
    the records. Notes are worth knowing and in order, such as the torn end that a crash leaves.
    """
    files = OsFiles()
    with _endings():
        target = find(files, _absolute(directory))
        unit = "segment" if target.kind is Kind.SEGMENT else "partition"
        verification = Verification(
            files,
            target,
            deep=deep,
            on_finding=lambda finding: _show_finding(finding, as_json),
            on_bytes=lambda count: progress.advance(task, count),
        )
        # On a terminal the bar stays below the findings; elsewhere rich shows none at all.
        progress = _progress_bar()
        task = progress.add_task("checking", total=verification.size())
        with progress:
            tallies: list[Tally] = []
            for tally in verification.run():
                tallies.append(tally)
                if as_json:
                    sys.stdout.write(json_line(_as_event(unit, tally)) + "\n")
        total = verification.total
        if as_json:
            summary = _as_event("summary", total) | {"partitions": len(target.partitions)}
            sys.stdout.write(json_line(summary) + "\n")
        else:
            _show_summary(unit, tallies, total)
    if total.found[Severity.ERROR]:
        raise typer.Exit(DAMAGED)


def _absolute(path: str) -> str:
    """Names of logs and directories are read off the path, which `.` does not tell."""
    return os.path.abspath(path) if path else path  # noqa: PTH100 - links stay as they are.


@contextlib.contextmanager
def _endings() -> Iterator[None]:
    """What stops a command is a message on stderr and an exit code of its own, not a stack."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer would fail again, and loudly, when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(UNREAD) from None
    except TailraceError as error:
        typer.echo(f"tailrace: {error.args[0]}", err=True)
        raise typer.Exit(UNUSABLE) from None
    except OSError as error:
        typer.echo(f"tailrace: {storage_error('reading', error).args[0]}", err=True)
        raise typer.Exit(UNUSABLE) from None


def _progress_bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        # Findings appear above the bar on a terminal, and must not end up there when they go into a file.
        redirect_stdout=sys.stdout.isatty(),
        disable=not console.is_terminal,
    )


def _show_finding(finding: Finding, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json_line({"type": "finding", **finding._asdict()}) + "\n")
        return
    at = "" if finding.position is None else f" at byte {finding.position}"
    sys.stdout.write(f"{finding.severity}: {finding.path}{at}: {readable(finding.message)}\n")


def _as_event(kind: str, tally: Tally) -> Event:
    event: Event = {"type": kind}
    if kind != "summary":
        event |= {
            "log" if kind == "partition" else "name": tally.name,
            "start_offset": tally.start_offset,
            "end_offset": tally.end_offset,
        }
    return event | {
        "segments": tally.segments,
        "batches": tally.batches,
        "records": tally.records,
        "bytes": tally.size,
        "errors": tally.found[Severity.ERROR],
        "warnings": tally.found[Severity.WARNING],
        "notes": tally.found[Severity.NOTE],
    }


class _Output(Console):
    """Leaves it to `_endings` what happens when nobody reads the output any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _show_summary(unit: str, tallies: list[Tally], total: Tally) -> None:
    table = Table(box=None, pad_edge=False, show_footer=True)
    shown = tallies
    if len(tallies) > _TABLE_ROWS:
        shown = [one for one in tallies if any(one.found.values())]
    count = f"{len(tallies)} {unit}{'' if len(tallies) == 1 else 's'}"
    table.add_column(unit, footer=count, overflow="fold")
    columns = {
        "segments": [str(one.segments) for one in (*shown, total)],
        "batches": [f"{one.batches:,}" for one in (*shown, total)],
        "records": [f"{one.records:,}" for one in (*shown, total)],
        "size": [human_size(one.size) for one in (*shown, total)],
        "errors": [str(one.found[Severity.ERROR]) for one in (*shown, total)],
        "warnings": [str(one.found[Severity.WARNING]) for one in (*shown, total)],
    }
    for name, cells in columns.items():
        table.add_column(name, footer=cells[-1], justify="right", no_wrap=True)
    for number, one in enumerate(shown):
        table.add_row(one.name, *(cells[number] for cells in columns.values()))
    _Output(highlight=False).print(table)
