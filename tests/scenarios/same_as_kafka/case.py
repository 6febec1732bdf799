"""Requests to both brokers: each case is a function that runs in each version of its API.

`differences_of` runs one case against both and returns where the answers differ without a known reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.known import Comparison
from tests.scenarios.same_as_kafka.known import KNOWN, is_a_kinder_text
from tests.scenarios.same_as_kafka.peer import Peer


class Case(NamedTuple):
    name: str
    versions: tuple[int, ...]
    run: Callable[[Peer], None]


class Cases(list[Case]):
    """A table of cases that is filled by decorating functions."""

    def of(self, versions: Iterable[int]) -> Callable[[Callable[[Peer], None]], Callable[[Peer], None]]:
        def add(run: Callable[[Peer], None]) -> Callable[[Peer], None]:
            self.append(Case(run.__name__, tuple(versions), run))
            return run

        return add


def differences_of(
    case: Case, version: int, prefix: str, kafka: str, ours: str
) -> tuple[Comparison, set[tuple[ApiKey, int]]]:
    """The comparison, and the APIs and versions that were asked. `kafka` and `ours` are addresses."""
    theirs, own = (_run(case, version, prefix, bootstrap) for bootstrap in (kafka, ours))
    expected, found = theirs.transcript, own.transcript
    comparison = Comparison(KNOWN, is_a_kinder_text)
    if [label for label, _ in expected] != [label for label, _ in found]:
        comparison.unexplained.append("the two brokers did not get the same requests")
    for number, ((label, one), (_, other)) in enumerate(zip(expected, found, strict=False)):
        comparison.compare(case.name, label, one, other, str(number))
    return comparison, own.asked


def _run(case: Case, version: int, prefix: str, bootstrap: str) -> Peer:
    peer = Peer(bootstrap, prefix, version)
    try:
        case.run(peer)
    finally:
        peer.close()
    return peer
