"""Settings that Kafka 3.9 and 4.4 do not agree on. Odradek's are those of 4.4 (tests/broker/settings)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[2] / "vectors"


def _settings(folder: str) -> dict[tuple[str, str], Any]:
    tables = json.loads((VECTORS / folder / "configs.json").read_text())
    return {(kind, row["name"]): row for kind, rows in tables.items() for row in rows}


_OLDER, _NEWER = _settings(""), _settings("kafka_4.4")
CHANGED = {key[1] for key in _OLDER.keys() | _NEWER.keys() if _OLDER.get(key) != _NEWER.get(key)}
"""Those that one of them lacks, or that differ in type, default, bounds or anything else."""


def without_changed(answer: Any) -> Any:
    """Returns an answer without these settings."""
    if isinstance(answer, list):
        return [without_changed(each) for each in answer if not _is_changed(each)]
    if isinstance(answer, dict):
        return {name: without_changed(value) for name, value in answer.items()}
    return answer


def _is_changed(item: Any) -> bool:
    return isinstance(item, dict) and "IsSensitive" in item and item["Name"] in CHANGED
