"""Requests to both brokers: each case is a function that runs in each version of its API.

`differences_of` runs one case against both and returns where the answers differ without a known reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from odradek.clients.recording.comparison import differences
from odradek.protocol.api_keys import ApiKey
from tests.scenarios.same_as_kafka.known import KNOWN, Known, is_a_kinder_text
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


class Comparison(NamedTuple):
    """The unexplained differences, the known ones that occurred, and the APIs and versions that were asked."""

    unexplained: list[str]
    met: set[Known]
    asked: set[tuple[ApiKey, int]]


def differences_of(case: Case, version: int, prefix: str, kafka: str, ours: str) -> Comparison:
    """`kafka` and `ours` are addresses."""
    theirs, own = (_run(case, version, prefix, bootstrap) for bootstrap in (kafka, ours))
    expected, found = theirs.transcript, own.transcript
    unexplained: list[str] = []
    met: set[Known] = set()
    if [label for label, _ in expected] != [label for label, _ in found]:
        unexplained.append("the two brokers did not get the same requests")
    for number, ((label, one), (_, other)) in enumerate(zip(expected, found, strict=False)):
        for path, kafkas, our in differences(one, other):
            where = label + path
            reasons = {known for known in KNOWN if known.explains(case.name, where)}
            met |= reasons
            if not reasons and not is_a_kinder_text(where, kafkas, our):
                unexplained.append(f"{number} {where}: Kafka {_shown(kafkas)}, ours {_shown(our)}")
    return Comparison(unexplained, met, own.asked)


def _run(case: Case, version: int, prefix: str, bootstrap: str) -> Peer:
    peer = Peer(bootstrap, prefix, version)
    try:
        case.run(peer)
    finally:
        peer.close()
    return peer


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
