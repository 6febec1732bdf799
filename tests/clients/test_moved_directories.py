"""Kafka's tools move replicas between the log directories of a broker, and print what they print with Apache Kafka.

The other administration: tests/cluster/kafka_tools and secured_tools.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.beside_kafka.control import apache_node
from tests.spawned_broker import spawned_broker

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
SETTINGS = {"broker.id": "1", "num.partitions": "1"}
STEPS = (
    "move replicas to other directories",
    "verify the moves",
    "describe the directories",
    "move a replica to a directory that is not there",
)

pytestmark = pytest.mark.timeout(400)


class Script:
    """The steps on one broker; `outputs` is what each printed, made comparable."""

    def __init__(self, tools: list[str], bootstrap: str, directory: Path) -> None:
        self.tools = tools
        self.bootstrap = bootstrap
        self.directory = directory
        self.outputs: dict[str, str] = {}

    def tool(self, name: str, *arguments: str) -> str:
        command = [*self.tools, name, "--bootstrap-server", self.bootstrap, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        return self.comparable(f"{ended.stdout}{ended.stderr}")

    def comparable(self, text: str) -> str:
        """Removes log lines, stack traces, paths and the broker's own messages."""
        lines = [line for line in text.splitlines() if not re.match(r"\s+at |\[\d{4}-|SLF4J|log4j", line)]
        text = "\n".join(map(_in_order, lines)).replace(str(self.directory), "DIR").replace(self.bootstrap, "HOST:PORT")
        return re.sub(r"((?:Exception|ReplicaAssignment\w*): ).*", r"\1TEXT", text)

    def step(self, sentence: str, name: str, *arguments: str) -> None:
        self.outputs[sentence] = self.tool(name, *arguments)

    def file(self, name: str, content: object) -> str:
        path = self.directory / name
        path.write_text(json.dumps(content))
        return str(path)

    def run(self) -> None:
        self.tool(TOPICS, "--create", "--topic", "t", "--partitions", "2")
        self.directories()

    def plan(self, name: str, *partitions: tuple[int, int, str]) -> tuple[str, str]:
        """The option that names a plan of (partition, replica, directory)."""
        rows = [
            {"topic": "t", "partition": number, "replicas": [broker], "log_dirs": [log_dir]}
            for number, broker, log_dir in partitions
        ]
        return "--reassignment-json-file", self.file(name, {"version": 1, "partitions": rows})

    def directories(self) -> None:
        move, verify, describe, nowhere = STEPS
        one, two = (str(self.directory / name) for name in ("one", "two"))
        plan = self.plan("move.json", (0, 1, one), (1, 1, two))
        self.step(move, REASSIGN, "--execute", *plan)
        for _ in range(20):
            self.step(verify, REASSIGN, "--verify", *plan)
            if "is still in progress" not in self.outputs[verify]:
                break
            time.sleep(0.5)
        self.step(describe, LOG_DIRS, "--describe", "--topic-list", "t")
        self.step(nowhere, REASSIGN, "--execute", *self.plan("nowhere.json", (0, 1, "/nowhere")))


def _in_order(line: str) -> str:
    """Sorts the directories of LogDirsCommand, which are in the order of Java's hash."""
    if not line.startswith('{"brokers"'):
        return line
    described = json.loads(line)
    for broker in described["brokers"]:
        broker["logDirs"].sort(key=lambda each: each["logDir"])
    return json.dumps(described)


def with_kafka(control: list[str], tools: list[str], directory: Path) -> Script:
    directory.mkdir()
    settings = {"num.partitions": "1", "log.dirs": f"{directory / 'one'},{directory / 'two'}"}
    with apache_node(control, directory, settings) as port:
        script = Script(tools, f"127.0.0.1:{port}", directory)
        script.run()
        return script


def with_ours(tools: list[str], directory: Path) -> Script:
    directory.mkdir()
    log_dirs = Path(f"{directory / 'one'},{directory / 'two'}")
    with spawned_broker(log_dirs, SETTINGS) as broker:
        script = Script(tools, broker.bootstrap, directory)
        script.run()
        return script


@pytest.fixture(scope="module")
def scripts(
    tmp_path_factory: pytest.TempPathFactory, java_tools: list[str], kafka_control: list[str]
) -> dict[str, Script]:
    """The scripts for Kafka and for ours after the last step; they run at the same time."""
    directory = tmp_path_factory.mktemp("admin")
    found: dict[str, Script] = {}

    def run(name: str, begin: Callable[[Path], Script]) -> None:
        found[name] = begin(directory / name)

    beginnings = {"kafka": partial(with_kafka, kafka_control, java_tools), "ours": partial(with_ours, java_tools)}
    threads = [threading.Thread(target=run, args=each) for each in beginnings.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("step", STEPS)
def test_kafkas_admin_tools_print_the_same(scripts: dict[str, Script], step: str) -> None:
    assert scripts["ours"].outputs[step].splitlines() == scripts["kafka"].outputs[step].splitlines()


def test_every_step_has_printed_something(scripts: dict[str, Script]) -> None:
    assert tuple(scripts["ours"].outputs) == STEPS
    assert all(output.strip() for output in scripts["kafka"].outputs.values())
