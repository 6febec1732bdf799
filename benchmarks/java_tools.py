"""Java programs that load a broker: Kafka's own through $KAFKA_TOOLS, and the probe in benchmarks/java."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.kafka_versions import environment_of, kafka_version, version_with_zookeeper

ROOT = Path(__file__).resolve().parent.parent
JAVA = ROOT / "benchmarks" / "java"
BUILD = ROOT / ".benchmarks"
PRODUCED = re.compile(
    r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, .*99\.9th", re.MULTILINE
)
TOOL_TIMEOUT_S = 600


class Produced(NamedTuple):
    """ProducerPerformance's last line. A megabyte has 1024 * 1024 bytes."""

    records: int
    records_per_second: float
    megabytes_per_second: float
    average_latency_ms: float


class Unavailable(Exception):
    """A program is missing; the message names it and how to provide it."""


def kafka_tool() -> list[str]:
    """Returns the command prefix for a class of Kafka's tools. Raises Unavailable."""
    prefix = shlex.split(os.environ.get("KAFKA_TOOLS", ""))
    if not prefix:
        raise Unavailable("KAFKA_TOOLS, the command that runs a class of Kafka's tools, is not set")
    return prefix


def produce(
    bootstrap: str, topic: str, records: int, record_bytes: int, settings: list[str], config: Path | None = None
) -> Produced:
    """Runs ProducerPerformance at full speed. `config`: a file of properties, which secures the connections."""
    command = [
        *kafka_tool(),
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}", *settings),
        *(() if config is None else ("--producer.config", str(config))),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment_of(kafka_version()),
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    found = PRODUCED.search(done.stdout)
    if done.returncode or found is None or int(found[1]) != records:
        raise RuntimeError(f"ProducerPerformance failed: {done.stdout[-500:]} {done.stderr[-500:]}")
    return Produced(int(found[1]), float(found[2]), float(found[3]), float(found[4]))


def probe(
    *arguments: str, when_measuring: Callable[[], None], program: str = "Probe", config: Path | None = None
) -> dict[str, Any]:
    """Runs one of the probes; calls `when_measuring` after its warm-up. Returns its last line. `config`: a file of
    properties for the probe's clients.
    """
    secured = [] if config is None else [f"-Dclient.config={config}"]
    command = ["java", "-Xms512m", "-Xmx512m", *secured, "-cp", class_path(), f"odradek.{program}", *arguments]
    result: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith('{"measuring"'):
                when_measuring()
            elif line.startswith("{"):
                result = json.loads(line)
        errors = process.stderr.read()
    if process.returncode or not result:
        raise RuntimeError(f"the probe failed: {errors[-1000:]}")
    return result


def class_path() -> str:
    """Returns the class path of the probes, on Kafka's Java client; builds them if they are outdated. Raises
    Unavailable.
    """
    directory = BUILD / f"java-{kafka_version()}"
    sources = (JAVA / "src" / "main" / "java" / "odradek").glob("*.java")
    if not all(_is_built(source, directory) for source in sources):
        _maven("pom.xml", kafka_version(), directory, "compile", "dependency:copy-dependencies")
    return f"{directory / 'classes'}:{directory / 'libs'}/*"


def class_path_of_purgatory() -> str:
    """Returns the class path of Kafka's TestPurgatoryPerformance. Raises Unavailable."""
    directory = BUILD / f"java-purgatory-{version_with_zookeeper()}"
    if not directory.exists():
        _maven("purgatory.xml", version_with_zookeeper(), directory, "dependency:copy-dependencies")
    return f"{directory / 'libs'}/*"


def _maven(pom: str, version: str, directory: Path, *goals: str) -> None:
    """Runs `goals`; classes and libraries go to `directory`. Raises Unavailable."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        raise Unavailable("the Java programs need java and mvn (a JDK and Maven)")
    properties = [f"-Dkafka.version={version}", f"-Dbuild={directory}", f"-DoutputDirectory={directory / 'libs'}"]
    command = ["mvn", "-q", "-B", "-f", str(JAVA / pom), *goals, *properties]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    if done.returncode:
        shutil.rmtree(directory, ignore_errors=True)
        raise Unavailable(f"the Java programs cannot be built: {done.stdout[-500:]}")


def _is_built(source: Path, directory: Path) -> bool:
    built = directory / "classes" / "odradek" / f"{source.stem}.class"
    return built.exists() and built.stat().st_mtime >= source.stat().st_mtime
