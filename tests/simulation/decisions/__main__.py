"""python -m tests.simulation.decisions: counts in how many seeds each decision is taken. The page says more."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from tests.simulation.decisions.counting import Run, Taken, taken_by_all
from tests.simulation.decisions.found import Decision
from tests.simulation.decisions.modules import listed_decisions
from tests.simulation.decisions.page import PAGE, Counts, Page, read, text_of
from tests.simulation.decisions.unreachable import OPEN, reason_of
from tests.simulation.run import seeds_in


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a decision is taken in one way only, or never, and nothing says why."""
    options = _options(arguments)
    if options.refresh:
        PAGE.write_text(text_of(read()))
        return 0
    runs = [Run(seed, 3) for seed in options.seeds] + [Run(seed, 1) for seed in options.alone]
    counts = counted(taken_by_all(runs, options.processes))
    if options.write:
        alone = f", and {len(options.alone)} seeds of one" if options.alone else ""
        PAGE.write_text(text_of(Page(f"{len(options.seeds)} seeds of three brokers{alone}", counts)))
    return _print_open(counts)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.decisions", description=__doc__)
    parser.add_argument("--seeds", type=seeds_in, default=range(1, 101), metavar="A-B", help="of three brokers")
    parser.add_argument("--alone", type=seeds_in, default=range(1, 11), metavar="A-B", help="of one broker")
    parser.add_argument("--processes", type=int, help="at a time; as many as there are processors")
    parser.add_argument("--write", action="store_true", help=f"the counts to docs/{PAGE.name}")
    parser.add_argument("--refresh", action="store_true", help="bring the page up to the code, and count nothing")
    return parser.parse_args(arguments)


def counted(taken: Iterable[Taken]) -> dict[Decision, Counts]:
    """Counts the runs with each outcome, and prints a line for each run."""
    no: Counter[Decision] = Counter()
    yes: Counter[Decision] = Counter()
    both: Counter[Decision] = Counter()
    for one in taken:
        print(one.line, flush=True)
        no.update(decision for decision, outcomes in one.outcomes.items() if outcomes.no)
        yes.update(decision for decision, outcomes in one.outcomes.items() if outcomes.yes)
        both.update(decision for decision, outcomes in one.outcomes.items() if all(outcomes))
    listed = (decision for part in listed_decisions().values() for of_file in part.values() for decision in of_file)
    return {decision: Counts(no[decision], yes[decision], both[decision]) for decision in listed}


def _print_open(counts: dict[Decision, Counts]) -> int:
    still_open = [
        (decision, each) for decision, each in counts.items() if each.is_one_sided and reason_of(decision) == OPEN
    ]
    for decision, each in still_open:
        print(f"no {each.no}, yes {each.yes}: {decision.module} {decision.function}: {decision.text}")
    print(f"{len(counts)} decisions; {len(still_open)} were taken in one way only, or never, for no known reason")
    return 1 if still_open else 0


if __name__ == "__main__":
    sys.exit(main())
