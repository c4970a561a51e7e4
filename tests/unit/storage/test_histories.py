"""Random histories must notice an engine that breaks its promises, and reach what there is to break."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tailrace.cluster.storage import recovery
from tailrace.cluster.storage.core.aborted import AbortedIndex
from tailrace.cluster.storage.core.epochs import EpochHistory
from tailrace.cluster.storage.core.producers import ProducerStates
from tailrace.cluster.storage.journal import Journal
from tests.crash import main
from tests.support.crashes import Case, CaseFailedError, draw_cuts, run

Break = Callable[[pytest.MonkeyPatch], None]
SEEDS = 40
OPERATIONS = {
    *("append", "follow", "truncate", "reset", "delete", "roll", "checkpoint"),
    *("restart", "create", "flush", "run", "tick"),
}


def unsynced_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "sync", lambda journal: None)


def unlisted_aborts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbortedIndex, "overlapping", lambda index, start, end: [])


def forgotten_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_producers_before", lambda *_: ProducerStates())


def forgotten_epochs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochHistory, "truncate_end", lambda epochs, offset: False)


def cleaning_of_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "first_unstable_offset", lambda states, high_watermark: None)


@pytest.mark.parametrize(
    ("sabotage", "complaint"),
    [
        (unsynced_journal, r"is missing|was never appended|damage was found"),
        (unlisted_aborts, r"is aborted, the aborted are \[\]"),
        (forgotten_producers, r"producer \d+ is forgotten"),
        (forgotten_epochs, r"would go back behind|behind epoch"),
        (cleaning_of_open_transactions, r"is missing though nothing replaces|for readers"),
    ],
)
def test_histories_fail_when_the_engine_is_broken(
    sabotage: Break, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotage(monkeypatch)
    with pytest.raises(CaseFailedError, match=complaint):
        for seed in range(SEEDS):
            for cut in draw_cuts(seed, 3):
                run(Case(seed, cut))


def test_history_repeats_exactly_when_seed_and_cut_are_the_same() -> None:
    case = Case(5, 300)
    assert run(case).trace == run(case).trace


def test_histories_reach_all_that_can_be_interrupted_when_a_few_are_run() -> None:
    reached: Counter[str] = Counter()
    for seed in range(150, 158):
        history = run(Case(seed, draw_cuts(seed, 1)[0]))
        reached += history.reached
        reached.update(line.split()[1] for line in history.trace)
    assert reached.keys() >= OPERATIONS
    engine = (
        "journal frames",
        "direct syncs",
        "cleanings",
        "kills",
        "losses of power",
        "crashes of a recovery",
    )
    assert not [one for one in engine if not reached[one]], reached


def test_exploration_says_what_failed_and_how_to_repeat_it_when_something_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--seeds", "0:2", "--cuts", "1"]) == 0
    assert "up to seed 1: 4 cases, 0 failed" in capsys.readouterr().out
    forgotten_producers(monkeypatch)
    assert main(["--seeds", "0:9", "--cuts", "2", "--failures", "1"]) == 1
    said = capsys.readouterr().out
    command = said[said.index("python -m tests.crash ") :].split("\n")[0].split()[3:]
    assert main(command) == 1
    repeated = capsys.readouterr().out
    assert "is forgotten" in repeated
    assert repeated.split("\n")[:40] == said.split("\n")[:40]
