"""A broker as a process: cli/serve.py runs it.

When clients are served, one line `ready HOST:PORT` is printed on stdout. If tests control the broker, a line
`test-control http://HOST:PORT TOKEN` comes before it. The log goes to stderr. The broker also runs
if nobody reads either. SIGTERM, SIGINT and SIGHUP stop it in order (except SIGHUP under nohup); a second signal ends it
at once. If the broker cannot start, it prints one line on stderr and exits with status 1. It does the same if a log
directory cannot be marked as cleanly shut down: its logs are recovered at the next start. That is also so if
a broker of a cluster takes longer than STOP_S to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import odradek.broker.quick_imports  # noqa: F401 - before all others
from odradek.broker.logging.structured_logging import configure_logging
from odradek.broker.metadata_store.factory import NewMetadataStore, metadata_store_of
from odradek.broker.network.open_files import allow_many_files
from odradek.broker.settings.config import BrokerConfig, ConfigError, load_config
from odradek.broker.settings.odradek import RELEASES
from odradek.broker.start_error import StartError
from odradek.timer import SystemClock

if TYPE_CHECKING:
    from random import Random

GC_THRESHOLDS = (50_000, 2, 10_000)
"""With Python's defaults, a million parked requests block the broker for 200 ms at a time. The second generation is
small, so that a request with a million items does not block it either."""
ECHO_S = 1.0
STOP_S = 45.0
"""How long a broker of a cluster may take to stop. The service units that we write kill it after 60 seconds."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MALLOC_OPTIONS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 128 << 20}
"""By default glibc returns the memory of a sent response to the kernel, which zeroes it again for the next one: with
fetches of 16 MB that takes half of all processor time. So up to 128 MB of freed memory are kept."""


class TestControl(Protocol):
    """Faults of a broker under test, and the server that controls them (testing/control)."""

    def broker_options(self) -> dict[str, Any]:
        """Returns arguments for the `Broker`."""

    async def start(self, source: Random) -> str:
        """Starts the server. Returns the line that tells its address and token. Raises StartError."""

    async def stop(self) -> None:
        """Stops the server."""


NewTestControl = Callable[[BrokerConfig], TestControl]
"""Raises ConfigError."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `odradek serve`."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a server.properties; without it, the single-node settings that come with Odradek",
    )
    parser.add_argument(
        "--port", type=port_number, metavar="N", help="port of the first listener; 0 selects a free one"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the logs: log.dirs")
    parser.add_argument(
        "--metrics-port", type=port_number, metavar="N", help="serve /metrics, /health and the console on this port"
    )
    parser.add_argument("--metrics-host", metavar="HOST", help="address of the metrics port (default: 127.0.0.1)")
    parser.add_argument(
        "--as-version",
        choices=RELEASES,
        metavar="RELEASE",
        help=f"serve clients the APIs of another release of Kafka, {RELEASES[0]} to {RELEASES[-1]}",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="one setting; may be repeated"
    )


def run(
    arguments: argparse.Namespace,
    new_metadata_store: NewMetadataStore = metadata_store_of,
    new_test_control: NewTestControl | None = None,
) -> int:
    """Serves until a signal. Returns the exit status: 0, or 1 if the broker could not start or stop cleanly."""
    gc.disable()
    _fill_standard_streams()
    open_files = allow_many_files()
    configure_logging(SystemClock().wall_ms)
    try:
        settings = list(arguments.settings)
        if arguments.metrics_port is not None:
            settings.append(f"odradek.metrics.port={arguments.metrics_port}")
        if arguments.metrics_host is not None:
            settings.append(f"odradek.metrics.host={arguments.metrics_host}")
        if arguments.as_version is not None:
            settings.append(f"odradek.as.version={arguments.as_version}")
        config = load_config(
            arguments.config,
            port=arguments.port,
            data_dir=arguments.data_dir,
            settings=settings,
            environment=os.environ,
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            unclean = runner.run(serve(config, open_files, new_metadata_store, new_test_control))
    except (ConfigError, StartError) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    else:
        for directory, reason in unclean.items():
            print(f"odradek: {directory} is not marked as cleanly shut down: {reason}", file=sys.stderr)
        return 1 if unclean else 0
    finally:
        _discard_unwritable_streams()


async def serve(
    config: BrokerConfig,
    open_files: int,
    new_metadata_store: NewMetadataStore = metadata_store_of,
    new_test_control: NewTestControl | None = None,
) -> dict[str, str]:
    """Starts a broker, prints the ready line, and stops the broker at the first signal. `open_files` is how many files
    it may have open. With `new_test_control`, the broker has faults, which tests control. Returns its
    `unclean_directories`.

    Raises StartError, ConfigError."""
    from odradek.broker.server import Broker, log

    gc.freeze()  # what has been imported stays, so that the collection after the start need not visit it
    stop_requested = asyncio.Event()
    limit = _StopLimit(math.inf if config.zookeeper_connect is None else STOP_S, config.log_dirs)
    _on_signals(stop_requested, limit.begin)
    control = None if new_test_control is None else new_test_control(config)
    options = {} if control is None else control.broker_options()
    broker = Broker(config, open_files=open_files, new_metadata_store=new_metadata_store, **options)
    if not await _started_before(stop_requested, broker.start()):
        limit.cancel()
        return {}
    try:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        if control is not None:
            _print_line(await control.start(broker.random))
        _print_line(f"ready {broker.bootstrap}")
        _keep_freed_memory()
        await stop_requested.wait()
        log.info("broker stopping", broker_id=broker.broker_id)
    finally:
        if control is not None:
            await control.stop()
        await broker.stop()
        limit.cancel()
    log.info("broker stopped", broker_id=broker.broker_id)
    return broker.unclean_directories


def _keep_freed_memory() -> None:
    """Sets MALLOC_OPTIONS if malloc is glibc's and the environment does not configure it."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in MALLOC_OPTIONS.items():
            mallopt(option, value)


