"""Released brokers of Apache Kafka, each with a ZooKeeper, as processes of Java.

Their jars come from Maven Central at the first use, and are kept in $RELEASED_BROKERS_HOME (~/.cache/released-brokers).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.patience import block_until
from tests.spawned_broker import free_port

VERSIONS = {"1.0": "1.0.2", "2.0": "2.0.1", "2.8": "2.8.2"}
"""The last version of each release."""
HOME = Path(os.environ.get("RELEASED_BROKERS_HOME", Path.home() / ".cache" / "released-brokers"))
HERE = Path(__file__).parent
JVM = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false"]
ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
DOWNLOAD_TIMEOUT_S = 600
TOOL_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ReleasedBroker:
    bootstrap: str
    zookeeper: str
    java: list[str]
    """The command before the name of a class of this release."""

    def run(self, name: str, *arguments: str, stdin: bytes = b"") -> str:
        """Returns what a program of this release prints; it must end with 0."""
        done = subprocess.run(
            [*self.java, name, *arguments], input=stdin, capture_output=True, timeout=TOOL_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{name}: {done.stderr.decode(errors='replace')[-2000:]}"
        return done.stdout.decode()


def lacking() -> str:
    """Why released brokers cannot run here, or nothing."""
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not on this machine" if missing else ""


@contextlib.contextmanager
def released_broker(release: str, directory: Path, settings: Mapping[str, str]) -> Iterator[ReleasedBroker]:
    """A new broker of one of VERSIONS, with data in `directory`; it answers when it is yielded."""
    directory.mkdir(parents=True)
    logging = directory / "log4j.properties"
    _write(
        logging,
        {
            "log4j.rootLogger": "WARN, stderr",
            "log4j.appender.stderr": "org.apache.log4j.ConsoleAppender",
            "log4j.appender.stderr.target": "System.err",
            "log4j.appender.stderr.layout": "org.apache.log4j.SimpleLayout",
        },
    )
    java = [*JVM, f"-Dlog4j.configuration=file:{logging}", "-cp", f"{_installed(VERSIONS[release])}/*"]
    zookeeper_port, port = free_port(), free_port()
    zookeeper, address = f"127.0.0.1:{zookeeper_port}", f"127.0.0.1:{port}"
    _write(
        directory / "zoo.cfg",
        {"clientPort": str(zookeeper_port), "clientPortAddress": "127.0.0.1", "dataDir": str(directory / "zookeeper")},
    )
    own = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{address}",
        "zookeeper.connect": zookeeper,
        "log.dirs": str(directory / "data"),
    }
    _write(directory / "server.properties", {**settings, **own})
    with (
        _process([*java, ZOOKEEPER, str(directory / "zoo.cfg")], zookeeper_port, directory / "zookeeper.log"),
        _process([*java, "kafka.Kafka", str(directory / "server.properties")], port, directory / "broker.log"),
    ):
        yield ReleasedBroker(address, zookeeper, java)


def _installed(version: str) -> Path:
    """The folder with all jars of a version."""
    libs = HOME / version
    if not libs.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=HOME) as new:
            pom = shutil.copy(HERE / "pom.xml", new)
            command = ["mvn", "-q", "-B", "-f", pom, f"-Dkafka.version={version}", "dependency:copy-dependencies"]
            target = Path(new) / "libs"
            subprocess.run([*command, f"-DoutputDirectory={target}"], check=True, timeout=DOWNLOAD_TIMEOUT_S)
            target.rename(libs)
    return libs


def _write(file: Path, lines: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))


@contextlib.contextmanager
def _process(command: list[str], port: int, log: Path) -> Iterator[None]:
    """Runs a server until the end of the context; it listens on `port`."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        block_until(lambda: _listens(port) or _has_ended(process, log))
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _has_ended(process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        raise RuntimeError(log.read_text()[-3000:])
    return False
