"""Prints what the virtual environment of a checkout needs, one requirement a line, from pyproject.toml.

Called by tools/setup_venv.sh: what builds the package, what it needs to run, and the dependency groups
named as arguments. pip learned to install groups by itself in version 25.1 only, which is newer than the
pip of current distributions, so this reads them.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(groups: list[str]) -> list[str]:
    project = tomllib.loads(PYPROJECT.read_text())
    known: dict[str, list[str]] = project["dependency-groups"]
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise SystemExit(f"no dependency group {', '.join(unknown)}; pyproject.toml has {', '.join(known)}")
    wanted: list[str] = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for group in groups:
        wanted += known[group]
    return list(dict.fromkeys(wanted))


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in requirements(sys.argv[1:])))
