"""The temporary directory of a broker or a cluster. It is removed in a thread: a broker with thousands of logs has as
many folders, their removal takes a second or two, and other tasks of the event loop go on meanwhile.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from odradek.broker.background.background import run_all_in_threads


@contextlib.asynccontextmanager
async def temporary_directory() -> AsyncIterator[Path]:
    """Yields a new directory, and removes it at the end."""
    directory = tempfile.TemporaryDirectory(prefix="odradek-")
    try:
        yield Path(directory.name)
    finally:
        await run_all_in_threads([directory.cleanup])
