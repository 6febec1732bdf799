"""The serve command: a broker as a process of its own.

    odradek serve [--config FILE] [--port N] [--data-dir DIR] [--metrics-port N]
                  [--metrics-host HOST] [--set NAME=VALUE]...

When clients are served, one line `ready HOST:PORT` goes to stdout, the log to stderr; it serves also where nobody reads
either. SIGTERM, SIGINT and SIGHUP end it in good order (but SIGHUP under nohup does not); a second one ends it at once.
Whatever keeps it from starting is one line on stderr and exit status 1. So is a log directory that could not be marked
as cleanly shut down: its logs are recovered at the next start.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import odradek.broker.quick_imports  # noqa: F401 - before all others
from odradek.broker.logging.structured_logging import configure_logging
from odradek.broker.network.open_files import allow_many_files
from odradek.broker.settings.config import BrokerConfig, ConfigError, load_config
from odradek.broker.start_error import StartError
from odradek.timer import SystemClock

GC_THRESHOLDS = (50_000, 2, 10_000)
"""With Python's own, a million parked requests stop everyone for 200 ms at a time. The second generation is small: a
request of a million items must not do so either."""
ECHO_S = 1.0
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MALLOC_OPTIONS = {M_MMAP_THRESHOLD: 32 << 20, M_TRIM_THRESHOLD: 128 << 20}
"""glibc gives the memory of an answer that was sent back to the kernel, which fills the next one's with zeros first: of
fetches of 16 MB that is half of all processor time. So up to 128 MB that were needed once are kept."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `odradek serve`."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="a server.properties; without it, the single-node settings that come with Odradek",
    )
    parser.add_argument("--port", type=_port, metavar="N", help="the port of the first listener; 0 takes a free one")
    parser.add_argument("--data-dir", metavar="DIR", help="where the logs are kept: log.dirs")
    parser.add_argument("--metrics-port", type=_port, metavar="N", help="serves /metrics and /health on this port")
    parser.add_argument("--metrics-host", metavar="HOST", help="on this address; without it, on 127.0.0.1")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="one setting; may be repeated"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serves until told to stop. The exit status: 0, or 1 if the broker could not start or not end cleanly."""
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
        config = load_config(arguments.config, port=arguments.port, data_dir=arguments.data_dir, settings=settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            unclean = runner.run(serve(config, open_files))
    except (ConfigError, StartError) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    else:
        for directory, reason in unclean.items():
            print(f"odradek: {directory} is not marked as cleanly shut down: {reason}", file=sys.stderr)
        return 1 if unclean else 0
    finally:
        _give_up_what_nobody_reads()


async def serve(config: BrokerConfig, open_files: int) -> dict[str, str]:
    """Starts a broker that may have so many files open, says so on stdout, and stops it at the first signal.
    Returns its `unclean_directories`.

    Raises StartError."""
    from odradek.broker.server import Broker, log

    stop_requested = asyncio.Event()
    _on_signals(stop_requested)
    broker = Broker(config, open_files=open_files)
    if not await _started_before(stop_requested, broker.start()):
        return {}
    try:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        _print_line(f"ready {broker.bootstrap}")
        _keep_freed_memory()
        await stop_requested.wait()
        log.info("broker stopping", broker_id=broker.broker_id)
    finally:
        await broker.stop()
    log.info("broker stopped", broker_id=broker.broker_id)
    return broker.unclean_directories


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m odradek.broker", description="A Kafka-compatible message broker.")
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _keep_freed_memory() -> None:
    """Where malloc is glibc's, and the environment does not say otherwise."""
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in MALLOC_OPTIONS.items():
            mallopt(option, value)


async def _started_before(stop_requested: asyncio.Event, start: Coroutine[Any, Any, None]) -> bool:
    """False if the signal came first: a start that recovers big logs is given up, and goes on from there next time."""
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


def _on_signals(stop_requested: asyncio.Event) -> None:
    """The first one stops in good order, the second one ends the process.

    The same signal within a second is no second one: a process group that is told to stop hears it twice when its make
    or shell passes it on.
    """
    first: tuple[int, float] | None = None

    def stop(number: int) -> None:
        nonlocal first
        now_s = loop.time()
        if first is None:
            first = (number, now_s)
            stop_requested.set()
        elif number != first[0] or now_s - first[1] > ECHO_S:
            os._exit(128 + number)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop, signal.SIGHUP)


def _fill_standard_streams() -> None:
    """Opens those of descriptors 0 to 2 that were closed, or the next socket would get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives


def _print_line(line: str) -> None:
    """Prints a line. A pipe that nobody reads any more is no reason to end."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _give_up_what_nobody_reads() -> None:
    """Python would try to write it once more at its end, and make that failure the exit status (120)."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, or None for asyncio's own where uvloop is missing."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port")
    return port
