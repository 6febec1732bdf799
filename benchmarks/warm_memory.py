"""Memory that has been used before, for the rows that write files.

A machine that has served for a while has its free memory full of the page cache, and a write takes over pages that
exist. A virtual machine that has just been started (or gives free memory back to its host) has to be given each page
first, which costs several times as much as the write itself, on every broker alike, and drowns what is to be compared.
So before each measurement the free memory is filled with the page cache of a hole in a file, which the kernel hands out
again page by page.
"""

from __future__ import annotations

import os
from pathlib import Path

LEFT_FREE_BYTES = 160 * 1024 * 1024
"""Little more than the kernel keeps free by itself: what is left is what was given back and is cold."""
HOLE_BYTES = 1 << 42
CHUNK_BYTES = 1 << 24


class WarmMemory:
    """Fills what is free; each time with the next part of the hole, since the last one is still there."""

    def __init__(self, workspace: Path) -> None:
        self._path = workspace / "hole"
        self._position = 0

    def fill(self) -> None:
        with self._path.open("ab+", buffering=0) as file:
            os.ftruncate(file.fileno(), HOLE_BYTES)
            buffer = bytearray(CHUNK_BYTES)
            most = self._position + 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
            while free_bytes() > LEFT_FREE_BYTES and self._position < most:
                self._position += os.preadv(file.fileno(), [buffer], self._position)


def free_bytes() -> int:
    """MemFree: in use by nobody, not even as a cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0
