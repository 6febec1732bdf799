"""Warms memory before rows that write files.

On a machine that has served for a while, the page cache fills the free memory, and a write reuses existing pages. A
virtual machine that has just started (or returns free memory to its host) must first get each page from the host. That
costs several times as much as the write itself, on every broker alike, and hides the differences. So before each
measurement the free memory is filled with the page cache of a hole in a file, whose pages the kernel then reuses.
"""

from __future__ import annotations

import os
from pathlib import Path

LEFT_FREE_BYTES = 160 * 1024 * 1024
"""Memory that stays free: slightly more than the kernel's own reserve."""
HOLE_BYTES = 1 << 42
CHUNK_BYTES = 1 << 24


class WarmMemory:
    """Fills free memory by reading a file that is one large hole. Each call reads on where the last one ended, because
    pages that are still cached would take no free memory.
    """

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
    """Returns MemFree, which excludes the page cache."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0
