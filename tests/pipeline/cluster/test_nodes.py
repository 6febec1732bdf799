"""Nodes keep what tests/pipeline/cluster/nodes.py promises."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import until
from tests.pipeline.cluster.namespaced_cluster import ROOT
from tests.pipeline.cluster.nodes import Network, Node, kill, switched_network

PATIENCE_S = 60
GIVE_UP_S = 2
HOLDER = """
import sys, time
from tests.pipeline.cluster.nodes import switched_network
with switched_network() as network:
    node = network.add_node()
    print(network.address, node.pid, flush=True)
    if sys.argv[1] == "raise":
        raise ValueError("as a test fails")
    time.sleep(1000)
"""


@pytest.fixture
def network(namespaces: None) -> Iterator[Network]:
    with switched_network() as running:
        yield running


def has_address(address: str) -> bool:
    return f" {address}/" in subprocess.run(["ip", "-oneline", "addr"], capture_output=True, text=True).stdout


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


GREETING = """
import socket, sys, time
host, port, patience_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
deadline = time.monotonic() + patience_s
while True:
    try:
        print(socket.create_connection((host, port), patience_s).makefile().readline())
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.1)
"""
"""Retries, because a connect during a failed ARP request gets "No route to host"."""


def greet(address: str, patience_s: float) -> list[str]:
    """A command that connects to a server and prints its response, or fails after the timeout."""
    host, _, port = address.partition(":")
    return [sys.executable, "-c", GREETING, host, port, str(patience_s)]


def greeted(node: Node, server: socket.socket) -> str:
    """The address from which a node connects to a server of this process."""
    host, port = server.getsockname()
    with started(node.command(greet(f"{host}:{port}", PATIENCE_S))) as client:
        accepted, (address, _) = server.accept()
        with accepted:
            accepted.sendall(b"hello\n")
        assert client.communicate(timeout=PATIENCE_S)[0].strip() == "hello"
    return str(address)


def test_nodes_reach_this_process_until_they_are_unplugged(network: Network) -> None:
    node, other = network.add_node(), network.add_node()
    with socket.create_server((network.address, 0)) as server:
        server.settimeout(PATIENCE_S)
        host, port = server.getsockname()
        assert greeted(node, server) == node.address
        network.unplug(node)
        with pytest.raises(RuntimeError, match=r"timed out|No route"):
            node.run(greet(f"{host}:{port}", GIVE_UP_S))
        assert greeted(other, server) == other.address
        network.plug_in(node)
        assert greeted(node, server) == node.address


def test_two_networks_are_isolated_from_each_other(network: Network) -> None:
    with switched_network() as second, socket.create_server((second.address, 0)) as server:
        server.settimeout(PATIENCE_S)
        assert greeted(second.add_node(), server) != network.address
        with pytest.raises(RuntimeError, match="unreachable"):
            network.add_node().run(greet(f"{second.address}:{server.getsockname()[1]}", GIVE_UP_S))


def test_nodes_cannot_reach_servers_on_this_machines_loopback(network: Network) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(RuntimeError, match="refused"):
        network.add_node().run(greet(f"127.0.0.1:{server.getsockname()[1]}", GIVE_UP_S))


def test_a_mount_is_visible_in_its_node_only(network: Network, tmp_path: Path) -> None:
    node, other = network.add_node(), network.add_node()
    node.mount(tmp_path)
    node.run(["touch", tmp_path / "mine"])
    assert os.listdir(node.sees(tmp_path)) == ["mine"]
    assert os.listdir(other.sees(tmp_path)) == os.listdir(tmp_path) == []
    node.unmount(tmp_path)
    assert os.listdir(node.sees(tmp_path)) == []


async def test_a_nodes_processes_are_found_and_killed(network: Network) -> None:
    node, other = network.add_node(), network.add_node()
    with started(node.command(["sleep", "1234"])) as sleeping:
        await until(lambda: node.processes("sleep 1234"))
        assert other.processes("sleep 1234") == []
        kill(node.processes("sleep 1234")[0])
        assert node.processes("sleep 1234") == []
        assert sleeping.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize("end", ["kill -9", "raise"])
async def test_nothing_is_left_behind_after(namespaces: None, end: str) -> None:
    with started([sys.executable, "-c", HOLDER, end]) as process:
        assert process.stdout is not None
        address, pid = process.stdout.readline().split()
        if end == "kill -9":
            assert has_address(address)
            kill(process.pid)
        assert process.wait(20) != 0
    await until(lambda: not Path(f"/proc/{pid}").exists() and not has_address(address))
