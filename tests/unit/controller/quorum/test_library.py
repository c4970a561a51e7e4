"""Pysyncobj as it is changed: no pickle, no clock of its own, private names, log records as events."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pysyncobj.journal as library_journal  # type: ignore[import-untyped]
import pysyncobj.pickle as library_pickle  # type: ignore[import-untyped]
import pysyncobj.syncobj as library_module  # type: ignore[import-untyped]
import pytest

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.controller.quorum import library
from tailrace.cluster.runtime.logs import Event
from tests.support.raft_cluster import RaftCluster, small_snapshots
from tests.unit.controller.quorum.lone import Lone

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("pickled")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler", "_loads", "_load", "_dumps"):
        monkeypatch.setattr(pickle, name, refuse)
    yield


@pytest.mark.usefixtures("no_pickle")
def test_nothing_is_pickled_when_a_cluster_lives_its_whole_life() -> None:
    cluster = RaftCluster(3, settings=small_snapshots())
    cluster.start()
    leader = cluster.commit(*[b"%d" % number for number in range(30)])
    cluster.barrier(leader)
    follower = cluster.followers()[0]
    cluster.lose_disk(follower)
    cluster.commit(*[b"x%d" % number for number in range(30)])
    cluster.start(follower)
    cluster.run_until(cluster.agreed)
    assert cluster.machines[follower].loads == 1
    cluster.kill(leader)
    cluster.commit(b"after")
    cluster.start(leader)
    cluster.run_until(cluster.agreed)
    cluster.nodes[cluster.elect()].hand_over()
    cluster.run(1000)
    for node_id in cluster.voters:
        cluster.stop(node_id)
    cluster.start()
    cluster.commit(b"end")
    assert cluster.failures == {}


@pytest.mark.parametrize("name", ["dump", "dumps", "load", "loads"])
def test_pickling_raises_when_pysyncobj_tries_it(name: str) -> None:
    with pytest.raises(RuntimeError, match="nothing in the quorum may be pickled"):
        getattr(library_pickle, name)(b"x", None)
    assert library_module.pickle is library_pickle
    for copied in ("dumps", "loads"):
        assert getattr(library_journal, copied) is getattr(library_pickle, copied)


def test_time_and_chance_are_the_nodes_own_when_two_live_in_one_process() -> None:
    first, second = Lone(1), Lone(1)
    first.tick(100_000)
    second.tick(1)
    assert len(first.sent) == 2
    assert second.sent == []


def test_pysyncobj_does_not_run_when_nobody_has_said_whose_time_it_is() -> None:
    with pytest.raises(AssertionError, match="only inside `ambient`"):
        library_module.monotonicTime()
    with pytest.raises(AssertionError, match="only inside `ambient`"):
        library_module.random.random()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (library_module, "monotonicTime"),
        (library_module.SyncObj, "_SyncObj__sendAppendEntries"),
    ],
)
def test_start_is_refused_when_a_private_name_is_gone(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(TailraceError, match=rf"pysyncobj 0\.3\.17.*lacks {name}") as raised:
        library.check_names()
    assert raised.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_start_is_refused_when_the_version_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "VERSION", "0.3.18")
    with pytest.raises(TailraceError, match=r"version 0\.3\.18 is installed.*Install pysyncobj==0\.3\.17"):
        Lone(1)


def test_start_is_refused_when_a_field_of_an_instance_is_gone() -> None:
    lone = Lone(1)
    raft: Any = lone.node._core._raft
    del raft._SyncObj__raftMatchIndex
    with pytest.raises(TailraceError, match="lacks _SyncObj__raftMatchIndex"):
        library.check_names(raft)


def test_log_records_become_events_when_pysyncobj_writes_them(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        logging.getLogger("pysyncobj.syncobj").critical("truncating %d entries", 7)
    [record] = [one for one in caplog.records if one.name == library.__name__]
    assert not logging.getLogger("pysyncobj").propagate
    assert record.levelno == logging.ERROR
    assert isinstance(record.msg, Event)
    assert record.msg.name == "raft_library_message"
    assert record.msg.fields == {"text": "truncating 7 entries"}


def test_pysyncobj_is_imported_by_two_modules_only() -> None:
    importers = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "cluster").rglob("*.py"))
        if any(
            line.startswith(("import pysyncobj", "from pysyncobj"))
            for line in path.read_text(encoding="utf-8").splitlines()
        )
    ]
    assert importers == ["cluster/controller/quorum/core.py", "cluster/controller/quorum/library.py"]


def test_importing_starts_no_thread_and_opens_nothing() -> None:
    code = (
        "import os, threading\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "import tailrace.cluster.controller.quorum.quorum\n"
        "print(threading.active_count(), len(os.listdir('/proc/self/fd')) - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
