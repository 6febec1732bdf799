"""Recordings in tests: a proxy that records what a service and a cluster say, and a replay against another cluster.

    with recorded(bootstrap, "orders.rec") as proxy:
        run_my_service(bootstrap_servers=proxy)
    assert replayed("orders.rec", against=odradek_broker.bootstrap) == []

Both block, and run in a thread of their own, so that they may be called beside an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom

from odradek.broker.logging.quiet_logs import QUIET_LOGS
from odradek.broker.settings.properties import parse_property_text
from odradek.clients.admin.client import parse_addresses
from odradek.clients.admin.client_properties import security_of_properties
from odradek.clients.recording.addresses import text_of
from odradek.clients.recording.proxy import recording_proxy
from odradek.clients.recording.recording_file import Recording
from odradek.clients.recording.replay import Difference, Replay
from odradek.clients.recording.streams import Dial
from odradek.clients.recording.target import Target
from odradek.storage.files import OsFiles
from odradek.testing.loop_thread import LoopThread
from odradek.timer import SystemClock


@contextlib.contextmanager
def recorded(bootstrap: str, file: str | Path, *, client_properties: str = "") -> Iterator[str]:
    """Records into a new file what clients and the cluster at `bootstrap` (HOST:PORT,...) say to each other. Yields the
    HOST:PORT to which clients connect instead. `client_properties` is the text of a property file that says how to
    connect to the cluster, with TLS or a login.

    Raises ValueError for another form of address, ConfigError for such properties, OSError, and at the end CannotRecord
    if something could not be written.
    """
    upstream, dial = parse_addresses(bootstrap), _dial(client_properties)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        with QUIET_LOGS.shown():
            listen = ("127.0.0.1", 0)
            async with recording_proxy(upstream, listen, str(file), dial, OsFiles(), SystemClock()) as proxy:
                yield text_of(proxy.address)
                proxy.check()

    thread = LoopThread(opened, name="odradek-recording")
    thread.start()
    try:
        yield thread.inside
    finally:
        thread.stop()


def replayed(
    file: str | Path,
    against: str,
    *,
    ignore: Sequence[str] = (),
    timeout_ms: int = 10_000,
    as_timed: bool = False,
    client_properties: str = "",
) -> list[str]:
    """Sends a recording to the cluster at `against` (HOST:PORT), and returns where its responses differ from those that
    were recorded: a line for each difference. `ignore` has patterns for whole places, such as `ApiVersions .*`.

    Each response may take `timeout_ms`. `as_timed` keeps the pauses of the recording. `client_properties`: as for
    `recorded`.

    Raises RecordingError for a file that is not a recording or has no requests, and NetworkError if the cluster cannot
    be reached.
    """
    dial = _dial(client_properties)
    known = [re.compile(pattern) for pattern in ignore]
    found: list[str] = []

    def report(difference: Difference) -> None:
        if not any(pattern.fullmatch(difference.where) for pattern in known):
            found.append(difference.line("recorded", against))

    def run() -> None:
        target = Target(parse_addresses(against)[0], dial, timeout_ms / 1000)
        with open(file, "rb") as stream:
            recording = Recording(stream, str(file))
            replay = Replay([target], recording.started_ms, SystemClock(), report, is_timed=as_timed)
            asyncio.run(replay.run(recording.entries))

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="odradek-replay") as pool:
        pool.submit(run).result()
    return found


def _dial(client_properties: str) -> Dial:
    security = security_of_properties(parse_property_text(client_properties), OsFiles(), os.environ)
    return Dial.secured(security.tls, security.login, SystemRandom())
