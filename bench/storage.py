"""The storage engine beside what the disk and the system calls give: everything in one run, in turn.

    python bench/storage.py [--quick] [--only NAME]... [--dir DIR] [--json FILE] [--markdown FILE]

Each section compares sides in slices that take turns (see support.py). Ratios are what to look at: on a busy
machine both sides slow down. The data goes to a new directory below --dir, which must be on the disk to be
measured, and is removed at the end. docs/performance.md says how to read the tables.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from storage_read import offset_lookup, sequential_read
from storage_start import CrashCase, clean_open, compaction, recovery, write_and_wait_for_death
from storage_write import group_commit, large_appends, many_partitions, preallocation
from support import Run, Section, put_markdown, write_json

SECTIONS: dict[str, Callable[[Run], Awaitable[list[Section]]]] = {
    "append": large_appends,
    "group": group_commit,
    "read": sequential_read,
    "lookup": offset_lookup,
    "partitions": many_partitions,
    "open": clean_open,
    "recovery": recovery,
    "preallocation": preallocation,
    "compaction": compaction,
}
DEFAULT_DIRECTORY = Path(__file__).resolve().parent.parent / "build"


def environment(directory: Path) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "file_system": _file_system(directory),
        "load": round(os.getloadavg()[0], 2),
        "event_loop": "asyncio",
    }


def _file_system(directory: Path) -> str:
    """The type of the file system that holds the directory, as far as the kernel says."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mounted, found, *_ = line.split()
        inside = directory.is_relative_to(mounted)
        if inside and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller and fewer slices, for a look")
    parser.add_argument("--only", action="append", choices=SECTIONS, metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY, help="where to put the data")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="put the tables into this document")
    parser.add_argument("--crash-writer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crash_writer:
        place, *numbers = options.crash_writer
        asyncio.run(write_and_wait_for_death(Path(place), CrashCase(*map(int, numbers))))
        return
    options.dir.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Section]] = {}
    console = Console(width=140)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as directory:
        facts = environment(Path(directory))
        if facts["file_system"] == "tmpfs":
            sys.exit(f"{options.dir} is in memory, where a sync costs nothing: choose another with --dir")
        console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
        run = Run(directory=Path(directory), quick=options.quick)
        for name in options.only or SECTIONS:
            start = time.perf_counter()
            results[name] = asyncio.run(_run(name, run))
            for section in results[name]:
                section.print_to(console)
            console.print(f"  ({name}: {time.perf_counter() - start:.0f} s)\n", style="dim", highlight=False)
    if options.json:
        write_json(options.json, facts, results)
    if options.markdown:
        for name, sections in results.items():
            tables = "\n".join(section.markdown() for section in sections)
            put_markdown(options.markdown, f"storage {name}", f"{tables}\n{_conditions(facts, run)}")


def _conditions(facts: dict[str, Any], run: Run) -> str:
    return (
        f"*{'A quick' if run.quick else 'A full'} run on {facts['cores']} cores ({facts['machine']}), Linux"
        f" {facts['kernel']}, {facts['file_system']}, Python {facts['python']}; load {facts['load']} at its"
        " start.*"
    )


async def _run(name: str, run: Run) -> list[Section]:
    return await SECTIONS[name](run)


if __name__ == "__main__":
    main()
