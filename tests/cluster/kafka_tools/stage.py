"""A cluster of three brokers on which Kafka's tools run step by step, and what each step has printed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import confluent_kafka

from odradek.protocol.messages.configs import DescribeConfigsRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.beside_kafka.printed import Step
from tests.beside_kafka.recordings import VECTORS
from tests.cluster.cluster import SETTINGS as OF_ALL_CLUSTERS
from tests.cluster.cluster import Cluster, Leadership, View
from tests.cluster.kafka_tools.java_tools import JavaTools, Printed
from tests.patience import block_until
from tests.wire.blocking_client import Client

SESSION_TIMEOUT_MS = 6000
SETTINGS = {
    **OF_ALL_CLUSTERS,
    "inter.broker.protocol.version": "3.0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "log.cleaner.dedupe.buffer.size": "10485760",
}
"""The buffer: each changed setting of the cleaner takes another one of Apache's small heap."""
TOPIC, BROKER = 2, 4
"""Kinds of resources that have settings."""
OWN_SOURCES = {(TOPIC, True): 1, (BROKER, True): 2, (BROKER, False): 3}
"""What DescribeConfigs calls a value of the resource itself; a broker without a name is the default of all."""
RECORDING = VECTORS / "tools" / "cluster.json"
FIRST_TIMESTAMP = 4_000_000_000_000
"""2096-10-02T07:06:40: no retention deletes the records."""
NOT_PRINTED_BY_THE_TOOL = re.compile(
    r"\s+at |\s*\.\.\. \d+ more|$|\[\d{4}-\d\d-\d\d |.*\(org\.apache\.kafka\.[\w.]+\)$"
)
"""Stack traces and what the clients log."""
REPLACEMENTS = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([:,.]\d{3})?", "TIME"),
    (r"\b1[6-9]\d{11}\b", "TIME"),
    (r"(TopicId: |Cluster ID: )[\w-]{22}", r"\1ID"),
    (r"(zookeeper\.connect=)[^\s,}]+", r"\1ADDRESS"),
)


class Stage:
    """`steps` has what each step has printed, by its sentence."""

    def __init__(self, cluster: Cluster, tools: JavaTools, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.steps: dict[str, Step] = {}
        self._tools = tools

    def step(
        self,
        sentence: str,
        name: str,
        *arguments: str,
        at: str | None = "--bootstrap-server",
        until: str | None = None,
        in_any_order: bool = False,
        mask: Mapping[str, str] | None = None,
    ) -> None:
        """Runs the tool of the main class `name`. `at`: the option that takes the addresses of the brokers that run,
        if it comes first.
        `mask`: replacements by pattern, of what differs from run to run. `in_any_order`: lines are sorted.
        """
        assert sentence not in self.steps, sentence
        where = (at, self.bootstrap) if at else ()
        printed = self._tools.run(name, *where, *arguments, until=until)
        self.steps[sentence] = self._comparable(
            (name, *arguments), printed, mask or {}, sorted if in_any_order else list
        )

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers that run."""
        return ",".join(self.cluster.nodes[broker_id].address for broker_id in self.cluster.running)

    def _comparable(
        self,
        command: tuple[str, ...],
        printed: Printed,
        mask: Mapping[str, str],
        order: Callable[[list[str]], list[str]],
    ) -> Step:
        out, err = (
            order([self._masked(line, mask) for line in text.splitlines() if not NOT_PRINTED_BY_THE_TOOL.match(line)])
            for text in (printed.out, printed.err)
        )
        return Step(command=[self._masked(word, {}) for word in command], status=printed.status, out=out, err=err)

    def _masked(self, line: str, mask: Mapping[str, str]) -> str:
        for broker_id, node in self.cluster.nodes.items():
            line = line.replace(str(node.data), f"DIRECTORY-{broker_id}")
            host, _, port = node.address.partition(":")
            line = re.sub(rf"\b{re.escape(host)}(:| )\s*{port}\b", rf"HOST\g<1>PORT-{broker_id}", line)
        line = line.replace(str(self.directory), "HERE")
        line = re.sub(r"[ \t]+", " ", line).strip()
        for pattern, replacement in (*REPLACEMENTS, *mask.items()):
            line = re.sub(pattern, replacement, line)
        return line

    def file(self, name: str, content: object) -> str:
        """The path of a JSON file, or one of lines of text."""
        path = self.directory / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def until_created(self, topic: str, partitions: int) -> None:
        """Waits until all brokers know so many partitions of a topic, each with a leader."""

        def is_there(view: View) -> bool:
            found = [state for key, state in view.partitions.items() if key.topic == topic]
            return len(found) == partitions and all(state.leader in state.isr for state in found)

        self.cluster.until(is_there)

    def until_isr(self, topic: str, partition: int, *brokers: int) -> None:
        """Waits until all brokers know that these are in sync."""
        self.until_partition(topic, partition, lambda state: state.isr == frozenset(brokers))

    def until_partition(self, topic: str, partition: int, condition: Callable[[Leadership], bool]) -> None:
        """Waits until all brokers know the partition in such a state."""
        key = TopicPartition(topic, partition)
        self.cluster.until(lambda view: key in view.partitions and condition(view.partitions[key]))

    def until_configured(self, kind: int, name: str, **settings: str | None) -> None:
        """Waits until all brokers that have the settings of a resource have these. `__` stands for the dot, None for
        a setting that has its default.
        """
        wanted = {key.replace("__", "."): value for key, value in settings.items()}

        def is_so(found: Mapping[str, str | None]) -> bool:
            return {key: found.get(key) for key in wanted} == wanted

        self._until_settings(kind, name, is_so)

    def until_listed(self, kind: int, name: str, *settings: str) -> None:
        """Waits until the brokers show these settings of a resource, perhaps without their values."""
        self._until_settings(kind, name, lambda found: found.keys() >= set(settings))

    def _until_settings(self, kind: int, name: str, condition: Callable[[Mapping[str, str | None]], bool]) -> None:
        for broker_id in self.cluster.running if kind == TOPIC or not name else [int(name)]:
            with Client(self.cluster.nodes[broker_id].address) as connection:
                block_until(lambda: condition(own_settings(connection, kind, name)))

    def write(self, topic: str, partition: int, count: int) -> None:
        """Writes so many records, each in a batch of its own."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 0})
        for number in range(count):
            producer.produce(
                topic, f"value {number}", f"key {number}", partition=partition, timestamp=FIRST_TIMESTAMP + number
            )
            assert producer.flush(30) == 0


def own_settings(connection: Client, kind: int, name: str) -> dict[str, str | None]:
    """The settings that a resource has dynamically and itself."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
    (answer,) = connection.ask(DescribeConfigsRequest(resources=[resource])).results
    own = OWN_SOURCES[kind, bool(name)]
    return {config.name: config.value for config in answer.configs if config.config_source == own}
