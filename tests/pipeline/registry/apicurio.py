"""A real schema registry for tests: Apicurio Registry, whose schemas are in a topic of a broker of ours.

Maven fetches its release once for a machine, 109 MB. It speaks Confluent's API below `/apis/ccompat/v7`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.pipeline.spark.cache import cache_directory
from tests.spawned_broker import free_port

VERSION = "3.0.9"
POM = Path(__file__).with_name("pom.xml")
JAVA = ("java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
DEADLINE_S = 300


def install_apicurio() -> Path:
    """Returns the directory of the release, fetched unless this machine has it."""
    directory = cache_directory(os.environ) / f"apicurio-{VERSION}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{directory}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
                _fetch(Path(scratch))
                os.replace(Path(scratch, "release"), directory)
    return directory


def _fetch(scratch: Path) -> None:
    command = ["mvn", "-B", "-q", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={scratch}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout[-2000:]}")
    with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
        archive.extractall(scratch / "release", filter="data")


@contextmanager
def running_apicurio(release: Path, bootstrap: str, directory: Path) -> Iterator[str]:
    """The URL of a registry with the schemas of a broker."""
    port = free_port()
    environ = {
        **os.environ,
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "QUARKUS_LOG_LEVEL": "WARN",
    }
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    jar = release / f"apicurio-registry-app-{VERSION}-runner.jar"
    with (directory / "apicurio.log").open("w") as log:
        process = subprocess.Popen(
            [*JAVA, "-jar", str(jar)], env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            _wait_until_it_answers(process, url, Path(log.name))
            yield url
        finally:
            process.kill()
            process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5) as response:
                response.read()
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Apicurio does not answer at {url}: {log.read_text()[-2000:]}") from error
        time.sleep(0.1)
