"""The examples run as a new user runs them: in a process of their own, from the checkout."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LOCAL_LOG = [sys.executable, "examples/local_log.py"]


def test_quick_log_goes_on_where_it_ended_when_run_twice_in_one_directory(tmp_path: Path) -> None:
    command = [sys.executable, "examples/quick_log.py", str(tmp_path / "data")]
    first, second = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True) for _ in range(2)
    )
    assert first.stdout == "0 b'anna' b'ordered'\n1 b'ben' b'paid'\nclosed\n"
    assert second.stdout.splitlines()[2:] == ["2 b'anna' b'ordered'", "3 b'ben' b'paid'", "closed"]
    assert (first.stderr, second.stderr) == ("", "")


def test_quick_log_says_what_it_wants_when_no_directory_is_given() -> None:
    command = [sys.executable, "examples/quick_log.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "usage: python examples/quick_log.py DIR\n")


def test_readme_shows_the_quick_example_as_it_is() -> None:
    _, _, code = (ROOT / "examples" / "quick_log.py").read_text().partition('"""\n\n')
    assert f"```python\n{code}```\n" in (ROOT / "README.md").read_text()


def test_local_log_accounts_for_every_record_when_run_twice_in_one_directory(tmp_path: Path) -> None:
    command = [*LOCAL_LOG, "--data", str(tmp_path), "--seconds", "1", "--partitions", "2"]
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"^ *[\d,]+ records/s .* p99 .* readers lag \d+ records$", done.stdout, re.MULTILINE)
        assert re.fullmatch(r"OK: .* all [\d,]+ acknowledged records .*", done.stdout.splitlines()[-1])
    assert {path.name for path in tmp_path.iterdir()} >= {"demo-0", "demo-1", "directory.json"}


def test_local_log_closes_and_checks_when_it_is_interrupted(tmp_path: Path) -> None:
    command = [*LOCAL_LOG, "--data", str(tmp_path), "--seconds", "100", "--partitions", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "records/s" in line:
                break
        process.send_signal(signal.SIGINT)
        verdict = process.stdout.read().splitlines()[-1]
    assert (process.returncode, verdict[:3]) == (0, "OK:")


def test_local_log_explains_itself_when_an_option_is_wrong() -> None:
    command = [*LOCAL_LOG, "--partitions", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--partitions at least 1" in done.stderr
