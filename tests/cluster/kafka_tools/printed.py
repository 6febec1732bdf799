"""Where two runs of the same tools have printed something else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.cluster.kafka_tools.stage import Step


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
