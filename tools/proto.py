"""Generates tailrace/v1 from proto/: the message types and their type stubs.

`make proto` calls this after a .proto has changed, and the result is committed, so that neither a
clone nor `pip install` needs a compiler. The output depends on the .proto files and on the version of
grpcio-tools alone, which constraints.txt pins; a test generates it anew and compares every byte.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO_ROOT = ROOT / "proto"


def proto_files() -> list[str]:
    """Every .proto, relative to proto/ and sorted, so that the order of a directory never matters."""
    return sorted(path.relative_to(PROTO_ROOT).as_posix() for path in PROTO_ROOT.rglob("*.proto"))


def pinned_version() -> str:
    """The version of grpcio-tools that the committed files were generated with."""
    match = re.search(r"^grpcio-tools==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if match is None:
        raise SystemExit("constraints.txt does not pin grpcio-tools; add the line grpcio-tools==<version>")
    return match[1]


def installed_version() -> str | None:
    try:
        return importlib.metadata.version("grpcio-tools")
    except importlib.metadata.PackageNotFoundError:
        return None


def generate(output: Path) -> list[Path]:
    """Writes the generated modules below `output` and returns their paths, relative to it."""
    from grpc_tools import protoc  # noqa: PLC0415  (its absence is reported by main, not by an import)

    files = proto_files()
    arguments = ["protoc", f"--proto_path={PROTO_ROOT}", f"--python_out={output}", f"--pyi_out={output}"]
    status = protoc.main([*arguments, *files])
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}; its messages are above")
    stems = [file.removesuffix(".proto") for file in files]
    return [Path(f"{stem}_pb2{suffix}") for stem in stems for suffix in (".py", ".pyi")]


def main() -> None:
    installed, pinned = installed_version(), pinned_version()
    if installed != pinned:
        raise SystemExit(
            f"grpcio-tools {installed or 'is not installed'}, but constraints.txt pins {pinned}, and another"
            " version writes other files. Run `make proto`, which installs the pinned one."
        )
    for path in generate(ROOT):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
