"""The script on Apache Kafka and on ours, at the same time."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.clients.kafka_tools.comparable import comparable
from tests.clients.kafka_tools.script import Script
from tests.spawned_broker import free_port_beside_another, spawned_broker

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
def kafka(control: list[str], directory: Path) -> Iterator[Script]:
    """A node of Apache Kafka; `control` starts and stops it."""
    port = free_port_beside_another()
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    try:
        start = [*control, "start", str(port), str(directory), *settings]
        subprocess.run(start, check=True, timeout=120, stdin=subprocess.DEVNULL)
        yield Script(f"127.0.0.1:{port}", directory / "data", [])
    finally:
        subprocess.run([*control, "stop", str(directory)], check=False, timeout=60)


@contextmanager
def ours(directory: Path) -> Iterator[Script]:
    with spawned_broker(directory / "data", SETTINGS) as broker:
        yield Script(broker.bootstrap, directory / "data", [])


def run_both(tools: list[str], control: list[str], directory: Path) -> tuple[Stage, Stage]:
    """Runs both; returns Apache Kafka's stage and ours after the last step."""
    with kafka(control, directory / "kafka") as theirs, ours(directory / "ours") as own:
        stages = (Stage(theirs), Stage(own))
        for stage in stages:
            stage.script.tools = tools
        threads = [threading.Thread(target=stage.run) for stage in stages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return stages
