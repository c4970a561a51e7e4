"""Rules of the project itself that no other tool checks: generated files, seams, sizes, and pins."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

import tailrace
from tailrace.clients.cli.main import app
from tailrace.v1 import errors_pb2

ROOT = Path(__file__).resolve().parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
)
CODE = ("cluster", "clients", "tests", "bench", "tools", "examples")
TEXT = (*CODE, "docs", "proto", ".ci", "tailrace/v1")
TEXT_FILES = ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml", "constraints.txt", ".importlinter")
OPENERS = {"", "os", "io", "Path", "pathlib.Path"}
WHOLE_FILE_METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
THREAD_MAKERS = {
    "Thread",
    "Timer",
    "ThreadPoolExecutor",
    "ProcessPoolExecutor",
    "to_thread",
    "run_in_executor",
    "start_new_thread",
}


def load_tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def calls(text: str) -> Iterator[tuple[ast.Call, str, str]]:
    """Every call in a source: the node, what stands before the last dot ("" if nothing), the name called."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node, "", node.func.id
            elif isinstance(node.func, ast.Attribute):
                owner = node.func.value
                owner = owner.func if isinstance(owner, ast.Call) else owner
                yield node, ast.unparse(owner), node.func.attr


def file_openings(text: str) -> list[str]:
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node, owner, name in calls(text)
        if (owner in OPENERS and name in ("open", "fdopen")) or name in WHOLE_FILE_METHODS
    ]


def thread_starts(text: str) -> list[str]:
    return [
        f"line {node.lineno}: {ast.unparse(node)}" for node, _, name in calls(text) if name in THREAD_MAKERS
    ]


def unstable_events(text: str) -> list[str]:
    return [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node, owner, name in calls(text)
        if owner.rpartition(".")[2] in ("log", "logger", "_log", "_logger")
        and name in LOG_METHODS
        and not _is_event(node)
    ]


def _is_event(node: ast.Call) -> bool:
    match node.args:
        case [ast.Constant(value=str(name))]:
            return re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", name) is not None
    return False


def broken(rule: Callable[[str], list[str]], folder: str, *exempt: str) -> dict[str, list[str]]:
    """What a rule finds in a folder, by file."""
    found = {
        path.relative_to(ROOT).as_posix(): rule(path.read_text(encoding="utf-8")) for path in sources(folder)
    }
    return {path: lines for path, lines in found.items() if lines and path not in exempt}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_generated_messages_are_what_the_pinned_compiler_writes(tmp_path: Path) -> None:
    tool = load_tool("proto")
    installed, pinned = tool.installed_version(), tool.pinned_version()
    if installed != pinned:
        pytest.skip(
            f"grpcio-tools is {installed or 'not installed'}, and only {pinned} writes the same bytes"
        )
    generated = tool.generate(tmp_path)
    committed = sorted(path.relative_to(ROOT) for path in (ROOT / "tailrace" / "v1").glob("*_pb2*.py*"))
    assert sorted(generated) == committed
    for path in generated:
        assert (tmp_path / path).read_bytes() == (ROOT / path).read_bytes(), (
            f"{path} is old; run `make proto`"
        )


def test_protobuf_requirement_is_at_least_the_version_that_generated_the_messages() -> None:
    assert errors_pb2.__file__ is not None
    header = Path(errors_pb2.__file__).read_text()
    match = re.search(r"^# Protobuf Python Version: (\S+)$", header, re.MULTILINE)
    assert match is not None
    [required] = [line for line in PYPROJECT["project"]["dependencies"] if line.startswith("protobuf")]
    floor = required.removeprefix("protobuf>=").split(".")
    assert [int(part) for part in floor] >= [int(part) for part in match[1].split(".")]


def test_configuration_page_is_what_the_settings_say() -> None:
    tool = load_tool("config_docs")
    assert tool.PAGE.read_text(encoding="utf-8") == tool.render(), (
        "docs/configuration.md is old; run `make proto`"
    )


