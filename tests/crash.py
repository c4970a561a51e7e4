"""Explores random crash histories of the storage engine, for as long as one likes.

    python -m tests.crash --seeds 0:1000 --cuts 12     a thousand histories, each crashed at 12 of its steps
    python -m tests.crash --seeds 0:10 --cuts 0        ten histories, each crashed at every step
    python -m tests.crash --seed 7 --cut 809           one case again, with everything that happened in it

A failure prints its seed and cut, what was wrong, and the history that led there. The exit status is 1 if
anything failed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Sequence

from tests.support.crashes import LENGTH, Case, CaseFailedError, draw_cuts, run, undisturbed

PROGRESS_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    logging.disable()
    if options.seed is not None:
        return _repeat(Case(options.seed, options.cut, options.length))
    return _explore(options.seeds, options.cuts, options.length, options.failures)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=(__doc__ or "").split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=_range, metavar="FROM:TO", help="explore these histories")
    what.add_argument("--seed", type=int, help="repeat one case, together with --cut")
    parser.add_argument("--cuts", type=int, default=12, help="crashes for each history; 0: at every step")
    parser.add_argument("--cut", type=int, default=0, help="the step to crash at; 0: never")
    parser.add_argument("--length", type=int, default=LENGTH, help="operations before the first crash")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many")
    return parser.parse_args(arguments)


def _range(text: str) -> range:
    first, separator, last = text.partition(":")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM:TO, such as 0:1000")
    return range(int(first), int(last))


def _repeat(case: Case) -> int:
    try:
        history = run(case) if case.cut else undisturbed(case.seed, case.length)[0]
    except CaseFailedError as failure:
        _show(failure)
        return 1
    print("\n".join(history.trace))
    print(f"{case}: nothing is wrong")
    return 0


def _explore(seeds: range, cuts: int, length: int, most: int) -> int:
    done = failed = 0
    started = said = time.monotonic()
    for seed in seeds:
        for failure in _outcomes(seed, cuts, length):
            done += 1
            if failure is not None:
                failed += 1
                _show(failure)
        now = time.monotonic()
        if now - said >= PROGRESS_SECONDS or seed == seeds[-1] or failed >= most:
            said = now
            rate = done / (now - started)
            print(f"up to seed {seed}: {done} cases, {failed} failed, {rate:.0f} a second", flush=True)
        if failed >= most:
            break
    return 1 if failed else 0


def _outcomes(seed: int, cuts: int, length: int) -> Iterator[CaseFailedError | None]:
    """Of each case of a seed, what was wrong with it; first of the history that nothing interrupts."""
    try:
        drawn = draw_cuts(seed, cuts, length)
        yield None
    except CaseFailedError as failure:
        yield failure
        return
    for cut in drawn:
        try:
            run(Case(seed, cut, length))
            yield None
        except CaseFailedError as failure:
            yield failure


def _show(failure: CaseFailedError) -> None:
    print("\n".join(failure.trace))
    print("".join(traceback.format_exception(failure.__cause__)))
    print(f"{failure}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
