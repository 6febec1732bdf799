"""The serve command as a separate process: its output, its end, and errors that keep it from starting."""

import asyncio
import contextlib
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest

from tests.patience import PATIENCE_S, block_until
from tests.spawned_broker import free_port
from tests.zookeeper.model import ZooKeeperModel


def restore_default_sighup() -> None:
    """Restores the default of SIGHUP, as the tests may run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Served:
    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek.broker", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            preexec_fn=restore_default_sighup,
        )

    def ready(self) -> str:
        assert self.process.stdout is not None
        word, address = self.process.stdout.readline().split()
        assert word == "ready"
        return address

    def connect(self, address: str) -> socket.socket:
        host, port = address.split(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def end(self) -> tuple[int, str, str]:
        """Waits for the end and returns the exit status and the rest of stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    started: list[Served] = []

    def here(*arguments: str) -> Served:
        started.append(Served(*arguments, cwd=tmp_path))
        return started[-1]

    yield here
    for served in started:
        if served.process.poll() is None:
            served.process.kill()
        served.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_prints_its_address_and_shuts_down_cleanly_on_a_signal(
    serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    served = serve("--port", "0", "--data-dir", "here")
    address = served.ready()
    with served.connect(address):
        os.killpg(served.process.pid, number)
        status, out, err = served.end()
    assert (status, out) == (0, "")
    assert (tmp_path / "here" / ".kafka_cleanshutdown").exists()
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert [event for event in events if event.startswith("broker ")] == [
        "broker registered",
        "broker started",
        "broker stopping",
        "broker stopped",
    ]
    assert "Traceback" not in err


def test_settings_can_be_given_as_flags_and_data_is_the_default_directory(serve: Serve, tmp_path: Path) -> None:
    served = serve("--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "num.partitions=5")
    served.connect(served.ready()).close()
    served.process.terminate()
    assert served.end()[0] == 0
    assert (tmp_path / "data" / "meta.properties").exists()


def test_a_config_file_replaces_the_packaged_one_and_flags_override_it(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "my.properties").write_text("listeners=PLAINTEXT://127.0.0.1:1\nlog.dirs=elsewhere\nbroker.id=5\n")
    served = serve("--config", "my.properties", "--port", "0")
    served.connect(served.ready()).close()
    served.process.terminate()
    assert served.end()[0] == 0
    assert "broker.id=5" in (tmp_path / "elsewhere" / "meta.properties").read_text()


def test_a_signal_passed_on_by_make_is_not_a_second_signal(serve: Serve, tmp_path: Path) -> None:
    served = serve("--port", "0", "--data-dir", "here")
    served.connect(served.ready()).close()
    served.process.terminate()
    served.process.terminate()
    assert served.end()[0] == 0
    assert (tmp_path / "here" / ".kafka_cleanshutdown").exists()


def test_a_second_signal_ends_the_process_at_once(serve: Serve) -> None:
    served = serve("--port", "0")
    with served.connect(served.ready()) as client:
        # An incomplete request keeps the connection open, and the shutdown waits for it.
        client.sendall(b"\x00\x00\x00\x20")
        os.kill(served.process.pid, signal.SIGSTOP)
        os.kill(served.process.pid, signal.SIGTERM)
        os.kill(served.process.pid, signal.SIGINT)
        os.kill(served.process.pid, signal.SIGCONT)
        status, _, _ = served.end()
    assert status in (128 + signal.SIGTERM, 128 + signal.SIGINT)


def test_a_signal_during_a_long_start_shuts_down_cleanly(tmp_path: Path) -> None:
    slow = (
        "import asyncio, sys; from odradek.broker import server; from odradek.cli.serve import main\n"
        "async def forever(self):\n"
        "    print('loading', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "server.Broker._load_logs = forever\n"
        "sys.exit(main(['--port', '0', '--data-dir', 'd']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", slow],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err


def one_line(err: str) -> str:
    [line] = [line for line in err.splitlines() if not line.startswith("{")]
    return line


def test_an_occupied_port_is_one_error_line_and_status_1(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, out, err = serve("--port", str(port)).end()
    assert (status, out) == (1, "")
    assert f"port {port} is already in use" in one_line(err)


def test_a_locked_directory_is_one_error_line_and_status_1(serve: Serve) -> None:
    first = serve("--port", "0", "--data-dir", "d")
    first.ready()
    status, out, err = serve("--port", "0", "--data-dir", "d").end()
    assert (status, out) == (1, "")
    assert "in use by another broker" in one_line(err)


@pytest.mark.parametrize(("changed", "named"), [("cluster.id=", "cluster.id=x"), ("broker.id=0", "broker.id=77")])
def test_the_directory_of_another_cluster_or_broker_is_status_1_and_unchanged(
    serve: Serve, tmp_path: Path, changed: str, named: str
) -> None:
    first = serve("--port", "0", "--data-dir", "d")
    first.ready()
    first.process.terminate()
    assert first.end()[0] == 0
    meta = tmp_path / "d" / "meta.properties"
    others = meta.read_text().replace(changed, named)
    meta.write_text(others)
    names = sorted(path.name for path in meta.parent.iterdir())
    status, out, err = serve("--port", "0", "--data-dir", str(tmp_path / "d")).end()
    assert (status, out) == (1, "")
    assert "Traceback" not in err
    assert named.partition(".")[0] in one_line(err)
    assert str(tmp_path / "d") in one_line(err)
    assert meta.read_text() == others
    assert sorted(path.name for path in meta.parent.iterdir()) == names


def test_settings_without_effect_and_unknown_names_are_one_warning_each(
    serve: Serve,
) -> None:
    served = serve("--port", "0", "--set", "background.threads=3", "--set", "no.such=1", "--set", "num.partitions=2")
    served.ready()
    served.process.terminate()
    warnings = [line for line in map(json.loads, served.end()[2].splitlines()) if line["level"] == "warn"]
    assert [line["names"] for line in warnings] == [["no.such"], ["background.threads"]]


def test_the_broker_serves_on_asyncios_loop_without_uvloop(tmp_path: Path) -> None:
    code = "import sys; sys.modules['uvloop'] = None; from odradek.cli.serve import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--port", "0", "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        producer = kafka.KafkaProducer(bootstrap_servers=address, acks="all")
        assert [producer.send("t", b"%d" % number).get(timeout=PATIENCE_S).offset for number in range(3)] == [0, 1, 2]
        producer.close()
        process.terminate()
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert "Traceback" not in err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_directory_that_cannot_be_created_is_one_error_line_and_status_1(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, out, err = serve("--port", "0", "--data-dir", "file/sub").end()
    assert (status, out) == (1, "")
    assert "file/sub" in one_line(err)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "nonsense"), "nonsense"),
        (("--config", "missing.properties"), "missing.properties"),
        (("--set", "super.users=User:admin"), "these settings have no use: super.users (--set)"),
        (("--set", "listeners=SSL://127.0.0.1:0"), "SSL"),
        (("--set", "max.connections.per.ip.overrides=rubbish"), "max.connections.per.ip.overrides"),
    ],
)
def test_invalid_settings_are_one_error_line_and_status_1(serve: Serve, arguments: tuple[str, ...], named: str) -> None:
    status, out, err = serve(*arguments).end()
    assert (status, out) == (1, "")
    assert named in one_line(err)


