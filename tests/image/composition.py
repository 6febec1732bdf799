"""Runs a compose file without an engine: each service has a root directory of buildah's and a network namespace.

The namespaces hang on one bridge, and socat forwards the published ports, as an engine's
proxy does it. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

NETWORK = "10.231.7"
BRIDGE = "odradek-test"
PREFIX_LENGTH = 24
BUILDAH = "buildah"
WAIT_S = 30


class Service:
    """One service, with an empty volume owned by its image's user. `addresses` are those of all services. `mounted` are
    the files that it sees, by their paths in the container.
    """

    def __init__(
        self,
        name: str,
        described: Mapping[str, Any],
        addresses: Mapping[str, str],
        directory: Path,
        mounted: Mapping[str, Path],
    ) -> None:
        self.address = addresses[name]
        self.namespace = f"{BRIDGE}-{name}"
        self.image = _image(described["image"])
        self.published = [_published(port) for port in described.get("ports", ())]
        self.command = [
            *described.get("entrypoint", self.image["Entrypoint"]),
            *described.get("command", self.image["Cmd"]),
        ]
        (volume,) = described["volumes"]
        self.volume = directory / volume.partition(":")[0]
        self._volume_path = volume.partition(":")[2]
        self._mounts = [f"--volume={file}:{path}:ro" for path, file in mounted.items()]
        self._log = directory / f"{name}.log"
        names = [part for host, address in addresses.items() for part in ("--add-host", f"{host}:{address}")]
        self._container = _run(BUILDAH, "from", *names, described["image"])
        self._process: subprocess.Popen[bytes] | None = None
        self.volume.mkdir()
        owner = int(_run(*self._within("id", "-u")))
        os.chown(self.volume, owner, owner)

    def _within(self, *command: str) -> list[str]:
        volume = f"--volume={self.volume}:{self._volume_path}"
        return [BUILDAH, "run", "--isolation=chroot", volume, *self._mounts, self._container, "--", *command]

    def start(self) -> None:
        """Starts its command and returns at once."""
        with self._log.open("ab") as log:
            command = ["ip", "netns", "exec", self.namespace, *self._within(*self.command)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def end(self, number: signal.Signals) -> None:
        """Sends a signal to its program and waits until that is gone. Has no effect if it does not run."""
        if self._process is None:
            return
        for pid in self.pids():
            os.kill(pid, number)
        self._process.wait(WAIT_S)
        self._process = None

    def pids(self) -> list[int]:
        """The processes of its program, without those of buildah."""
        inside = _run("ip", "netns", "pids", self.namespace).split()
        return [int(pid) for pid in inside if BUILDAH not in Path(os.readlink(f"/proc/{pid}/exe")).name]

    def is_healthy(self) -> bool:
        """Whether the image's health check passes."""
        (kind, *check) = self.image["Healthcheck"]["Test"]
        assert kind == "CMD"
        command = ["ip", "netns", "exec", self.namespace, *self._within(*check)]
        return subprocess.run(command, check=False, timeout=WAIT_S, capture_output=True).returncode == 0

    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text()

    def close(self) -> None:
        """Ends it by force if it runs."""
        self.end(signal.SIGKILL)
        _run(BUILDAH, "rm", self._container)


@contextlib.contextmanager
def running(file: Path, directory: Path) -> Iterator[dict[str, Service]]:
    """Starts all services at once, in the order of the file, and yields them by their names."""
    composed = yaml.safe_load(file.read_text())
    described = composed["services"]
    addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate(described, 2)}
    services = {
        name: Service(name, one, addresses, directory, _mounted(composed, one, file.parent))
        for name, one in described.items()
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(_network(list(services.values())))
        for service in services.values():
            stack.callback(service.close)
            service.start()
            for host, port, inside in service.published:
                stack.enter_context(_forwarded(host, port, service.address, inside))
        yield services


def _mounted(composed: Mapping[str, Any], service: Mapping[str, Any], beside: Path) -> dict[str, Path]:
    """The files of a service's secrets and configs, by their paths in the container."""
    secrets = {f"/run/secrets/{name}": composed["secrets"][name]["file"] for name in service.get("secrets", ())}
    configs = {each["target"]: composed["configs"][each["source"]]["file"] for each in service.get("configs", ())}
    return {path: (beside / file).resolve() for path, file in (secrets | configs).items()}


@contextlib.contextmanager
def _network(services: list[Service]) -> Iterator[None]:
    """A bridge with an address of this machine, and on it a namespace for each service."""
    with contextlib.ExitStack() as stack:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", BRIDGE)
        _run("ip", "address", "add", f"{NETWORK}.1/{PREFIX_LENGTH}", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for number, service in enumerate(services):
            here, there = f"odradek{number}", f"inside{number}"
            _run("ip", "netns", "add", service.namespace)
            stack.callback(_run, "ip", "netns", "del", service.namespace)
            _run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", service.namespace)
            _run("ip", "link", "set", here, "master", BRIDGE, "up")
            _run("ip", "-n", service.namespace, "link", "set", "lo", "up")
            _run("ip", "-n", service.namespace, "address", "add", f"{service.address}/{PREFIX_LENGTH}", "dev", there)
            _run("ip", "-n", service.namespace, "link", "set", there, "up")
        yield


@contextlib.contextmanager
def _forwarded(host: str, port: int, address: str, inside: int) -> Iterator[None]:
    command = ["socat", f"TCP-LISTEN:{port},bind={host},fork,reuseaddr", f"TCP:{address}:{inside}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _image(name: str) -> dict[str, Any]:
    """What an image declares."""
    inspected = json.loads(_run(BUILDAH, "inspect", "--type", "image", name))
    config: dict[str, Any] = inspected["Docker"]["config"]
    return config


def _published(port: str) -> tuple[str, int, int]:
    """Returns the host's address and port, and the port inside, of ADDRESS:PORT:INSIDE."""
    host, outside, inside = port.split(":")
    return host, int(outside), int(inside)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S).stdout.strip()
