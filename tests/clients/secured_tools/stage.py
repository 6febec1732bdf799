"""A broker with ACLs on which Kafka's tools run step by step, and what each step has printed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from odradek.testing import BrokerThread
from tests.beside_kafka.control import apache_broker
from tests.beside_kafka.printed import Step
from tests.beside_kafka.recordings import VECTORS
from tests.broker.authorization.stage import PLAIN_MODULE, SCRAM_MODULE, SETTINGS
from tests.cluster.kafka_tools.java_tools import JavaTools
from tests.cluster.kafka_tools.stage import NOT_PRINTED_BY_THE_TOOL, REPLACEMENTS

RECORDING = VECTORS / "tools" / "secured.json"
NONE_RESERVED = {"num.partitions": "1", "offsets.retention.check.interval.ms": "600000"}
OF_ALL = {**SETTINGS, **NONE_RESERVED}
MECHANISMS = {"scram": ("SCRAM-SHA-256", SCRAM_MODULE), "plain": ("PLAIN", PLAIN_MODULE)}
OF_THE_REQUEST = (r"Request Request\(.*\) is not", "Request is not")
"""What Java prints of one."""
BLOCK = re.compile(r"(Current ACLs|Adding ACLs|Are you sure)")


class Stage:
    """`steps` has what each step has printed, by its sentence."""

    def __init__(self, port: int, tools: JavaTools, directory: Path) -> None:
        self.bootstrap = f"127.0.0.1:{port}"
        self.steps: dict[str, Step] = {}
        self._tools = tools
        self._directory = directory
        self._port = port

    def login(self, user: str, password: str | None = None, mechanism: str = "plain") -> str:
        """The path of a client's settings."""
        secret = f"{user}-secret" if password is None else password
        name, module = MECHANISMS[mechanism]
        lines = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": name,
            "sasl.jaas.config": f'{module} required username="{user}" password="{secret}";',
        }
        path = self._directory / f"{user}-{mechanism}{'' if password is None else '-wrong'}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return str(path)

    def step(
        self,
        sentence: str,
        name: str,
        *arguments: str,
        user: str = "admin",
        password: str | None = None,
        mechanism: str = "plain",
        settings: str = "--command-config",
        until: str | None = None,
        given: str = "",
    ) -> None:
        """Runs the tool of the main class `name` as a user. `settings`: its option for the client's settings."""
        assert sentence not in self.steps, sentence
        where = ("--bootstrap-server", self.bootstrap, settings, self.login(user, password, mechanism))
        printed = self._tools.run(name, *where, *arguments, until=until, given=given)
        out, err = (self._comparable(text) for text in (printed.out, printed.err))
        self.steps[sentence] = Step(command=[name, f"as {user}", *arguments], status=printed.status, out=out, err=err)

    def _comparable(self, text: str) -> list[str]:
        lines = [self._masked(line) for line in text.splitlines() if not NOT_PRINTED_BY_THE_TOOL.match(line)]
        return ordered(lines)

    def _masked(self, line: str) -> str:
        line = line.replace(str(self._directory), "HERE")
        line = re.sub(rf"\b{self._port}\b", "PORT", line)
        line = re.sub(r"[ \t]+", " ", line).strip()
        for pattern, replacement in (*REPLACEMENTS, OF_THE_REQUEST):
            line = re.sub(pattern, replacement, line)
        return line


def ordered(lines: Sequence[str]) -> list[str]:
    """The lines with the ACLs of each resource sorted, and the resources: the tool has them in sets."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if BLOCK.match(line):
            blocks.append([])
        blocks[-1].append(line)
    return [line for block in (blocks[0], *sorted([one[0], *sorted(one[1:])] for one in blocks[1:])) for line in block]


@contextlib.contextmanager
def ours() -> Iterator[int]:
    """Yields the port of a broker of ours, as Kafka 3.9."""
    with BrokerThread({**OF_ALL, "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "odradek.as.version": "3.9"}) as broker:
        yield int(broker.bootstrap.rpartition(":")[2])


def apaches(control: Sequence[str], zookeeper: str, directory: Path) -> AbstractContextManager[int]:
    """Yields the port of one of Apache Kafka."""
    return apache_broker(
        control, zookeeper, directory, OF_ALL, protocol="SASL_PLAINTEXT", broker_id=OF_ALL["broker.id"]
    )
