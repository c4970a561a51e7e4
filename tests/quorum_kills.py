"""Kills controllers of a quorum of real processes under load, and judges what they have applied.

    python -m tests.quorum_kills --rounds 30 --kill leader     the one that is active
    python -m tests.quorum_kills --rounds 30 --kill two        two of three, at random
    python -m tests.quorum_kills --rounds 30 --kill all        all three

In each round a number of entries is acknowledged, chosen at random so that the kill falls anywhere between
append, snapshot and trim; then the nodes are killed with SIGKILL and started again: at random at once, while
a leader that is left still believes in itself, or when it has stepped down. The exit status is 1 if
anything was lost, applied twice, or is not the same everywhere. SIGKILL leaves the page cache alone: what
a loss of power does is for the tests with `tests.support.fault_files` to find out.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random

from tests.integration.quorum_cluster import FAST_SETTINGS, Book, EntryId, QuorumCluster
from tests.integration.quorum_node import RECORD

KINDS = ("leader", "two", "all")
HOSE_WIDTH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`problems` is empty if all is as promised."""

    acknowledged: int
    refused: int
    unknown: int
    applied: int
    applied_unknown: int
    applied_unanswered: int
    """By nodes that were killed before they could answer; neither promised nor forbidden."""
    epochs: int
    lost: int
    applied_twice: int
    digests_equal: bool
    problems: tuple[str, ...]

    def __str__(self) -> str:
        named = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "problems"}
        return "\n".join([*(f"{name:20} {value}" for name, value in named.items()), *self.problems])


def judge_cluster(cluster: QuorumCluster) -> Verdict:
    """Waits until the cluster is at rest, and judges it."""
    cluster.settle()
    return judge(
        cluster.book, cluster.histories(), generations=cluster.generations, noticed=cluster.problems()
    )


def judge(
    book: Book, histories: Mapping[int, bytes], *, generations: int, noticed: Sequence[str] = ()
) -> Verdict:
    problems = list(noticed)

    def check(problem: str, wrong: Sequence[object]) -> None:
        if wrong:
            problems.append(f"{len(wrong)} {problem}, first {wrong[0]}")

    digests = {node_id: hashlib.sha256(history).hexdigest() for node_id, history in histories.items()}
    if len(set(digests.values())) > 1:
        problems.append(f"the nodes applied different entries: {digests}")
    longest = max(histories.values(), key=len)
    records = list(RECORD.iter_unpack(longest))
    applied: list[EntryId] = [(generation, serial) for _, _, generation, serial in records if generation]
    times = Counter(applied)
    versions = {entry: version for version, entry in enumerate(applied, start=1)}
    # Promises are kept by every node, so each history is asked.
    everywhere = set(times).intersection(*map(_ids, histories.values()))
    lost = sorted(book.committed.keys() - everywhere)
    twice = [entry for entry, count in times.items() if count > 1]
    check("acknowledged entries are lost", lost)
    check("entries were applied twice", twice)
    check("refused entries were applied", sorted(book.refused & times.keys()))
    check("entries were answered twice", book.answered_twice)
    check(
        "acknowledged entries have another version than was said",
        [entry for entry, version in book.committed.items() if versions.get(entry, version) != version],
    )
    check("entries were proposed by nobody", [one for one in times if one[0] > generations or not one[1]])
    problems += _disorder(records)
    return Verdict(
        acknowledged=len(book.committed),
        refused=len(book.refused),
        unknown=len(book.unknown),
        applied=len(applied),
        applied_unknown=len(book.unknown & times.keys()),
        applied_unanswered=len(times.keys() - book.committed.keys() - book.unknown - book.refused),
        epochs=len({record[0] for record in records}),
        lost=len(lost),
        applied_twice=len(twice),
        digests_equal=len(set(digests.values())) == 1,
        problems=tuple(problems),
    )


def _ids(history: bytes) -> set[EntryId]:
    return {(generation, serial) for _, _, generation, serial in RECORD.iter_unpack(history) if generation}


def _disorder(records: Sequence[tuple[int, ...]]) -> list[str]:
    """Each epoch begins with its claim and ends before the next one's, decided by a single proposer."""
    found = []
    epoch, last_index, proposer = 0, 0, 0
    for record in records:
        of_epoch, index, generation, _ = record
        if index <= last_index:
            found.append(f"index {index} was applied after {last_index}")
        if generation == 0:
            if of_epoch <= epoch:
                found.append(f"epoch {of_epoch} was claimed in epoch {epoch}")
            epoch, proposer = of_epoch, 0
        elif of_epoch != epoch:
            found.append(f"entry {record} was applied in epoch {epoch}")
        elif proposer not in (0, generation):
            found.append(f"entry {record} is of another proposer than {proposer}, in one epoch")
        else:
            proposer = generation
        last_index = index
    return found[:5]


def kill_round(
    cluster: QuorumCluster, kind: str, rng: Random, acknowledged: range, *, at_once: bool = False
) -> float:
    """One round under load that goes on: how long after the kill the next entry was acknowledged.

    Unless the nodes are started again `at_once`, whoever led before does not lead any more.
    """
    cluster.wait_acknowledged(rng.choice(acknowledged))
    victims = _victims(cluster, kind, rng)
    cluster.kill(*victims)
    killed_at, before = time.monotonic(), cluster.acknowledged()
    if kind == "leader":
        cluster.wait("an acknowledged entry of the others", lambda: cluster.acknowledged() > before)
        gap = time.monotonic() - killed_at
    elif not at_once:
        cluster.wait(
            "the last leader's end",
            lambda: not any(cluster.status(node_id)["active"] for node_id in cluster.running()),
        )
    cluster.start(*victims)
    cluster.hose(HOSE_WIDTH, victims)
    if kind != "leader":
        cluster.wait("an acknowledged entry", lambda: cluster.acknowledged() > before)
        gap = time.monotonic() - killed_at
    return gap


def _victims(cluster: QuorumCluster, kind: str, rng: Random) -> list[int]:
    match kind:
        case "leader":
            return [cluster.wait_leader()]
        case "two":
            return rng.sample(cluster.ids, 2)
        case _:
            return rng.sample(cluster.ids, len(cluster.ids))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.quorum_kills", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--kill", choices=KINDS, default="leader")
    parser.add_argument("--acknowledged", type=int, default=3_000, help="most entries before a kill")
    parser.add_argument("--snapshot-entries", type=int, default=500)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the kills; their moments vary all the same"
    )
    options = parser.parse_args(arguments)
    rng = Random(options.seed)
    settings = {**FAST_SETTINGS, "snapshot_entries": options.snapshot_entries}
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="quorum-kills-") as directory,
        QuorumCluster(Path(directory), settings=settings) as cluster,
    ):
        cluster.start()
        cluster.hose(HOSE_WIDTH)
        gaps = []
        for number in range(1, options.rounds + 1):
            acknowledged = range(1, options.acknowledged + 1)
            at_once = rng.random() < 0.5
            gaps.append(kill_round(cluster, options.kill, rng, acknowledged, at_once=at_once))
            print(f"round {number}: {cluster.acknowledged()} acknowledged, back after {gaps[-1]:.2f} s")
        verdict = judge_cluster(cluster)
    print(f"\n{options.rounds} rounds of --kill {options.kill} in {time.monotonic() - started:.0f} s")
    if gaps:
        middle = sorted(gaps)[len(gaps) // 2]
        print(f"from kill to the next acknowledged entry: median {middle:.2f} s, longest {max(gaps):.2f} s")
    print(verdict)
    return 1 if verdict.problems else 0


if __name__ == "__main__":
    sys.exit(main())
