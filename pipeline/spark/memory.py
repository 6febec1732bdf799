"""The heap size of Spark's Java process: a quarter of the available memory, at least 1 GiB and at most 8 GiB.

With a local master this process does all the work; with a cluster it plans, and collects results. Spark's default is
1 GiB on every machine. The available memory is the machine's, or the limit of a control group (a container's) if that
is less. Precedence: `[spark] spark.driver.memory`, the setting `driver-memory`, spark-defaults.conf,
SPARK_DRIVER_MEMORY, the quarter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings

OPTION = "spark.driver.memory"
VARIABLE = "SPARK_DRIVER_MEMORY"
SHARE = 4
LEAST, MOST = 1 << 30, 8 << 30
_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def derived_memory(available: int) -> str:
    """Returns the heap for a machine with `available` bytes, in Spark's notation: `2048m`."""
    return f"{min(max(available // SHARE, LEAST), MOST) >> 20}m"


def available_memory(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """Returns the bytes of the machine, or the lowest limit of the control groups that contain this process."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, mount)])


def _limits(groups: Path, mount: Path) -> Iterator[int]:
    """Yields the limits of this process's control group and its ancestors, of cgroup v1 and v2.

    In a container the top of the mount is the container's group, whatever the path in /proc/self/cgroup."""
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers == "":
            yield from _limits_above(mount, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(mount / "memory", path, "memory.limit_in_bytes")


def _limits_above(top: Path, path: str, file: str) -> Iterator[int]:
    group = top / path.lstrip("/")
    for directory in {top, group, *(parent for parent in group.parents if parent.is_relative_to(top))}:
        try:
            limit = (directory / file).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():
            yield int(limit)


def given_memory(settings: Settings) -> str | None:
    """Returns the heap in the settings, if any. Raises PipelineError if Java could not parse it."""
    option = settings.spark.get(OPTION)
    size = option or settings.driver_memory
    if size and size_of(size) is None:
        name = f"[spark] {OPTION}" if option else "driver-memory"
        raise PipelineError(f"{name} is {size!r}, not a heap size", "set a number with m or g: 2g")
    return size or None


def size_of(text: str) -> int | None:
    """Parses `512m`, `2g` to bytes. None if invalid. The unit is required: without it Java would read bytes."""
    found = re.fullmatch(r"([1-9]\d*)([kmgt])b?", text.strip().lower())
    return int(found[1]) << _UNITS[found[2]] if found else None


def planned_memory(
    settings: Settings, defaults: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """Returns the heap for a process to be started, and its source. `defaults`: those of spark-defaults.conf.

    Raises PipelineError."""
    if size := given_memory(settings):
        return size, f"[spark] {OPTION}" if OPTION in settings.spark else "driver-memory"
    if size := defaults.get(OPTION):
        return size, "spark-defaults.conf"
    if size := environ.get(VARIABLE):
        return size, VARIABLE
    available = available_memory()
    return derived_memory(available), f"a quarter of {available / (1 << 30):.1f} GiB, from 1 to 8 GiB"