def test_every_requirement_is_pinned_so_that_installs_repeat() -> None:
    groups = PYPROJECT["dependency-groups"].values()
    wanted = [*PYPROJECT["build-system"]["requires"], *PYPROJECT["project"]["dependencies"]]
    wanted += [line for group in groups for line in group]
    names = {normal(re.split(r"[<>=!~\[ ]", line)[0]) for line in wanted}
    assert names <= {normal(name) for name in PINS}


def test_constraints_name_versions_only() -> None:
    assert [f"{name}=={pin}" for name, pin in PINS.items() if not re.fullmatch(r"[\w.]+", pin)] == []
    assert "tailrace" not in PINS


def test_installed_version_is_the_one_the_package_names() -> None:
    assert importlib.metadata.version("tailrace") == tailrace.__version__
    assert f"## [{tailrace.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_command_shows_the_version() -> None:
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"tailrace {tailrace.__version__}\n")


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling builds the wheel")
def test_wheel_holds_the_sources_as_parts_of_tailrace_and_no_other_package(tmp_path: Path) -> None:
    build = "import sys, hatchling.build as backend; print(backend.build_wheel(sys.argv[1]))"
    command = [sys.executable, "-c", build, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = wheel.namelist()
    packed = [name for name in names if ".dist-info/" not in name]
    expected = [f"tailrace/{path.relative_to(ROOT).as_posix()}" for path in sources("cluster", "clients")]
    assert {name.split("/")[0] for name in packed} == {"tailrace"}
    assert (
        sorted(name for name in packed if name.startswith(("tailrace/cluster/", "tailrace/clients/")))
        == expected
    )
    assert {"tailrace/py.typed", "tailrace/v1/errors_pb2.py", "tailrace/v1/errors_pb2.pyi"} <= set(packed)


def test_importing_the_package_imports_none_of_its_parts() -> None:
    code = "import sys, tailrace; print([name for name in sys.modules if name.startswith('tailrace.')])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_readme_commands_are_targets_of_the_makefile() -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"run", "test"} <= named
    assert named <= targets


def test_storage_opens_files_only_in_its_file_seam() -> None:
    assert broken(file_openings, "cluster/storage", "cluster/storage/files.py") == {}


@pytest.mark.parametrize(
    "call",
    ["open(p)", "os.open(p, 0)", "Path(p).open()", "pathlib.Path(p).open()", "p.read_bytes()", "io.open(p)"],
)
def test_rule_on_files_finds_the_call_when_one_is_opened(call: str) -> None:
    assert file_openings(f"x = {call}") == [f"line 1: {call}"]
    assert file_openings("x = self._files.open(p)") == []


def test_cluster_starts_threads_only_in_the_blocking_seam() -> None:
    # The links of the quorum are real threads by design; simulations have links of their own.
    exempt = ("cluster/runtime/blocking.py", "cluster/controller/quorum/grpc_links.py")
    assert broken(thread_starts, "cluster", *exempt) == {}


@pytest.mark.parametrize(
    "call", ["threading.Thread(target=f)", "ThreadPoolExecutor(2)", "asyncio.to_thread(f)"]
)
def test_rule_on_threads_finds_the_call_when_one_is_started(call: str) -> None:
    assert thread_starts(f"x = {call}") == [f"line 1: {call}"]


def test_log_events_are_stable_snake_case_names() -> None:
    assert broken(unstable_events, "cluster") | broken(unstable_events, "clients") == {}


@pytest.mark.parametrize("call", ["log.info('Log opened')", "self._log.error(f'{x}_y')", "logger.warning()"])
def test_rule_on_events_finds_the_call_when_the_name_is_not_stable(call: str) -> None:
    assert unstable_events(call) == [f"line 1: {call}"]
    assert unstable_events("log.info('log_opened', topic=t)") == []


def test_no_source_file_is_longer_than_500_lines() -> None:
    lengths = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in sources(*CODE)}
    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    # Written in pieces, so that this file does not find itself.
    place = re.compile("/(?:" + "|".join(["home", "root", "work", "Users"]) + r")/[\w.]+")
    files = [path for folder in TEXT for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [ROOT / name for name in TEXT_FILES]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        if "__pycache__" not in path.parts
        for match in place.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert found == []


def test_readme_examples_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
