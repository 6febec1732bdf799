"""A standalone Spark cluster whose machines share no directory: a master, two workers and a driver, each a node.

    with namespaced_cluster(tmp_path) as cluster:
        with s3_server(program, tmp_path / "store", cluster.address) as store: ...
        with BrokerThread(listeners=f"PLAINTEXT://{cluster.address}:0") as broker: ...
        cluster.run_driver([sys.executable, "-m", "tests.pipeline.cluster.some_job", cluster.url, cluster.lake])
        kill(cluster.workers[0].executors()[0])

a. Machines reach each other, and servers of this process, by address only (tests/pipeline/cluster/nodes.py).
b. The driver has the file systems of this process. `cluster.lake` is an empty directory there and in each worker. Only
   the test sees what a worker writes into its own, with `worker.sees(cluster.lake)`.
c. A worker has an empty /tmp, /var/tmp and /dev/shm of its own, without the test's directory. The rest of its root
   file system is read-only: Python, PySpark, Java and this repository.
d. A worker has one core and runs executors of 1 GB at most. Spark's work files and logs of executors are in its /tmp.
e. `worker.mount(cluster.lake, ...)` mounts another file system over one worker's lake: full, read-only, or shared by
   `--bind`.
f. Everything ends with the context, also after kill -9 of this process. `directory` keeps the daemons' logs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from odradek.pipeline.spark.home import pyspark_version
from odradek.pipeline.spark.java import find_java
from tests.pipeline.cluster.nodes import Network, Node, parent, switched_network
from tests.pipeline.conftest import QUICK_JAVA, QUICK_SESSION, QUICK_SPARK
from tests.pipeline.standalone_cluster import SPARK_CLASS

ROOT = Path(__file__).resolve().parents[3]
MASTER_PORT = 7077
DEADLINE_S = 120
PAUSE_S = 0.1
SESSION_OPTIONS = {
    **QUICK_SESSION,
    "spark.executor.memory": "640m",
    "spark.executor.extraJavaOptions": QUICK_SPARK,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}
"""For `open_session`'s `extra`: a quick start, and no task before both executors have registered."""

MASK = """
set -e
mask=$1; shift
number=3
for kept do eval "exec $number< \\"\\$kept\\""; number=$((number + 1)); done
mkdir -p "$mask"
mount -t tmpfs -o size=1g,mode=1777 none "$mask"
number=3
for kept do
    mkdir -p "$kept"
    mount --no-canonicalize --bind "/proc/self/fd/$number" "$kept"
    mount -o remount,bind,ro "$kept"
    number=$((number + 1))
done
"""
"""Hides a directory behind an empty one, except some directories in it, which become read-only."""


class Worker(Node):
    """The machine of a Spark worker. Process ids are those of this process: for `kill`."""

    __slots__ = ()

    def executors(self) -> list[int]:
        """The JVMs that run tasks."""
        return self.processes("CoarseGrainedExecutorBackend")

    def python_workers(self) -> list[int]:
        """The Python processes that run tasks, forked by an executor's daemon."""
        processes = self.processes("pyspark.daemon")
        return [pid for pid in processes if parent(pid) in processes]


@dataclass(frozen=True, slots=True)
class NamespacedCluster:
    url: str
    """The master's."""
    lake: Path
    directory: Path
    network: Network
    driver: Node
    workers: list[Worker]

    @property
    def address(self) -> str:
        """The address at which the machines reach this process."""
        return self.network.address

    def start_driver(
        self, command: Sequence[str | Path], log: Path, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        """A process on the driver's machine, in this repository's directory; stdout is a pipe, `log` gets stderr.

        `stop_driver` kills it and its child processes."""
        with log.open("w") as errors:
            return subprocess.Popen(
                self.driver.command(command, ROOT),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environ(self.driver),
                text=True,
                start_new_session=True,
            )

    def stop_driver(self, process: subprocess.Popen[str]) -> None:
        """kill -9 of the driver's process group, with Python and its JVM; does nothing if all have ended."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def run_driver(self, command: Sequence[str | Path], timeout_s: float = 300) -> str:
        """Returns the command's output. Raises RuntimeError with the end of its log unless it exits with 0 in time."""
        with tempfile.NamedTemporaryFile("r", dir=self.directory, prefix="driver-", suffix=".log") as log:
            process = self.start_driver(command, Path(log.name))
            try:
                out, _ = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                self.stop_driver(process)
                raise RuntimeError(f"the driver runs for {timeout_s} s: {log.read()[-3000:]}") from error
            if process.returncode != 0:
                raise RuntimeError(f"the driver ended with {process.returncode}: {log.read()[-3000:]}")
            return out


@contextmanager
def namespaced_cluster(directory: Path, workers: int = 2) -> Iterator[NamespacedCluster]:
    """A running cluster whose workers have registered with the master. `directory` gets the lake and the logs."""
    lake = directory / "lake"
    lake.mkdir(parents=True)
    with ExitStack() as stack:
        network = stack.enter_context(switched_network())
        driver, master = network.add_node(), network.add_node()
        log = directory / "master.log"
        arguments = ["--host", master.address, "--port", f"{MASTER_PORT}", "--webui-port", "0"]
        stack.enter_context(_daemon(master, "org.apache.spark.deploy.master.Master", arguments, log))
        machines = [_worker_machine(network, directory, lake) for _ in range(workers)]
        _wait_for(log, "I have been elected leader", 1)
        url = f"spark://{master.address}:{MASTER_PORT}"
        for number, worker in enumerate(machines):
            arguments = ["--host", worker.address, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            arguments += ["--work-dir", "/tmp/work", url]
            its_log = directory / f"worker-{number}.log"
            stack.enter_context(_daemon(worker, "org.apache.spark.deploy.worker.Worker", arguments, its_log))
        _wait_for(log, "Registering worker", workers)
        yield NamespacedCluster(url, lake, directory, network, driver, machines)


def _worker_machine(network: Network, directory: Path, lake: Path) -> Worker:
    """A node that can write only into its own directories."""
    node = network.add_node()
    needed = {ROOT, Path(sys.prefix), Path(sys.base_prefix), SPARK_CLASS.parents[1], find_java(pyspark_version()).home}
    for mask in (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), directory):
        if mask == directory and directory.is_relative_to("/tmp"):
            continue
        kept = sorted(path for path in {one.resolve() for one in needed} if path.is_relative_to(mask))
        node.run(["sh", "-c", MASK, "sh", mask, *kept])
    node.run(["mkdir", "-p", lake])
    node.run(["mount", "-o", "remount,bind,ro", "/"])
    node.mount(lake)
    return Worker(node.address, node.pid)


@contextmanager
def _daemon(node: Node, kind: str, arguments: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            node.command([SPARK_CLASS, kind, *arguments]),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=_environ(node),
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environ(node: Node) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "TMPDIR")},
        "JAVA_HOME": str(find_java(pyspark_version()).home),
        "SPARK_LOCAL_IP": node.address,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_SPARK,
        "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def _wait_for(log: Path, text: str, times: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while log.read_text().count(text) < times:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log} does not say {text!r} {times} times:\n{log.read_text()[-2000:]}")
        time.sleep(PAUSE_S)
