"""What users import from `tailrace` itself, and what that costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tailrace


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_every_name_that_is_offered_can_be_used() -> None:
    for name in tailrace.__all__:
        assert getattr(tailrace, name) is not None
    assert set(tailrace.__all__) <= set(dir(tailrace))
    with pytest.raises(AttributeError, match="no attribute 'Administrator'"):
        tailrace.Administrator  # type: ignore[attr-defined]  # noqa: B018
    namespace: dict[str, object] = {}
    exec("from tailrace import *", namespace)
    assert set(tailrace.__all__) <= namespace.keys()


def test_clients_are_imported_and_made_without_grpc() -> None:
    code = (
        "import sys, tailrace; "
        "tailrace.Admin(bootstrap_controllers='localhost:1'), tailrace.AsyncAdmin, tailrace.NewTopic('t'); "
        "print('grpc' in sys.modules)"
    )
    assert run_python(code) == "False"


def test_commands_are_imported_without_grpc() -> None:
    groups = "brokers, configs, features, partitions, quorum, topics"
    assert run_python(
        f"import sys; from tailrace.clients.cli import {groups}; print('grpc' in sys.modules)"
    ) == ("False")
