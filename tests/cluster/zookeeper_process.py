"""A ZooKeeper of Apache's that a test may kill, start again, and whose disk it may fill or wipe. Brokers may log in."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.patience import block_until
from tests.pipeline.cluster.nodes import Node
from tests.zookeeper.real_zookeeper import SERVER, SMALL_JVM, STOP_TIMEOUT_S

TICK_MS = 500
"""Sessions live for at least two ticks."""
DISK = "24m"
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
USER, PASSWORD = "kafka", "secret"
BLOCK = bytes(1 << 16)


class ZooKeeperProcess:
    """Its disk is a small file system in memory. `place`: the command before its own. `machine`: where it runs."""

    def __init__(
        self,
        control: Sequence[str],
        directory: Path,
        address: str,
        place: Sequence[str] = (),
        machine: Node | None = None,
    ) -> None:
        self.address = address
        self.machine = machine
        self._control = control
        self._place = place
        self._directory = directory
        self._data, self._stored = directory / "data", directory / "stored"
        self._data.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "zookeeper", self._data], check=True)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_up(self) -> bool:
        """Whether it runs. It ends by itself when it cannot write."""
        return self._process is not None and self._process.poll() is None

    def start(self, password: str = PASSWORD) -> None:
        """Starts it; returns when it answers. `password`: what it believes to be that of the brokers."""
        host, _, port = self.address.partition(":")
        file = self._directory / "zoo.cfg"
        lines = {
            "dataDir": str(self._data),
            "clientPort": port,
            "clientPortAddress": host,
            "admin.enableServer": "false",
            "tickTime": str(TICK_MS),
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        }
        file.write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
        login = self._directory / "server.conf"
        login.write_text(f'Server {{ {DIGEST} required user_{USER}="{password}"; }};\n')
        options = f"{SMALL_JVM} -Djava.security.auth.login.config={login}"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._place, *self._control, "tool", SERVER, str(file)],
                env={**os.environ, "KOPTS": options},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        block_until(lambda: self._answers(host, int(port)))

    def _answers(self, host: str, port: int) -> bool:
        assert self.is_up, self.log.read_text()[-2000:]
        try:
            with socket.create_connection((host, port)):
                return True
        except OSError:
            return False

    @property
    def log(self) -> Path:
        """What it has said."""
        return self._directory / "log"

    def kill(self) -> None:
        """kill -9. Has no effect if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
            self._process = None

    @property
    def login(self) -> Path:
        """A JAAS file for brokers."""
        file = self._directory / "client.conf"
        file.write_text(f'Client {{ {DIGEST} required username="{USER}" password="{PASSWORD}"; }};\n')
        return file

    def fill_disk(self) -> None:
        """Leaves no room on its disk."""
        with (self._data / "filling").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(BLOCK)
            except OSError:
                return

    def free_disk(self) -> None:
        """Ends `fill_disk`."""
        (self._data / "filling").unlink()

    def wipe(self) -> None:
        """Moves all that it has stored to another place. It must not run."""
        assert not self.is_up
        shutil.copytree(self._data, self._stored)
        for place in self._data.iterdir():
            shutil.rmtree(place)

    def restore(self) -> None:
        """Ends `wipe`. It must not run."""
        assert not self.is_up
        for place in self._data.iterdir():
            shutil.rmtree(place)
        shutil.copytree(self._stored, self._data, dirs_exist_ok=True)
        shutil.rmtree(self._stored)

    def close(self) -> None:
        """Ends it, and removes its disk."""
        self.kill()
        subprocess.run(["umount", "--lazy", self._data], check=True)
