"""`tailrace log ... | head`: the reader of the output leaves, and the command ends as others do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.clients.cli.log import UNREAD
from tests.support.engine import append
from tests.unit.cli.directories import closed_directory, flip, name_of, open_engine

COMMAND = [sys.executable, "-c", "from tailrace.clients.cli.main import main; main()", "log"]


@pytest.mark.parametrize("arguments", [["dump"], ["dump", "--limit", "1"], ["verify"], ["verify", "--json"]])
@pytest.mark.parametrize("damaged", [False, True])
def test_command_ends_quietly_when_nobody_reads_its_output(
    tmp_path: Path, arguments: list[str], damaged: bool
) -> None:
    partition = closed_directory(tmp_path)
    if damaged:
        flip(partition / name_of(0), 100)
    nobody, output = os.pipe()
    os.close(nobody)
    try:
        done = subprocess.run(
            [*COMMAND, *arguments, str(tmp_path)], stdout=output, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(output)
    assert (done.returncode, done.stderr) == (UNREAD, b"")


def test_dump_ends_quietly_when_its_reader_has_enough(tmp_path: Path) -> None:
    engine = open_engine(tmp_path)
    log = engine.log()
    for _ in range(1000):
        append(log, b"v")
    engine.close()
    command = [*COMMAND, "dump", str(tmp_path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"type":"partition"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == UNREAD
