"""A proxy on the event loop of the test, and what it has recorded."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from odradek.clients.admin.client import parse_addresses
from odradek.clients.recording.proxy import Proxy, recording_proxy
from odradek.clients.recording.recording_file import Entry, Recording
from odradek.clients.recording.show import Shown, frames
from odradek.clients.recording.streams import Dial
from odradek.storage.files import Files, OsFiles
from odradek.timer import SystemClock


@contextlib.asynccontextmanager
async def proxied(
    upstream: str, file: Path, dial: Dial | None = None, files: Files | None = None
) -> AsyncIterator[Proxy]:
    """A proxy on a free port."""
    addresses, listen = parse_addresses(upstream), ("127.0.0.1", 0)
    connecting = Dial() if dial is None else dial
    opened = recording_proxy(addresses, listen, str(file), connecting, files or OsFiles(), SystemClock())
    async with opened as proxy:
        yield proxy


def bootstrap(proxy: Proxy) -> str:
    return f"{proxy.address[0]}:{proxy.address[1]}"


def entries_of(file: Path) -> list[Entry]:
    with file.open("rb") as stream:
        recording = Recording(stream, str(file))
        entries = list(recording.entries())
    assert not recording.torn
    return entries


def frames_of(file: Path) -> list[Shown]:
    return list(frames(entries_of(file)))
