"""The message vectors of Apache Kafka, read from tests/vectors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak import SOAK

VECTORS = Path(__file__).parent.parent / "vectors"
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


def cut_points(data: bytes) -> list[int]:
    """Positions to cut `data`: all in a soak, else both ends and some between that depend on its bytes.

    Vectors of one message differ little, so together their samples cover most positions.
    """
    size = len(data)
    if SOAK or size <= 24:
        return list(range(size))
    return sorted({*range(6), *range(size - 6, size), *random.Random(data).sample(range(6, size - 6), 10)})
