"""Odradek, as an older release, answers as running brokers of that release do: 1.0, 2.0 and 2.8.

tests/vectors/releases has what those have said. test_recorded_releases.py compares with it, without the brokers. It is
recorded by

ODRADEK_RECORD=1 pytest --kinds=quick,releases tests/broker/releases/test_released_brokers.py    # with java and mvn
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from odradek.testing import recorded, replayed
from tests.beside_kafka.recordings import IS_RECORDING
from tests.broker.releases import workloads
from tests.broker.releases.first_words import frames_for, record_words, recorded_words, spoken
from tests.broker.releases.recorded_releases import REFUSALS, RELEASED_SETTINGS, recording_of, unexplained
from tests.broker.releases.refusals import refusals
from tests.broker.releases.released_broker import VERSIONS, ReleasedBroker, lacking, released_broker
from tests.clients import recorded_workloads
from tests.clients.members.watch import until_coordinators
from tests.spawned_broker import spawned_broker

pytestmark = [
    pytest.mark.releases,
    pytest.mark.soak("clients of three released brokers", minutes=4),
    pytest.mark.timeout(600),
]
Workload = Callable[[ReleasedBroker, str], None]
WORKLOADS: dict[str, Workload] = {
    "kafka-python": lambda _, bootstrap: recorded_workloads.kafka_python(bootstrap),
    "librdkafka": lambda _, bootstrap: recorded_workloads.librdkafka(bootstrap),
    "java": workloads.java,
    REFUSALS: lambda _, bootstrap: refusals(bootstrap),
}


@pytest.fixture(params=VERSIONS)
def release(request: pytest.FixtureRequest) -> str:
    if reason := lacking():
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture
def released(release: str, tmp_path: Path) -> Iterator[ReleasedBroker]:
    """A new broker of the release whose coordinators serve."""
    with released_broker(release, tmp_path / "released", RELEASED_SETTINGS) as broker:
        until_coordinators(broker.bootstrap)
        yield broker


def test_a_released_broker_says_at_first_what_is_recorded(release: str, released: ReleasedBroker) -> None:
    words = list(spoken(released.bootstrap, frames_for(release)))
    if IS_RECORDING:
        record_words(release, words)
    assert words == recorded_words(release)


@pytest.mark.parametrize("client", WORKLOADS)
def test_a_client_gets_the_answers_of_the_released_broker(
    release: str, client: str, released: ReleasedBroker, tmp_path: Path
) -> None:
    file = tmp_path / "client.rec"
    with recorded(released.bootstrap, file) as proxy:
        WORKLOADS[client](released, proxy)
    settings = {**RELEASED_SETTINGS, "odradek.as.version": release}
    with spawned_broker(tmp_path / "data", settings) as broker:
        until_coordinators(broker.bootstrap)
        differences = replayed(file, broker.bootstrap)
    if IS_RECORDING:
        shutil.copyfile(file, recording_of(release, client))
    assert not unexplained(release, client, differences), "\n".join(unexplained(release, client, differences))
