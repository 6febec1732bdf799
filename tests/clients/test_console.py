"""Tests of services in Java and Go read the console's JSON: what waits, the lag of a group, a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.clients.program_clients import run
from tests.spawned_broker import spawned_broker

SHOWN = [
    "the fetch of orders waits, and not too long: true",
    "members 1, billing-1",
    'Ongoing ["invoices-0"]',
    "CompleteCommit []",
]


class Watched(NamedTuple):
    bootstrap: str
    console_url: str


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with spawned_broker(tmp_path, settings, with_metrics=True) as broker:
        assert broker.metrics_url is not None
        yield Watched(broker.bootstrap, broker.metrics_url.removesuffix("/metrics"))


@pytest.mark.timeout(300)
def test_a_java_test_sees_what_its_service_does(java_programs: list[str], watched: Watched) -> None:
    assert run([*java_programs, "odradek.Watched", *watched]).decode().splitlines() == SHOWN


@pytest.mark.timeout(300)
def test_a_go_test_sees_what_its_service_does(franz_go: Path, watched: Watched) -> None:
    assert run([str(franz_go), "watched", *watched]).decode().splitlines() == SHOWN
