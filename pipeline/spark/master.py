"""Spark's master: which one, whether it is this process's own, and the address at which it finds the driver."""

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
"""With another the Java process of Spark ends before it can say why."""
_HOST = re.compile(r"(?:spark://|k8s://(?:https?://)?)(?:\[(?P<v6>[^]]+)]|(?P<host>[^:/,]+)).*")
YARN_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Where Spark looks for YARN's addresses."""
ADDRESS_VARIABLES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
"""Where a user tells Spark's processes of a machine how they are reached."""


def check_master(master: str) -> None:
    """Raises PipelineError if Spark has no such master."""
    if not _MASTERS.fullmatch(master):
        raise PipelineError(f"master {master!r} is none of Spark's", "give local[*], or spark://HOST:PORT")


def refuse_unknown_yarn(master: str, environ: Mapping[str, str] = os.environ) -> None:
    """Raises PipelineError where Spark is to start with YARN and could not find it."""
    if master == "yarn" and not any(environ.get(name) for name in YARN_VARIABLES):
        problem = f"master is yarn, and neither {' nor '.join(YARN_VARIABLES)} is set"
        raise PipelineError(problem, "set it to the directory that has yarn-site.xml")


def is_local(master: str) -> bool:
    """Whether the driver's process is the executor too; that of local-cluster[...] is not, though on one machine."""
    return master == "local" or master.startswith("local[")


def named_master(arguments: str) -> str | None:
    """The `--master` among arguments of spark-submit (PYSPARK_SUBMIT_ARGS)."""
    words = shlex.split(arguments)
    for word, following in itertools.pairwise([*words, ""]):
        if word == "--master":
            return following
        if word.startswith("--master="):
            return word.partition("=")[2]
    return None


def driver_address(master: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Where the driver is to listen; None where that is Spark's or the user's to say.

    Loopback with a local master; else the address by which this machine reaches the master."""
    if any(environ.get(name) for name in ADDRESS_VARIABLES):
        return None
    if master.startswith("local"):
        return LOOPBACK
    found = _HOST.fullmatch(master)
    return address_towards(found["v6"] or found["host"]) if found else None


def says_address(script: Path) -> bool:
    """Whether spark-env.sh, which Spark's programs run when they start, sets one of these variables."""
    try:
        return re.search(rf"^\s*(export\s+)?({'|'.join(ADDRESS_VARIABLES)})=", script.read_text(), re.M) is not None
    except OSError:
        return False


def as_host(address: str) -> str:
    """An address as Spark's options have it."""
    return f"[{address}]" if ":" in address else address


def address_towards(host: str) -> str | None:
    """This machine's address on the way to `host`; None where the name has no address or no route. Sends nothing."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)  # as Java prefers it
        with socket.socket(family, kind, protocol) as towards:
            towards.connect(address)
            return str(towards.getsockname()[0])
    except OSError:
        return None
