"""The results as a table for readers and as JSON for scripts."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contestants import BEFORE, KAFKA, ODRADEK
from benchmarks.kafka_versions import kafka_version
from benchmarks.measurement import Reading, Result
from odradek.broker.build_info import build_info

NAMES = (ODRADEK, BEFORE, KAFKA)


def table(results: Sequence[Result]) -> str:
    """Returns one line per metric: medians, ratios to the other brokers, and the brokers' CPU time in the median round.

    An older checkout has columns only if it was measured.
    """
    names = [name for name in NAMES if name != BEFORE or any(name in result.readings for result in results)]
    lines = [*_headings(names), *(_line(result, names) for result in results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def as_json(results: Sequence[Result], notes: Sequence[str], rounds: int) -> dict[str, Any]:
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "rounds": rounds,
        "kafka": kafka_version(),
        "notes": list(notes),
        "rows": [
            {
                "row": result.row,
                "metric": result.metric.name,
                "unit": result.metric.unit,
                "better": result.metric.better,
                "wanted": result.metric.wanted,
                "ratio": result.ratio(),
                "cpu_ratio": result.cpu_ratio(),
                "verdict": result.verdict,
                **_before(result),
                "medians": {name: _as_dict(result.median(name)) for name in result.readings},
                "readings": {name: [_as_dict(one) for one in readings] for name, readings in result.readings.items()},
            }
            for result in results
        ],
    }


def slower_than_before(results: Sequence[Result]) -> list[str]:
    """Returns a note for each metric that is worse than before by more than the rounds vary."""
    return [
        f"{result.metric.name}: {result.against_before} than before in every round"
        for result in results
        if result.against_before
    ]


def _before(result: Result) -> dict[str, Any]:
    if BEFORE not in result.readings:
        return {}
    return {
        "ratio_to_before": result.ratio(BEFORE),
        "cpu_ratio_to_before": result.cpu_ratio(BEFORE),
        "against_before": result.against_before,
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


def _headings(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the two heading lines."""
    ratios = [f"to {name}" for name in names if name != ODRADEK]
    none = ("",) * len(names)
    verdicts = ("",) * (2 if BEFORE in names else 1)
    return [
        (
            "",
            "",
            *none,
            *("ratio" for _ in ratios),
            "",
            *("CPU s" for _ in names),
            *("us/op" for _ in names),
            *verdicts,
        ),
        ("", "unit", *(_shown(name) for name in names), *ratios, "wanted", *names, *names, *verdicts),
    ]


def _shown(name: str) -> str:
    return f"{name} {kafka_version()}" if name == KAFKA else name


def _line(result: Result, names: Sequence[str]) -> tuple[str, ...]:
    medians = [result.median(name) for name in names]
    counted = [each if each is not None and each.operations else None for each in medians]
    return (
        result.metric.name,
        result.metric.unit,
        *(_number(each and each.value) for each in medians),
        *(_times(result.ratio(name)) for name in names if name != ODRADEK),
        "" if result.metric.wanted is None else f"{result.metric.wanted:g}x",
        *(_number(each and each.cpu_seconds) for each in counted),
        *(_number(each and each.cpu_us_per_operation) for each in counted),
        result.verdict,
        *([result.against_before] if BEFORE in names else []),
    )


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


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
