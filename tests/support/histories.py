"""Random histories of a storage engine: several logs of all kinds in one directory, and crashes on the way.

A `History` repeats byte for byte from its seed, so a test can run it once to count the steps of its file
system and then again, with the power cut at one of them. After a crash it is opened on what is left of the
files, compared with its books, and goes on.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tailrace.cluster.storage.core.epochs import EpochEntry
from tailrace.cluster.storage.log import Log
from tests.support.engine import Engine
from tests.support.fault_files import FaultFiles
from tests.support.kinds import DIRECTORY, SMALL
from tests.support.operations import Operations
from tests.support.recovered import check_found, check_live, epochs_from
from tests.support.scheduling import AnyOrder

# All that waits to be removed is gone after so long.
_QUIET_MS, _QUIET_TICKS = 30_000, 12
_UNFINISHED = (".cleaned", ".swap", ".tmp", ".deleted", "-delete")


class History(Operations):
    """`open` and `go_on` raise PowerLost when the file system does; then `crash`, and `open` what is left."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        # What the engine did in all lives together, to tell whether a history reaches it.
        self.reached: Counter[str] = Counter()
        self._power_lost = False

    def open(self, files: FaultFiles, *, compare: bool = True) -> None:
        """Start the engine on these files and compare what it finds with the books."""
        self._files, self._engine = files, None
        self.say("open")
        engine = Engine(
            files,
            config=SMALL,
            topics=self.topics,
            now_ms=self.now_ms,
            blocking=AnyOrder(self.rng),
            new_id=self.new_id,
        )
        assert not engine.report.corrupt, f"damage was found: {engine.report.corrupt}"
        assert not engine.report.offline, f"it cannot be opened: {engine.report.offline}"
        self._engine = engine
        if compare:
            self._compare()
        self._power_lost = False

    def _compare(self) -> None:
        """Everything in the directory is known, everything promised is in the directory."""
        found = self.engine.manager.logs
        known = {books.incarnation: books for books in self.deleted}
        for partition, replica in list(self.replicas.items()):
            log = found.get(partition)
            if log is not None and log.incarnation == replica.books.incarnation:
                known[log.incarnation] = replica.books
                continue
            assert not replica.books.exists, f"{partition} is gone though records in it were acknowledged"
            self.deleted.append(self.replicas.pop(partition).books)
        for partition, log in found.items():
            assert log.incarnation in known, f"{partition} was never created"
            books = known[log.incarnation]
            assert not books.gone, f"{partition} is back though its deletion was durable"
            version = check_found(
                log, books, power_lost=self._power_lost, now_ms=self.now_ms, where="found after opening"
            )
            self.say(f"found {partition} {log.log_start_offset}..{log.end_offset}")
            books.opened(log, version)
            if partition in self.replicas:
                self.replicas[partition].next_epoch()  # Nobody goes on in an epoch after a restart.
            else:
                self.engine.manager.delete(partition)  # Its deletion was lost: a broker repeats it.

    def go_on(self, operations: int) -> None:
        calls, weights = zip(*self.operations(), (self.restart, 2), strict=True)
        for _ in range(operations):
            self.rng.choices(calls, weights)[0]()
            self._assert_sound()

    def _assert_sound(self) -> None:
        assert not self.engine.offline, f"a directory has failed: {self.engine.offline}"
        assert not self.engine.manager.damaged, f"damage was met: {self.engine.manager.damaged}"
        failed = self.engine.manager._cleaning.failed
        assert not failed, f"cleaning has given up: {failed}"

    def crash(self, rng: Random, *, kill: bool) -> FaultFiles:
        """The process dies, or the machine; returns the files as the next process finds them."""
        self.say("killed" if kill else "power lost")
        self._power_lost = self._power_lost or not kill
        if self._engine is not None:
            logs = self._engine.manager.logs
            for partition, replica in self.replicas.items():
                if partition in logs:
                    replica.books.called_synced(logs[partition].synced_end)
            self._end_life(self._engine)
        else:
            self.reached["crashes of a recovery"] += 1
        self.reached["kills" if kill else "losses of power"] += 1
        self._engine = None
        return self.files.kill() if kill else self.files.crash(rng)

    def restart(self) -> None:
        """A clean stop keeps everything, to the last offset and epoch."""
        if self.rng.random() < 0.5:
            self.engine.drain()
        self.say("restart")
        self.engine.close()
        self._end_life(self.engine)
        for books in self.deleted:
            books.gone = True
        before = {}
        for partition, log in self.engine.manager.logs.items():
            books = self.replicas[partition].books
            books.opened(log, books.latest)
            before[partition] = _ends(log)
        # A comparison loads what the engine itself would leave on the disk until somebody asks for it.
        self.open(self.files, compare=self.rng.random() < 0.5)
        assert self.engine.report.directories[DIRECTORY].clean
        logs = self.engine.manager.logs
        after = {partition: _ends(log) for partition, log in logs.items()}
        assert after == before, f"{after} after a clean stop with {before}"

    def _end_life(self, engine: Engine) -> None:
        stats = engine.manager.directories[0].writer.stats
        self.reached["journal frames"] += stats.journal_frames
        self.reached["direct syncs"] += stats.direct_syncs
        self.reached["cleanings"] += len(engine.manager._cleaning.last_results)
        self.reached["logs"] += len(engine.manager.logs)

    def finish(self) -> None:
        """Let everything come to rest: all is there, nothing is left over, and a start finds it so."""
        self.engine.drain()
        self._check_all()
        for _ in range(_QUIET_TICKS):
            self.now_ms += _QUIET_MS
            self.tick()
            self.engine.drain()
            self._assert_sound()
        self._check_all()
        names = [
            name for name in self.files.files_below(DIRECTORY) if any(one in name for one in _UNFINISHED)
        ]
        assert not names, f"never removed: {names}"
        self.restart()

    def _check_all(self) -> None:
        for partition, log in self.engine.manager.logs.items():
            check_live(log, self.replicas[partition].books, now_ms=self.now_ms, where="at rest")


def _ends(log: Log) -> tuple[int, list[EpochEntry]]:
    return log.end_offset, epochs_from(log.epochs, log.log_start_offset)