async def _started_before(stop_requested: asyncio.Event, start: Coroutine[Any, Any, None]) -> bool:
    """Returns False if the signal comes first: it cancels a long recovery, which the next start continues."""
    starting = asyncio.ensure_future(start)
    stopping = asyncio.ensure_future(stop_requested.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    if starting.cancelled():
        return False
    starting.result()
    return True


def _on_signals(stop_requested: asyncio.Event, on_first: Callable[[], object]) -> None:
    """The first signal stops the broker in order, the second one ends the process.

    The same signal again within a second is ignored: when a process group is signaled, make or a shell may pass the
    signal on to the broker a second time.
    """
    first: tuple[int, float] | None = None

    def stop(number: int) -> None:
        nonlocal first
        now_s = loop.time()
        if first is None:
            first = (number, now_s)
            on_first()
            stop_requested.set()
        elif number != first[0] or now_s - first[1] > ECHO_S:
            os._exit(128 + number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop, signal.SIGHUP)


def _fill_standard_streams() -> None:
    """Opens those of the descriptors 0 to 2 that are closed, so that sockets do not get these numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - stays open until the process ends


class _StopLimit:
    """Ends the process, with status 1, `seconds` after `begin`: a service manager would kill it soon. The broker waits
    for its disk then, in threads that nothing can end, and the loop may wait for them: so this is a thread, too.
    """

    def __init__(self, seconds: float, log_dirs: Sequence[str]) -> None:
        self._seconds = seconds
        self._log_dirs = log_dirs
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        if self._seconds < math.inf:
            self._timer = threading.Timer(self._seconds, self._give_up)
            self._timer.daemon = True
            self._timer.start()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        directories = ", ".join(self._log_dirs)
        reason = f"not closed in {self._seconds:g} s; the next start recovers the logs"
        with contextlib.suppress(OSError):
            print(f"odradek: {directories}: {reason}", file=sys.stderr, flush=True)
        os._exit(1)


def _print_line(line: str) -> None:
    """Prints a line. Ignores a pipe without a reader."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _discard_unwritable_streams() -> None:
    """Redirects unwritable streams to /dev/null: Python would flush them again at exit and fail with status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's loop factory, or None (asyncio's default) if uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def port_number(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port number")
    return port
