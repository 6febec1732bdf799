"""A standalone Spark cluster on loopback: a master and two workers, each in its own process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from odradek.pipeline.spark.java import find_java
from tests.pipeline.conftest import QUICK_JAVA, QUICK_SPARK
from tests.spawned_broker import free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEADLINE_S = 120


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[str]:
    """The master's URL, after all workers have registered. `directory` gets logs and work files."""
    port = free_port()
    processes = []
    try:
        master_log = directory / "master.log"
        arguments = ["--host", "127.0.0.1", "--port", f"{port}", "--webui-port", f"{free_port()}"]
        processes.append(_start("org.apache.spark.deploy.master.Master", arguments, master_log))
        _wait_for(master_log, "I have been elected leader", 1)
        url = f"spark://127.0.0.1:{port}"
        for number in range(workers):
            arguments = ["--host", "127.0.0.1", "--webui-port", f"{free_port()}", "--cores", "1", "--memory", "1g"]
            arguments += ["--work-dir", str(directory / f"worker-{number}"), url]
            log = directory / f"worker-{number}.log"
            processes.append(_start("org.apache.spark.deploy.worker.Worker", arguments, log))
        _wait_for(master_log, "Registering worker", workers)
        yield url
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(kind: str, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    environ = {
        **{name: value for name, value in os.environ.items() if name != "SPARK_HOME"},
        "JAVA_HOME": str(find_java(pyspark.__version__).home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_SPARK,
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as out:
        return subprocess.Popen(
            [SPARK_CLASS, kind, *arguments], stdout=out, stderr=out, env=environ, start_new_session=True
        )


def _wait_for(log: Path, text: str, times: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(re.findall(re.escape(text), log.read_text())) < times:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log} does not say {text!r} {times} times:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
