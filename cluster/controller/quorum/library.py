"""Makes pysyncobj fit to be used: its clock, random numbers, pickle, log records and private names.

With `core`, the only importer of pysyncobj. What is changed here are globals of its modules, once, when this
module is imported:

- Time and random numbers come from whoever is being run (`ambient`), so that a simulation on virtual time
  drives the same code as a thread on a real clock.
- A journal is given to it as an object instead of a file's name.
- Its wake-up pipe is off: the quorum has its own way to wake its thread.
- Pickle is gone. Nothing of ours makes it pickle; should anything else, it raises.
- Its log records become events of ours.

`check_names` makes sure that everything private that we rely on is there; pyproject.toml pins the version.
"""

from __future__ import annotations

import logging
import threading
from random import Random
from types import TracebackType
from typing import Any, NoReturn

import pysyncobj.journal as library_journal  # type: ignore[import-untyped]
import pysyncobj.pickle as library_pickle  # type: ignore[import-untyped]
import pysyncobj.syncobj as library  # type: ignore[import-untyped]
from pysyncobj.version import VERSION  # type: ignore[import-untyped]

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.runtime.clock import Clock
from tailrace.cluster.runtime.logs import get_logger

KNOWN_VERSION = "0.3.17"

_MODULE_NAMES = ("PIPE_NOTIFIER_ENABLED", "createJournal", "monotonicTime", "pickle", "random")
_METHODS = (
    "_SyncObj__doApplyCommand",
    "_SyncObj__generateRaftTimeout",
    "_SyncObj__loadDumpFile",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__onMessageReceived",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__setCurrentTerm",
    "_SyncObj__setState",
    "_SyncObj__tryLogCompaction",
    "_applyCommand",
    "_onTick",
    "transferLeadership",
)
_FIELDS = (
    "_SyncObj__commandsWaitingCommit",
    "_SyncObj__commandsWaitingReply",
    "_SyncObj__connectedNodes",
    "_SyncObj__lastResponseTime",
    "_SyncObj__newAppendEntriesTime",
    "_SyncObj__otherNodes",
    "_SyncObj__raftCommitIndex",
    "_SyncObj__raftCurrentTerm",
    "_SyncObj__raftElectionDeadline",
    "_SyncObj__raftLastApplied",
    "_SyncObj__raftLeader",
    "_SyncObj__raftLog",
    "_SyncObj__raftMatchIndex",
    "_SyncObj__raftState",
    "_SyncObj__transferInProgress",
    "_SyncObj__votedForNodeId",
    "_SyncObj__votesCount",
)

log = get_logger(__name__)


class _Ambient(threading.local):
    clock: Clock | None = None
    rng: Random | None = None


_ambient = _Ambient()


class ambient:  # noqa: N801
    """`with ambient(clock, rng):` — pysyncobj code in this block, on this thread, uses these."""

    __slots__ = ("_before", "_own")

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._own = (clock, rng)
        self._before: tuple[Clock | None, Random | None] = (None, None)

    def __enter__(self) -> None:
        self._before = (_ambient.clock, _ambient.rng)
        _ambient.clock, _ambient.rng = self._own

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _ambient.clock, _ambient.rng = self._before


class _AmbientRandom:
    """Stands for the module `random`, of which pysyncobj uses one function."""

    @staticmethod
    def random() -> float:
        assert _ambient.rng is not None, "pysyncobj runs only inside `ambient`"
        return _ambient.rng.random()


def _monotonic() -> float:
    assert _ambient.clock is not None, "pysyncobj runs only inside `ambient`"
    return _ambient.clock.monotonic()


def _given_journal(journal: Any) -> Any:
    return journal


def _no_pickle(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("pysyncobj was about to pickle; nothing in the quorum may be pickled")


class _ToEvents(logging.Handler):
    """Turns records of pysyncobj into events of ours, with its text as a field."""

    def emit(self, record: logging.LogRecord) -> None:
        # What it calls critical has no level of ours above error.
        level = min(record.levelno, logging.ERROR)
        log.log(level, "raft_library_message", text=record.getMessage(), exc_info=record.exc_info)


def check_names(instance: object | None = None) -> None:
    """TailraceError naming what this version of pysyncobj lacks of the private names that we rely on."""
    missing = [name for name in _MODULE_NAMES if not hasattr(library, name)]
    missing += [name for name in _METHODS if not hasattr(library.SyncObj, name)]
    if instance is not None:
        missing += [name for name in _FIELDS if not hasattr(instance, name)]
    if VERSION != KNOWN_VERSION or missing:
        lacks = f" and lacks {', '.join(missing)}" if missing else ""
        raise TailraceError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the controller quorum relies on private parts of pysyncobj {KNOWN_VERSION}, but version "
            f"{VERSION} is installed{lacks}. Install pysyncobj=={KNOWN_VERSION}.",
        )


def _install() -> None:
    check_names()
    library.monotonicTime = _monotonic
    library.random = _AmbientRandom()
    library.createJournal = _given_journal
    library.PIPE_NOTIFIER_ENABLED = False
    for module in (library_pickle, library_journal):
        for name in ("dump", "dumps", "load", "loads"):
            if hasattr(module, name):
                setattr(module, name, _no_pickle)
    messages = logging.getLogger("pysyncobj")
    messages.addHandler(_ToEvents())
    messages.propagate = False


_install()
