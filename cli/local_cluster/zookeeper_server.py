"""The ZooKeeper that a local cluster runs: the installed one, with a zoo.cfg of its own."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

SERVERS = ("/usr/share/zookeeper/bin/zkServer.sh", "/opt/zookeeper/bin/zkServer.sh")
"""Where Debian's package is, and where Apache's archive often is."""
HOW_TO_INSTALL = (
    "no ZooKeeper is installed: `sudo apt install zookeeper` installs one, with the Java that it needs. (Or unpack "
    "Apache's, and set ZOOKEEPER_HOME to its folder.)"
)
NO_JAVA = "ZooKeeper needs Java: `sudo apt install default-jre-headless` installs it"


class NoZooKeeper(Exception):
    """There is no ZooKeeper on this machine; the message says how to install one."""


def zookeeper_command(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Returns the command that runs a ZooKeeper in the foreground; the path of a zoo.cfg is to follow.

    It is $ODRADEK_ZOOKEEPER if that is set, else zkServer.sh of $ZOOKEEPER_HOME or of an installed package. Raises
    NoZooKeeper.
    """
    if command := shlex.split(environment.get("ODRADEK_ZOOKEEPER", "")):
        return command
    home = environment.get("ZOOKEEPER_HOME")
    candidates = [*([f"{home}/bin/zkServer.sh"] if home else []), *SERVERS]
    script = next((candidate for candidate in candidates if os.access(candidate, os.X_OK)), None)
    if script is None:
        raise NoZooKeeper(HOW_TO_INSTALL)
    if not environment.get("JAVA_HOME") and shutil.which("java", path=environment.get("PATH")) is None:
        raise NoZooKeeper(NO_JAVA)
    return [script, "start-foreground"]


def write_configuration(directory: Path, port: int) -> Path:
    """Writes the zoo.cfg of a server that listens on loopback alone, and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "zoo.cfg"
    lines = (
        "tickTime=1000",
        f"dataDir={directory / 'data'}",
        f"clientPort={port}",
        "clientPortAddress=127.0.0.1",
        "admin.enableServer=false",
        "autopurge.purgeInterval=1",
    )
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
