"""Spark's master: which one, whether it is local, and the driver's address for its executors."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

from odradek.pipeline.errors import PipelineError

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
HOST = "spark.driver.host"
_MASTERS = re.compile(r"local|local\[.+]|local-cluster\[.+]|yarn|(spark|k8s)://.+")
"""With any other master Spark's Java process exits without an explanation."""
_HOST = re.compile(r"(?:spark://|k8s://(?:https?://)?)(?:\[(?P<v6>[^]]+)]|(?P<host>[^:/,]+)).*")
YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Directories in which Spark looks for YARN's addresses."""
ADDRESS_VARIABLES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
"""With these a user sets the address of Spark's processes on a machine."""


def check_master(master: str) -> None:
    """Raises PipelineError if Spark does not support the master."""
    if not _MASTERS.fullmatch(master):
        raise PipelineError(f"master {master!r} is not a Spark master", "set local[*], or spark://HOST:PORT")


def refuse_unknown_yarn(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raises PipelineError if the master is YARN and Spark could not find it."""
    if master == "yarn" and not any(environ.get(name) for name in YARN_VARIABLES):
        problem = f"master is yarn, but neither {' nor '.join(YARN_VARIABLES)} is set"
        raise PipelineError(problem, "set it to the directory that has yarn-site.xml")


def is_local(master: str) -> bool:
    """Whether the driver's process is also the executor. With local-cluster[...] it is not, though on one machine."""
    return master == "local" or master.startswith("local[")


def named_master(arguments: str) -> str | None:
    """Returns the `--master` in the arguments of spark-submit (PYSPARK_SUBMIT_ARGS)."""
    words = shlex.split(arguments)
    for word, following in itertools.pairwise([*words, ""]):
        if word == "--master":
            return following
        if word.startswith("--master="):
            return word.partition("=")[2]
    return None


def driver_address(master: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Returns the address at which the driver listens. None if Spark or the user chooses it.

    Loopback with a local master, otherwise this machine's address on the route to the master."""
    if any(environ.get(name) for name in ADDRESS_VARIABLES):
        return None
    if master.startswith("local"):
        return LOOPBACK
    found = _HOST.fullmatch(master)
    return address_towards(found["v6"] or found["host"]) if found else None


def says_address(script: Path) -> bool:
    """Whether spark-env.sh, which Spark's programs run at their start, sets one of ADDRESS_VARIABLES."""
    try:
        return re.search(rf"^\s*(export\s+)?({'|'.join(ADDRESS_VARIABLES)})=", script.read_text(), re.M) is not None
    except OSError:
        return False


def as_host(address: str) -> str:
    """Formats an address for Spark's options."""
    return f"[{address}]" if ":" in address else address


def address_towards(host: str) -> str | None:
    """Returns this machine's address on the route to `host`. None without an address or a route. Sends nothing."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)  # Java prefers IPv4
        with socket.socket(family, kind, protocol) as towards:
            towards.connect(address)
            return str(towards.getsockname()[0])
    except OSError:
        return None
