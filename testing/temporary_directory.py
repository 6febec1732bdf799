"""The temporary directory of a broker or a cluster.

Few files are removed at once. More of them are removed in a thread: a broker with thousands of logs has as many
folders, their removal takes a second or two, and other tasks of the event loop go on meanwhile.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from odradek.broker.background.background import run_all_in_threads
from odradek.testing.process_directories import PROCESS_DIRECTORIES

FEW_FILES = 100
"""What is removed within a few milliseconds."""


@contextlib.asynccontextmanager
async def temporary_directory() -> AsyncIterator[Path]:
    """Yields a new directory, and removes it at the end. Removes those of processes that were killed, too."""
    directories = PROCESS_DIRECTORIES
    await run_all_in_threads([partial(_try_to, directories.removal(path)) for path in directories.adopt_left()])
    path = directories.make()
    try:
        yield Path(path)
    finally:
        removal = directories.removal(path)
        if len(list(islice(removal, FEW_FILES))) == FEW_FILES:
            await run_all_in_threads([partial(_to_the_end, removal)])


def _to_the_end(removal: Iterator[None]) -> None:
    deque(removal, maxlen=0)


def _try_to(removal: Iterator[None]) -> None:
    with contextlib.suppress(OSError):
        _to_the_end(removal)
