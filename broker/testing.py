"""A broker inside the process, for tests: on a free port and in a temporary directory, removed afterwards.

    async with in_process_broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)

Settings are Kafka's and override the single-node server.properties: `in_process_broker(log_segment_bytes=10_000)` or
`in_process_broker({"log.segment.bytes": "10000"})`. `BrokerThread` runs the broker in a thread of its own, for blocking
clients; the pytest fixture `odradek_broker` uses it. If the program has not configured structlog, only warnings and
errors are logged, to stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, TypeVar

import structlog

from odradek.broker.logging.structured_logging import for_terminal
from odradek.broker.network.open_files import open_files_limit
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.storage.files import Files
from odradek.timer import Clock

T = TypeVar("T")

ANY_PORT = "PLAINTEXT://127.0.0.1:0"


@contextlib.asynccontextmanager
async def in_process_broker(
    settings: Mapping[str, object] | None = None,
    *,
    data_dir: str | Path | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
    files: Files | None = None,
    open_files: int | None = None,
    **more_settings: object,
) -> AsyncIterator[Broker]:
    """Yields a running broker; `.bootstrap` is its HOST:PORT. With `data_dir`, or log.dirs, its data is kept.

    `open_files`: how many files the process may have open (default: the system's limit). Raises StartError."""
    with contextlib.ExitStack() as stack:
        texts = _texts(settings or {}, more_settings)
        if data_dir is None and not texts.keys() & {"log.dir", "log.dirs"}:
            data_dir = stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-"))
        if data_dir is not None:
            texts["log.dirs"] = str(data_dir)
        stack.enter_context(_WARNINGS_ONLY)
        config = BrokerConfig.single_node(texts)
        most_open = open_files_limit() if open_files is None else open_files
        broker = Broker(config, clock=clock, random=random, files=files, open_files=most_open)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


class BrokerThread:
    """A broker on an event loop in a thread of its own. Use it as a context manager, or call `start` and `stop`."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        data_dir: str | Path | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
        **more_settings: object,
    ) -> None:
        """Arguments as for `in_process_broker`. `loop_factory`: uvloop's by default, if installed."""
        self._arguments: dict[str, Any] = {"data_dir": data_dir, **more_settings}
        self._settings = settings
        self._loop_factory = loop_factory or _fastest_loop()
        self._thread = threading.Thread(target=self._run, name="odradek-broker", daemon=True)
        self._started: Future[Broker] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested: asyncio.Event | None = None

    @property
    def broker(self) -> Broker:
        """The broker, for read access only: change it with `call`."""
        return self._started.result()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def data_dir(self) -> Path:
        return Path(self.broker.config.log_dirs[0])

    def start(self) -> None:
        """Returns when clients are served. Raises StartError."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Returns when the broker has stopped and the thread has ended. May be called again."""
        loop, event = self._loop, self._stop_requested
        if loop is not None and event is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # The loop may have been closed already.
                loop.call_soon_threadsafe(event.set)
        self._thread.join()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the broker's loop and returns its result."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def __enter__(self) -> BrokerThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            else:
                raise

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop_requested = asyncio.Event()
        async with in_process_broker(self._settings, **self._arguments) as broker:
            self._started.set_result(broker)
            await self._stop_requested.wait()


def _texts(settings: Mapping[str, object], more_settings: Mapping[str, object]) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more_settings.items()}
    return {"listeners": ANY_PORT, **{name: _text(value) for name, value in {**settings, **named}.items()}}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _StandardError:
    """Writes to the current sys.stderr, which test runners replace for each test."""

    def msg(self, line: str) -> None:
        print(line, file=sys.stderr)

    warning = warn = error = critical = exception = fatal = msg


class _WarningsOnly:
    """While a broker runs, logs only warnings and errors, unless the program has configured structlog.

    structlog's configuration applies to the whole process, so the last of several brokers restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers = 0

    def __enter__(self) -> None:
        with self._lock:
            self._brokers += 1
            if not structlog.is_configured():
                warnings = structlog.make_filtering_bound_logger(logging.WARNING)
                *processors, renderer = structlog.get_config()["processors"]
                structlog.configure(
                    processors=[*processors, for_terminal, renderer],
                    wrapper_class=warnings,
                    logger_factory=_standard_error,
                )

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._brokers -= 1
            if self._brokers == 0 and structlog.get_config()["logger_factory"] is _standard_error:
                structlog.reset_defaults()


def _standard_error(*_: object) -> _StandardError:
    return _StandardError()


_WARNINGS_ONLY = _WarningsOnly()


def _fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
