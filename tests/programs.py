"""Third-party programs, each a fixture. A test that uses one is of the kind `programs` (tests/kinds.py).

If a program is not on the machine, its tests are skipped; ODRADEK_NO_SKIP=1 makes them fail. Programs that must be
built are built once for all workers of a run.

$KAFKA_TOOLS          a command before the name of a class of Kafka's tools, and its arguments; of the release that
                      $KAFKA_VERSION names, 3.9.1 or 4.4.0
$KAFKA_CONTROL        a command that starts and stops Kafka and ZooKeeper: `start PORT DIR`, `zk-start PORT DIR`,
                      `zk-broker ID PORT ZOOKEEPER DIR NAME=VALUE...`, `stop DIR`
$KAFKA_PYTHON_SUITE   a command that runs kafka-python's own tests: `COMMAND HOST:PORT [pytest arguments]`
$AIOKAFKA_SUITE       the same of aiokafka. Its tests of SASL and SSL have the addresses of such listeners in $SASL and
                      $SSL, and in $SSL_FILES a folder with ca.crt, client.crt and client.key
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import PROGRAMS as CHROMIUM_PROGRAMS
from tests.chromium import Chromium
from tests.chromium import program as chromium_program
from tests.clients import program_clients
from tests.clients.members.crew import NEWEST_KAFKA, Programs
from tests.pipeline.cluster import nodes
from tests.pipeline.cluster.object_store import ObjectStore, install_versitygw, s3_server
from tests.pipeline.registry.apicurio import install_apicurio
from tests.zookeeper import real_zookeeper

FIXTURES: set[str] = set()
"""The names of all fixtures that provide another program."""


def program(fixture: Callable[..., Any]) -> Any:
    """Makes a fixture that provides another program."""
    FIXTURES.add(fixture.__name__)
    return pytest.fixture(scope="session")(fixture)


def _on_path(*names: str) -> None:
    if missing := [name for name in names if shutil.which(name) is None]:
        pytest.skip(f"{' and '.join(missing)} not on this machine")


def _command_in(variable: str) -> list[str]:
    command = shlex.split(os.environ.get(variable, ""))
    if not command:
        pytest.skip(f"${variable} is not set: it is a command (tests/programs.py)")
    return command


@program
def kcat() -> None:
    _on_path("kcat")


@program
def openssl() -> None:
    _on_path("openssl")


@program
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A headless Chromium of this worker (tests/chromium.py)."""
    if chromium_program() is None:
        pytest.skip(f"none of {', '.join(CHROMIUM_PROGRAMS)} on this machine")
    with Chromium.started(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@program
def java_tools() -> list[str]:
    """The command before a Java class of Kafka's tools."""
    return _command_in("KAFKA_TOOLS")


@program
def kafka_control() -> list[str]:
    """The command that starts and stops Kafka."""
    return _command_in("KAFKA_CONTROL")


@program
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a ZooKeeper of this worker. Its ticks take two seconds. Tests use a chroot of their own."""
    with real_zookeeper.running(_command_in("KAFKA_CONTROL"), tmp_path_factory.mktemp("zookeeper")) as address:
        yield address


@program
def kafka_python_suite() -> list[str]:
    """The command that runs kafka-python's own tests."""
    return _command_in("KAFKA_PYTHON_SUITE")


@program
def aiokafka_suite() -> list[str]:
    """The command that runs aiokafka's own tests."""
    return _command_in("AIOKAFKA_SUITE")


@program
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Go program that produces and consumes with franz-go."""
    _on_path("go")
    directory = _built_once(tmp_path_factory, "franz_go", program_clients.build_franz_go)
    return directory / "franz_go"


@program
def java_programs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command before the name of a class of tests/clients/java."""
    _on_path("java", "mvn")
    directory = _built_once(tmp_path_factory, "java", program_clients.build_java_programs)
    return program_clients.java_command(directory)


@program
def newest_java_programs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """As `java_programs`, on the newest release of Kafka's client."""
    _on_path("java", "mvn")
    build = partial(program_clients.build_java_programs, properties=(f"kafka.version={NEWEST_KAFKA}",))
    return program_clients.java_command(_built_once(tmp_path_factory, "newest_java", build))


@program
def spring_shop(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a service on Spring Kafka, before the address of its cluster."""
    return [*_built_application(tmp_path_factory, "spring"), "odradek.Shop"]


@program
def streams_word_count(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a Kafka Streams application, before the address of its cluster."""
    return [*_built_application(tmp_path_factory, "streams"), "odradek.WordCount"]


@program
def spring_listener(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command before the name of a class of tests/clients/applications/spring."""
    return _built_application(tmp_path_factory, "spring")


@program
def streams_copier(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a Kafka Streams application of the newest release that copies a topic."""
    _on_path("java", "mvn")
    project, properties = program_clients.APPLICATIONS / "streams", (f"kafka.version={NEWEST_KAFKA}",)
    build = partial(program_clients.build_with_maven, project, properties=properties)
    directory = _built_once(tmp_path_factory, "newest_streams", build)
    return [*program_clients.java_command(directory), "odradek.StreamsCopier"]


@program
def platformatic(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a group member with @platformatic/kafka."""
    _on_path("npm")
    directory = _built_once(tmp_path_factory, "platformatic", program_clients.build_platformatic)
    return program_clients.platformatic_command(directory)


@pytest.fixture(scope="session")
def everybodys_programs(
    java_tools: list[str],
    newest_java_programs: list[str],
    franz_go: Path,
    spring_listener: list[str],
    platformatic: list[str],
    streams_copier: list[str],
) -> Programs:
    return Programs(java_tools, newest_java_programs, franz_go, spring_listener, platformatic, streams_copier)


@program
def faststream_shop(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a service on FastStream, before the address of its cluster."""
    directory = _built_once(tmp_path_factory, "faststream", program_clients.build_faststream)
    shop = program_clients.APPLICATIONS / "faststream" / "shop.py"
    return [str(directory / "bin" / "python"), str(shop)]


@program
def namespaces() -> None:
    """Linux's namespaces, and the right to create them (tests/pipeline/cluster/nodes.py)."""
    if reason := nodes.lacking():
        pytest.skip(reason)


@program
def versitygw() -> Path:
    """An S3 server, built once for this machine (tests/pipeline/cluster/object_store.py)."""
    _on_path("go")
    return install_versitygw()


@program
def object_store(versitygw: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """An S3 server of this worker on loopback."""
    with s3_server(versitygw, tmp_path_factory.mktemp("object-store"), "127.0.0.1") as store:
        yield store


@program
def apicurio() -> Path:
    """A schema registry, fetched once for this machine (tests/pipeline/registry/apicurio.py)."""
    _on_path("java", "mvn")
    return install_apicurio()


@pytest.fixture
def bucket(object_store: ObjectStore) -> ObjectStore:
    """The server with an empty bucket of this test."""
    return object_store.with_new_bucket()


def _built_application(factory: pytest.TempPathFactory, name: str) -> list[str]:
    """The command before the name of a class of tests/clients/applications."""
    _on_path("java", "mvn")
    project = program_clients.APPLICATIONS / name
    directory = _built_once(factory, name, lambda into: program_clients.build_with_maven(project, into))
    return program_clients.java_command(directory)


def _built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """The directory into which the first worker builds; the others wait for it."""
    base = factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{name}-built"
    done = directory / ".done"
    with open(f"{directory}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            directory.mkdir(exist_ok=True)
            build(directory)
            done.touch()
    return directory
