"""What a broker may have left behind in this process."""

from __future__ import annotations

import gc
import os
import tempfile
import threading


def open_files() -> set[str]:
    """Returns the open files of this process, including sockets and pipes."""
    targets = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            targets.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            continue
    return targets


def left_behind() -> tuple[set[str], set[str], set[str]]:
    gc.collect()
    return open_files(), {thread.name for thread in threading.enumerate()}, set(os.listdir(tempfile.gettempdir()))
