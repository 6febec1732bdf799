"""The results as a table for people and as JSON for scripts."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measurement import Reading, Result
from odradek.broker.build_info import build_info

HEADINGS = ("", "unit", "odradek", "kafka", "ratio", "wanted", "CPU s", "CPU s", "us/op", "us/op", "")
GROUPS = ("", "", "", "", "", "", "odradek", "kafka", "odradek", "kafka", "")


def table(results: Sequence[Result]) -> str:
    """One line per metric: medians, how many times better ours is, and the brokers' CPU time in the median round."""
    lines = [GROUPS, HEADINGS, *(_line(result) for result in results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width) for column, (cell, width) in columns(line, widths)
        ).rstrip()
        for line in lines
    )


def columns(line: Sequence[str], widths: Sequence[int]) -> list[tuple[int, tuple[str, int]]]:
    return list(enumerate(zip(line, widths, strict=True)))


def as_json(results: Sequence[Result], notes: Sequence[str], rounds: int) -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "rounds": rounds,
        "notes": list(notes),
        "rows": [
            {
                "row": result.row,
                "metric": result.metric.name,
                "unit": result.metric.unit,
                "better": result.metric.better,
                "wanted": result.metric.wanted,
                "ratio": result.ratio,
                "cpu_ratio": result.cpu_ratio,
                "verdict": result.verdict,
                "medians": {name: _as_dict(result.median(name)) for name in result.readings},
                "readings": {name: [_as_dict(one) for one in readings] for name, readings in result.readings.items()},
            }
            for result in results
        ],
    }


def machine() -> dict[str, Any]:
    info = build_info()
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "compiled": info.is_compiled,
        "load": list(os.getloadavg()),
        "loop": "uvloop" if "uvloop" in sys.modules or _has_uvloop() else "asyncio",
    }


def _line(result: Result) -> tuple[str, ...]:
    ours, kafka = result.median("odradek"), result.median("kafka")
    return (
        result.metric.name,
        result.metric.unit,
        _number(ours.value if ours else None),
        _number(kafka.value if kafka else None),
        "" if result.ratio is None else f"{result.ratio:.2f}x",
        "" if result.metric.wanted is None else f"{result.metric.wanted:g}x",
        _number(ours.cpu_seconds if ours and ours.operations else None),
        _number(kafka.cpu_seconds if kafka and kafka.operations else None),
        _number(ours.cpu_us_per_operation if ours and ours.operations else None),
        _number(kafka.cpu_us_per_operation if kafka and kafka.operations else None),
        result.verdict,
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _as_dict(reading: Reading | None) -> dict[str, float] | None:
    return None if reading is None else {**reading._asdict(), "cpu_us_per_operation": reading.cpu_us_per_operation}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _has_uvloop() -> bool:
    from importlib.util import find_spec

    return find_spec("uvloop") is not None
