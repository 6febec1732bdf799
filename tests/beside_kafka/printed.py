"""What Kafka's tools print, step by step, and where two runs of the same steps have printed something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from tests.beside_kafka.known import Comparison, Known


class Step(TypedDict):
    """What a tool was asked, and what it printed, made comparable."""

    command: list[str]
    status: int
    out: list[str]
    err: list[str]


def check(recorded: Mapping[str, Step], steps: Mapping[str, Step], known: Sequence[Known]) -> None:
    """Fails unless what was printed is what is recorded of Apache Kafka, but for known differences, which all occur."""
    assert list(steps) == list(recorded)
    comparison = Comparison(known)
    for sentence, line in differences(recorded, steps):
        comparison.meet(sentence, line, f"{sentence}: {line}")
    comparison.check()


def differences(wanted: Mapping[str, Step], found: Mapping[str, Step]) -> Iterator[tuple[str, str]]:
    """The steps and the lines that only one of the two has printed there, or in another order."""
    for sentence in wanted:
        one, other = lines_of(wanted[sentence]), lines_of(found[sentence])
        missing, added = Counter(one) - Counter(other), Counter(other) - Counter(one)
        yield from ((sentence, line) for line in [*missing.elements(), *added.elements()])
        if one != other and not missing and not added:
            yield sentence, "the order of lines"


def lines_of(step: Step) -> list[str]:
    return [
        f"status {step['status']}",
        f"command {' '.join(step['command'])}",
        *(f"out {line}" for line in step["out"]),
        *(f"err {line}" for line in step["err"]),
    ]
