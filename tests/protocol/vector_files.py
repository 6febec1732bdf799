"""The message vectors of Apache Kafka, read from tests/vectors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent.parent / "vectors"
SOAK = os.environ.get("ODRADEK_SOAK") == "1"
NOT_MESSAGES = ("frames", "malformed")

MESSAGE_FILES = sorted(path.stem for path in (VECTORS / "messages").glob("*.jsonl") if path.stem not in NOT_MESSAGES)
COORDINATOR_FILES = sorted(path.stem for path in (VECTORS / "coordinator_records").glob("*.jsonl"))


def lines_of(path: str) -> Iterator[dict[str, Any]]:
    """The lines of a file below tests/vectors."""
    with (VECTORS / path).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def table(path: str) -> Any:
    return json.loads((VECTORS / path).read_text(encoding="utf-8"))


def message_vectors(name: str) -> Iterator[dict[str, Any]]:
    return lines_of(f"messages/{name}.jsonl")


def coordinator_vectors(name: str) -> Iterator[dict[str, Any]]:
    return lines_of(f"coordinator_records/{name}.jsonl")


def cut_points(size: int, sample: bool) -> list[int]:
    """Where to cut bytes of this size: everywhere, or of long ones at both ends and evenly between."""
    if not sample or size <= 4000:
        return list(range(size))
    return sorted({*range(80), *range(size - 80, size), *range(0, size, size // 40)})
