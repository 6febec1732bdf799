"""`python -m odradek.cli.local_cluster`: a ZooKeeper and several brokers, until SIGINT or SIGTERM.

When all of them serve, it prints one line `ready HOST:PORT,HOST:PORT,...` to stdout. Everything is below the data
directory, also for the next time. If a process ends, all others are ended, and the status is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path

from odradek.cli.local_cluster.processes import NotStarted, RunningProcess
from odradek.cli.local_cluster.zookeeper_server import NoZooKeeper, write_configuration, zookeeper_command

START_S = 60.0
END_S = 50.0
"""A broker ends within 45 s by itself."""
SESSION_TIMEOUT_MS = 6000


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m odradek.cli.local_cluster", description=__doc__)
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="how many brokers (default 3)")
    parser.add_argument("--port", type=int, default=9092, help="port of the first broker (default 9092)")
    parser.add_argument("--zookeeper-port", type=int, default=2181, help="port of ZooKeeper (default 2181)")
    parser.add_argument("--data-dir", type=Path, default=Path("cluster-data"), help="default ./cluster-data")
    arguments = parser.parse_args(argv)
    try:
        command = zookeeper_command()
    except NoZooKeeper as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    return asyncio.run(LocalCluster(arguments, command).run())


class LocalCluster:
    """`zookeeper` is the command before a zoo.cfg."""

    def __init__(self, arguments: argparse.Namespace, zookeeper: Sequence[str]) -> None:
        self._directory: Path = arguments.data_dir.resolve()
        self._ports = [arguments.port + number for number in range(arguments.brokers)]
        self._zookeeper_port: int = arguments.zookeeper_port
        self._zookeeper = zookeeper
        self._running: list[RunningProcess] = []

    async def run(self) -> int:
        """Returns the exit status."""
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        try:
            if not await self._unless(stopping, self._start()):
                return 0
            print("ready " + ",".join(f"127.0.0.1:{port}" for port in self._ports), flush=True)
            print(f"logs are in {self._directory}; Ctrl-C ends the cluster", file=sys.stderr)
            ended = await self._first_end(stopping)
        except NotStarted as error:
            print(f"odradek: {error}", file=sys.stderr)
            return 1
        finally:
            await self._end()
        if ended is not None:
            print(f"odradek: {ended}", file=sys.stderr)
        return 0 if ended is None else 1

    async def _start(self) -> None:
        configuration = write_configuration(self._directory / "zookeeper", self._zookeeper_port)
        log = self._directory / "zookeeper.log"
        await self._begin("ZooKeeper", [*self._zookeeper, str(configuration)], log, self._zookeeper_port)
        for number, port in enumerate(self._ports, 1):
            log = self._directory / f"broker-{number}.log"
            await self._begin(f"broker {number}", self._serve(number, port), log, port)

    async def _begin(self, name: str, command: Sequence[str], log: Path, port: int) -> None:
        process = await RunningProcess.start(name, command, log)
        self._running.append(process)
        await process.listens(port, START_S)

    def _serve(self, number: int, port: int) -> list[str]:
        replicas = min(3, len(self._ports))
        settings = {
            "broker.id": number,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": self._directory / f"broker-{number}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            "default.replication.factor": replicas,
            "min.insync.replicas": max(replicas - 1, 1),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": max(replicas - 1, 1),
        }
        options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "odradek.broker", *options]

    @staticmethod
    async def _unless(stopping: asyncio.Event, starting: Coroutine[object, object, None]) -> bool:
        """Returns False if the signal comes first."""
        task, signaled = asyncio.ensure_future(starting), asyncio.ensure_future(stopping.wait())
        await asyncio.wait([task, signaled], return_when=asyncio.FIRST_COMPLETED)
        signaled.cancel()
        if task.done():
            await task
            return True
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return False

    async def _first_end(self, stopping: asyncio.Event) -> str | None:
        """Returns a report if a process ends before the signal."""
        ends = [asyncio.ensure_future(process.ended()) for process in self._running]
        signaled = asyncio.ensure_future(stopping.wait())
        await asyncio.wait([*ends, signaled], return_when=asyncio.FIRST_COMPLETED)
        report = next((end.result() for end in ends if end.done()), None)
        for waiting in (*ends, signaled):
            waiting.cancel()
        return None if stopping.is_set() else report

    async def _end(self) -> None:
        """Ends the brokers, one after the other, and then ZooKeeper."""
        while self._running:
            await self._running.pop().end(END_S, lambda line: print(line, file=sys.stderr, flush=True))


if __name__ == "__main__":
    sys.exit(main())
