"""How much heap Spark's Java process gets: a quarter of the memory that there is, at least 1 GiB and at most 8 GiB.

With a local master this process does all the work; with a cluster it plans, and collects what jobs ask for. Spark
itself gives it 1 GiB on every machine. The memory that there is: the machine's, or less where a control group (a
container's) limits it. The first of these that says something counts: `[spark] spark.driver.memory`, the setting
`driver-memory`, spark-defaults.conf, SPARK_DRIVER_MEMORY, the quarter.
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
    """The heap for a machine with `available` bytes, as Spark writes it: `2048m`."""
    return f"{min(max(available // SHARE, LEAST), MOST) >> 20}m"


def available_memory(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """Bytes of the machine, or of the tightest control group that this process is in."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_limits(groups, mount)])


def _limits(groups: Path, mount: Path) -> Iterator[int]:
    """The limits of the control groups, of either version of the kernel's interface, from this one's group upwards.

    In a container the mount shows the container's group at its top, whatever path the process is said to have."""
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
            said = (directory / file).read_text().strip()
        except OSError:
            continue
        if said.isdigit():
            yield int(said)


def given_memory(settings: Settings) -> str | None:
    """What the settings say. Raises PipelineError if Java could not read it."""
    option = settings.spark.get(OPTION)
    said = option or settings.driver_memory
    if said and size_of(said) is None:
        name = f"[spark] {OPTION}" if option else "driver-memory"
        raise PipelineError(f"{name} is {said!r}, which is no size of a heap", "give a number with m or g: 2g")
    return said or None


def size_of(text: str) -> int | None:
    """The bytes of `512m`, `2g`; None of what is no such size. The unit is required: without it Java takes bytes."""
    found = re.fullmatch(r"([1-9]\d*)([kmgt])b?", text.strip().lower())
    return int(found[1]) << _UNITS[found[2]] if found else None


def planned_memory(
    settings: Settings, defaults: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> tuple[str, str]:
    """The heap of a process that is to be started, and who says so. `defaults`: those of spark-defaults.conf.

    Raises PipelineError."""
    if said := given_memory(settings):
        return said, f"[spark] {OPTION}" if OPTION in settings.spark else "driver-memory"
    if said := defaults.get(OPTION):
        return said, "spark-defaults.conf"
    if said := environ.get(VARIABLE):
        return said, VARIABLE
    available = available_memory()
    return derived_memory(available), f"a quarter of {available / (1 << 30):.1f} GiB, from 1 to 8 GiB"
