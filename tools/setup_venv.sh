#!/usr/bin/env bash
# Makes or updates the virtual environment of this checkout: setup_venv.sh DIRECTORY.
#
# The Makefile calls it when pyproject.toml or constraints.txt is newer than the environment. Versions
# come from constraints.txt, so that every machine gets the same ones. uv is used when it is on the PATH;
# PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

say() { printf '%s\n' "$*" >&2; }
recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    recent "$PYTHON" && { printf '%s\n' "$PYTHON"; return; }
    say "PYTHON=$PYTHON is not a Python of version 3.11 or newer."
    return 1
  fi
  local candidate
  for candidate in python3.13 python3.12 python3.11 python3 python3.14; do
    recent "$candidate" && { printf '%s\n' "$candidate"; return; }
  done
  say "Tailrace needs Python 3.11 or newer, and none is on the PATH" \
    "(python3 is $(python3 --version 2>/dev/null || echo missing))."
  say "Install one (Debian 12, Ubuntu 24.04 and newer: apt install python3 python3-venv), or name one:" \
    "make PYTHON=/path/to/python3.12 ..."
  return 1
}

usable() { [ -x "$venv/bin/python" ] && recent "$venv/bin/python"; }

if command -v uv >/dev/null; then
  usable || uv venv --quiet --clear --python "${PYTHON:->=3.11}" "$venv"
  install() { VIRTUAL_ENV=$PWD/$venv uv pip install --quiet "$@"; }
else
  if ! usable || ! "$venv/bin/python" -c 'import pip' 2>/dev/null; then
    python=$(find_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      say "$python cannot create virtual environments: its venv module is not complete."
      say "Install it (Debian and Ubuntu: apt install python3-venv), or install uv, and call make again."
      exit 1
    fi
    say "creating $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
  fi
  install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
fi

say "installing the versions of constraints.txt into $venv"
"$venv/bin/python" tools/requirements.py dev bench >"$venv/requirements.txt"
install --constraint constraints.txt --requirement "$venv/requirements.txt"
# What builds the package is pinned and installed above, so no second, unpinned copy is downloaded for it.
install --no-deps --no-build-isolation --editable .
