"""One node on which the tools of Kafka 4.4 run step by step, and what each step has printed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from odradek.testing import BrokerThread
from tests.beside_kafka.control import apache_node
from tests.beside_kafka.printed import Step
from tests.beside_kafka.recordings import VECTORS
from tests.cluster.kafka_tools.java_tools import JavaTools, java_tools
from tests.cluster.kafka_tools.stage import NOT_PRINTED_BY_THE_TOOL, REPLACEMENTS

RELEASE = "4.4.0"
RECORDING = VECTORS / "tools" / "node.json"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "node.id": "1",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
FEATURES, CONFIGS = "org.apache.kafka.tools.FeatureCommand", "org.apache.kafka.tools.ConfigCommand"
NOT_BUILT = ("share.version", "streams.version", "eligible.leader.replicas.version")
"""Kafka's features that are off in the comparison."""
MASKS = (
    *REPLACEMENTS,
    (r"console-consumer-\d+", "console-consumer-N"),
    (r"(?<![\w/+-])(?!\w*Exception\b|[A-Z_]{22})[\w/+-]{22}(?![\w/+-])", "ID"),
    (r"crc: \d+", "crc: CRC"),
    (r"(Valid (states|types) are: ).*", r"\1SOME"),
    (r"\d+(\.\d+)? (records|ms|MB)/sec", "RATE"),
    (r"\d+\.\d+ ms", "TIME"),
)


class Stage:
    """`steps` has what each step has printed, by its sentence."""

    def __init__(self, port: int, data: Path, tools: JavaTools, directory: Path) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.data = data
        self.steps: dict[str, Step] = {}
        self._port = port
        self._tools = tools
        self._directory = directory

    def step(
        self,
        sentence: str,
        name: str,
        *arguments: str,
        at: str | None = "--bootstrap-server",
        until: str | None = None,
        given: str = "",
        in_any_order: bool = False,
        mask: Mapping[str, str] | None = None,
    ) -> None:
        """Runs the tool of the main class `name`. `at`: the option that takes the node's address, if it comes first.
        `given`: what it reads. `mask`: replacements by pattern, of what differs from run to run.
        """
        assert sentence not in self.steps, sentence
        where = (at, self.bootstrap) if at else ()
        printed = self._tools.run(name, *where, *arguments, until=until, given=given)
        out, err = (
            [
                self._masked(line, mask or {})
                for line in text.replace('}{"key"', '}\n{"key"').splitlines()
                if not NOT_PRINTED_BY_THE_TOOL.match(line)
            ]
            for text in (printed.out, printed.err)
        )
        if in_any_order:
            out.sort()
        command = [self._masked(word, {}) for word in (name, *arguments)]
        self.steps[sentence] = Step(command=command, status=printed.status, out=out, err=err)

    def file(self, name: str, content: str) -> str:
        """Returns the path of a file with the content."""
        path = self._directory / name
        path.write_text(content)
        return str(path)

    def _masked(self, line: str, mask: Mapping[str, str]) -> str:
        line = line.replace(str(self.data), "DATA").replace(str(self._directory), "HERE")
        line = re.sub(rf"\b{self._port}\b", "PORT", line)
        line = re.sub(r"[ \t]+", " ", line).strip()
        for pattern, replacement in (*MASKS, *mask.items()):
            line = re.sub(pattern, replacement, line)
        return line


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[tuple[int, Path]]:
    """Yields the port and the data of a node of ours."""
    data = directory / "ours"
    with BrokerThread(SETTINGS, data_dir=data) as broker:
        yield int(broker.bootstrap.rpartition(":")[2]), data


@contextlib.contextmanager
def apaches(control: Sequence[str], directory: Path) -> Iterator[tuple[int, Path]]:
    """Yields those of one of Apache Kafka, with the features that both have, and without the setting that one of the
    others has left behind.
    """
    place = directory / "apache"
    with apache_node(control, place, SETTINGS, release=RELEASE) as port:
        off = [word for name in NOT_BUILT for word in ("--feature", f"{name}=0")]
        of_all = ("--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "min.insync.replicas")
        with java_tools([*control, "tool"], directory / "features-log") as jvm:
            for tool, *arguments in ((FEATURES, "downgrade", *off), (CONFIGS, *of_all)):
                done = jvm.run(tool, "--bootstrap-server", f"127.0.0.1:{port}", *arguments)
                assert done.status == 0, done
        yield port, place / "data"
