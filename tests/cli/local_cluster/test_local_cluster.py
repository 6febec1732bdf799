"""`make cluster`: a ZooKeeper and brokers as processes, started and ended in order."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
from pathlib import Path

import pytest

from odradek.broker.metadata.new_topic import NewTopic
from odradek.cli.local_cluster.processes import RunningProcess
from odradek.cli.local_cluster.zookeeper_server import NoZooKeeper, write_configuration, zookeeper_command
from odradek.clients.admin.client import AdminClient
from tests.patience import until
from tests.spawned_broker import free_port

MODEL = f"{shlex.quote(sys.executable)} -m tests.zookeeper.model_server"


class Launched:
    """The program, with ports of its own."""

    def __init__(self, directory: Path, zookeeper: str, brokers: int) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.brokers = brokers
        self.zookeeper_port = free_port()
        self.port = _free_ports(brokers)

    async def start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "odradek.cli.local_cluster", "--brokers", str(self.brokers), "--port", str(self.port)),
            *("--zookeeper-port", str(self.zookeeper_port), "--data-dir", str(self.directory)),
            env={**os.environ, "ODRADEK_ZOOKEEPER": self.zookeeper},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{self.port + number}" for number in range(self.brokers))


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row."""
    while True:
        first = free_port()
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            continue
        return first


def is_taken(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


async def runs_and_ends(launched: Launched) -> None:
    process = await launched.start()
    assert process.stdout is not None
    assert (await process.stdout.readline()).decode() == f"ready {launched.addresses}\n"
    async with AdminClient(launched.addresses, timeout_ms=20_000) as admin:
        await admin.create_topic(NewTopic("orders", 2, launched.brokers))
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    for number in range(launched.brokers):
        assert (launched.directory / f"broker-{number + 1}" / ".kafka_cleanshutdown").exists()
        assert not is_taken(launched.port + number)
    assert not is_taken(launched.zookeeper_port)
    order = [line for line in errors.decode().splitlines() if line.startswith("ending ")]
    assert order == [*(f"ending broker {number}" for number in range(launched.brokers, 0, -1)), "ending ZooKeeper"]


async def test_a_process_that_does_not_end_is_waited_for_aloud_and_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.local_cluster.processes.SILENT_S", 0.05)
    log, lines = tmp_path / "log", list[str]()
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(99)"
    process = await RunningProcess.start("broker 1", [sys.executable, "-c", deaf], log)
    await until(log.read_text)
    await process.end(0.1, lines.append)
    assert lines == [
        "ending broker 1",
        f"waiting for broker 1, at most 0.1 s; its log is {log}",
        "broker 1 has not ended: killing it",
    ]
    assert "status -9" in await process.ended()


async def test_a_cluster_starts_serves_and_ends_cleanly(tmp_path: Path) -> None:
    await runs_and_ends(Launched(tmp_path / "data", MODEL, 2))


async def test_a_cluster_on_a_real_zookeeper_is_there_again_after_a_restart(
    tmp_path: Path, java_tools: list[str]
) -> None:
    zookeeper = shlex.join([*java_tools, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
    launched = Launched(tmp_path / "data", zookeeper, 3)
    await runs_and_ends(launched)
    process = await launched.start()
    assert process.stdout is not None
    assert (await process.stdout.readline()).startswith(b"ready ")
    async with AdminClient(launched.addresses, timeout_ms=20_000) as admin:
        assert [topic.name for topic in await admin.topics()] == ["orders"]
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


async def test_if_a_process_ends_all_others_are_ended(tmp_path: Path) -> None:
    launched = Launched(tmp_path / "data", MODEL, 1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", launched.port))
        process = await launched.start()
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"broker 1 has ended with status 1; the end of" in errors
    assert b"is already in use" in errors
    assert not is_taken(launched.zookeeper_port)


async def test_a_zookeeper_that_cannot_run_is_named(tmp_path: Path) -> None:
    process = await Launched(tmp_path / "data", "/there/is/none", 1).start()
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode() == "odradek: ZooKeeper: cannot run /there/is/none: No such file or directory\n"


def test_the_installed_zookeeper_is_found(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "zkServer.sh"
    script.parent.mkdir()
    script.touch(mode=0o755)
    found = zookeeper_command({"ZOOKEEPER_HOME": str(tmp_path), "JAVA_HOME": "/java"})
    assert found == [str(script), "start-foreground"]
    assert zookeeper_command({"ODRADEK_ZOOKEEPER": "a 'b c'"}) == ["a", "b c"]
    with pytest.raises(NoZooKeeper, match="apt install default-jre-headless"):
        zookeeper_command({"ZOOKEEPER_HOME": str(tmp_path), "PATH": str(tmp_path)})


def test_without_a_zookeeper_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.cli.local_cluster.zookeeper_server.SERVERS", ("/there/is/none",))
    with pytest.raises(NoZooKeeper, match="sudo apt install zookeeper"):
        zookeeper_command({})


def test_zookeeper_listens_on_loopback_alone(tmp_path: Path) -> None:
    text = write_configuration(tmp_path / "zookeeper", 2182).read_text()
    assert "clientPort=2182\nclientPortAddress=127.0.0.1\n" in text
