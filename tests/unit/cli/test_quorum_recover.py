"""`tailrace quorum recover`: a directory for each controller of a new quorum, from one that is left."""

from __future__ import annotations

from pathlib import Path
from random import Random

from typer.testing import CliRunner

from tailrace.clients.cli.main import app
from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum.store import open_store
from tailrace.cluster.storage.files import OsFiles


def survivor(directory: Path) -> Path:
    store, _ = open_store(
        OsFiles(),
        str(directory),
        node_id=2,
        voters=[1, 2, 3],
        rng=Random(1),
        keep_entries=10,
        keep_bytes=1000,
    )
    store.close()
    return directory


def test_directories_of_a_new_quorum_are_made_when_one_controller_is_left(tmp_path: Path) -> None:
    source = survivor(tmp_path / "old")
    for node_id in (1, 2, 3):
        target = tmp_path / f"new-{node_id}"
        done = CliRunner().invoke(
            app, ["quorum", "recover", str(source), str(target), "--node-id", str(node_id)]
        )
        assert done.exit_code == 0, done.output
        assert f"ready for controller {node_id}" in done.output
        store, _ = open_store(
            OsFiles(),
            str(target),
            node_id=node_id,
            voters=[1, 2, 3],
            rng=Random(1),
            keep_entries=10,
            keep_bytes=1000,
        )
        assert store.votes.state.node_id == node_id
        store.close()


def test_recovery_is_refused_when_the_target_holds_something(tmp_path: Path) -> None:
    source = survivor(tmp_path / "old")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "precious").write_text("x")
    done = CliRunner().invoke(
        app, ["quorum", "recover", str(source), str(tmp_path / "new"), "--node-id", "1"]
    )
    assert isinstance(done.exception, TailraceError)
    assert done.exception.code is not ErrorCode.NONE
    assert (tmp_path / "new" / "precious").read_text() == "x"