def test_an_impossible_port_is_a_usage_error(serve: Serve) -> None:
    status, out, err = serve("--port", "65536").end()
    assert (status, out) == (2, "")
    assert "65536" in err


def test_an_idle_broker_wakes_up_only_a_few_times_a_second(serve: Serve) -> None:
    """Its timers and periodic checks wake it up a few times a second at most."""
    served = serve("--port", "0")
    served.ready()

    def switches() -> int:
        status = Path(f"/proc/{served.process.pid}/status").read_text()
        return int(
            status.rpartition("voluntary_ctxt_switches:")[0].rpartition("voluntary_ctxt_switches:")[2].split()[0]
        )

    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's /proc")

    def is_idle() -> bool:
        before = switches()
        time.sleep(1)
        return switches() - before < 30

    block_until(is_idle)  # its start may take a while, and is not what is measured


def test_the_broker_survives_a_hangup_under_nohup(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek.broker", "--port", "0", "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    with process:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()[1].split(":")
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_the_broker_serves_without_standard_streams_and_shuts_down_cleanly(
    tmp_path: Path, closed: tuple[int, ...]
) -> None:
    """The descriptor of a stream that is closed at the start must not be reused for a socket."""
    port = free_port()

    def close_streams() -> None:
        for descriptor in closed:
            os.close(descriptor)

    process = subprocess.Popen(
        [sys.executable, "-m", "odradek.broker", "--port", str(port), "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        preexec_fn=close_streams,
    )
    with process:
        wait_for(port, process)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_the_broker_serves_although_its_output_is_not_read(tmp_path: Path) -> None:
    port = free_port()
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek.broker", "--port", str(port), "--data-dir", str(tmp_path / "data")],
        stdout=writing,
        stderr=writing,
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    os.close(writing)
    with process:
        wait_for(port, process)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    """Waits until the port is open."""

    def is_open() -> bool:
        assert process.poll() is None
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
            return True
        return False

    block_until(is_open)


def test_the_broker_raises_its_limit_of_open_files(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = subprocess.Popen(
        [sys.executable, "-m", "odradek.broker", "--port", "0", "--data-dir", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, most)),
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (most, most)
        process.terminate()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other mallocs keep memory in their own ways")
def test_the_memory_of_large_responses_is_reused(serve: Serve) -> None:
    """Responses of 10 MB from 40 partitions are copied: each partition has too little to be sent from its file."""
    broker = serve("--port", "0", "--set", "num.partitions=40")
    address = broker.ready()
    producer = kafka.KafkaProducer(bootstrap_servers=address, batch_size=0)
    for number in range(240):
        producer.send("large", bytes(100_000), partition=number % 40)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, max_partition_fetch_bytes=250_000)
    consumer.assign(partitions := [kafka.TopicPartition("large", number) for number in range(40)])

    def page_faults_of_a_read() -> int:
        before = page_faults(broker.process.pid)
        consumer.seek_to_beginning(*partitions)
        read = 0
        while read < 240:
            read += sum(map(len, consumer.poll(20_000).values()))
        return page_faults(broker.process.pid) - before

    counts = [page_faults_of_a_read() for _ in range(4)]
    consumer.close()
    assert counts[-1] < 24_000_000 / resource.getpagesize() / 4, counts


def page_faults(pid: int) -> int:
    """Returns the number of page faults of the process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


STUCK = """
import sys, time
import odradek.broker.serve as serve
import odradek.broker.server as server
from odradek.cli.serve import main

class Stuck(server.Broker):
    async def stop(self, **_):
        time.sleep(600)  # as for a thread that waits for its disk

server.Broker = Stuck
serve.STOP_S = 0.2
sys.exit(main(sys.argv[1:]))
"""


async def test_a_broker_of_a_cluster_whose_disk_does_not_answer_ends_after_a_while_and_says_why(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    async with ZooKeeperModel().served() as address:
        options = ("--port", "0", "--data-dir", str(data), "--set", f"zookeeper.connect={address}")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", STUCK, *options, stdout=pipe, stderr=pipe)
        assert process.stdout is not None
        assert (await process.stdout.readline()).startswith(b"ready ")
        process.terminate()
        _, errors = await process.communicate()
    assert process.returncode == 1
    said = errors.decode().splitlines()[-1]
    assert said == f"odradek: {data}: not closed in 0.2 s; the next start recovers the logs"
