"""The script on Apache Kafka 3.9 and on ours as that release, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.beside_kafka.control import apache_node
from tests.clients.kafka_tools.comparable import comparable
from tests.clients.kafka_tools.script import Script
from tests.spawned_broker import spawned_broker

SETTINGS = {
    "broker.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@dataclass(slots=True)
class Stage:
    """The script on one broker; `failure` is the error that ended it early."""

    script: Script
    failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.script.run()
        except BaseException as failure:
            self.failure = failure

    def output_of(self, sentence: str) -> str:
        """The output of a step, made comparable."""
        if sentence not in self.script.outputs:
            raise AssertionError(f"{self.script.bootstrap} never came to: {sentence}") from self.failure
        return comparable(sentence, self.script.outputs[sentence])


@contextmanager
def ours(directory: Path) -> Iterator[Script]:
    with spawned_broker(directory / "data", SETTINGS | {"odradek.as.version": "3.9"}) as broker:
        yield Script(broker.bootstrap, directory / "data", [])


def run_both(tools: list[str], control: list[str], directory: Path) -> tuple[Stage, Stage]:
    """Runs both; returns Apache Kafka's stage and ours after the last step."""
    apache = directory / "kafka"
    with apache_node(control, apache, SETTINGS) as port, ours(directory / "ours") as own:
        stages = (Stage(Script(f"127.0.0.1:{port}", apache / "data", [])), Stage(own))
        for stage in stages:
            stage.script.tools = tools
        threads = [threading.Thread(target=stage.run) for stage in stages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return stages
