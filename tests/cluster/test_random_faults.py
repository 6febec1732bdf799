"""Random faults of any brokers, also of several at once, under a producer: from a seed that a failure prints."""

from __future__ import annotations

import random
import time

import pytest

from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import Cluster
from tests.cluster.writer import Writer
from tests.soak import SOAK, rounds

TOPIC, PARTITIONS = "numbers", 4
STEPS = rounds(12, in_soak=250)
IMPATIENT = {"request.timeout.ms": 4000, "socket.timeout.ms": 5000}

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


class Faults:
    """One fault after the other. A broker that is down or stopped comes back after a while.

    A broker is not terminated while another one is away. As Kafka's do, it knows only the last batch of each producer
    when it starts after a clean stop; a producer whose earlier batches nobody has acknowledged fails then.
    """

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.history: list[str] = []

    def step(self) -> None:
        """A fault of a broker that is up, or the return of one that is not."""
        broker_id = self.chance.choice(list(self.cluster.nodes))
        if broker_id in self.cluster.stopped:
            self._do(self.chance.choice(["go_on", "go_on", "kill"]), broker_id)
        elif broker_id not in self.cluster.running:
            self._do("launch", broker_id)
        elif len(self.cluster.running) == len(self.cluster.nodes):
            self._do(self.chance.choice(["kill", "kill", "stop", "stop", "terminate"]), broker_id)
        else:
            self._do(self.chance.choice(["kill", "stop"]), broker_id)
        time.sleep(self.chance.uniform(0, self.cluster.session_timeout_ms / 1000))

    def end(self) -> None:
        """All brokers come back."""
        for broker_id in self.cluster.nodes:
            if broker_id in self.cluster.stopped:
                self._do("go_on", broker_id)
            elif broker_id not in self.cluster.running:
                self._do("launch", broker_id)
        self.cluster.until_whole()

    def _do(self, what: str, broker_id: int) -> None:
        self.history.append(f"{what} {broker_id}")
        getattr(self.cluster, what)(broker_id)


@pytest.mark.soak("250 random faults under a producer", minutes=15)
def test_no_record_is_lost_doubled_or_reordered_by_random_faults(cluster: Cluster, dump_tool: list[str]) -> None:
    seed = random.SystemRandom().randrange(1 << 32) if SOAK else 18
    print(f"seed {seed}")
    cluster.create_topic(TOPIC, PARTITIONS)
    faults = Faults(cluster, random.Random(seed))
    writer = Writer(cluster.bootstrap, TOPIC, PARTITIONS, settings=IMPATIENT)
    try:
        writer.until_acknowledged()
        for number in range(STEPS):
            faults.step()
            if number % 6 == 5:
                faults.end()
                writer.until_acknowledged()
        faults.end()
    finally:
        print(faults.history)
        writer.finish()
    cluster.until_whole()
    writer.assert_written_once_and_in_order(cluster.bootstrap)
    assert_replicas_agree(cluster, dump_tool)
