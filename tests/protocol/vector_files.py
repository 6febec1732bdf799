"""The message vectors of Apache Kafka, read from tests/vectors.

They are of two releases: 3.9.1, and in `kafka_4.4` what 4.4.0 adds. Each version of a message has its lines in one
place: in `kafka_4.4` if the data of 3.9.1 lacks the version or has other fields in it. Lines of 3.9.1 that the reader
of 4.4.0 judges otherwise are left out: tags that have a meaning since, and negative numbers of tags.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak import SOAK

VECTORS = Path(__file__).parent.parent / "vectors"
RELEASES = (VECTORS, VECTORS / "kafka_4.4")
NOT_MESSAGES = ("frames", "malformed")


def _names(folder: str) -> list[str]:
    return sorted({path.stem for release in RELEASES for path in (release / folder).glob("*.jsonl")})


MESSAGE_FILES = [name for name in _names("messages") if name not in NOT_MESSAGES]
COORDINATOR_FILES = _names("coordinator_records")


def lines_of(path: str) -> Iterator[dict[str, Any]]:
    """The lines of a file below tests/vectors."""
    with (VECTORS / path).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def table(path: str) -> Any:
    return json.loads((VECTORS / path).read_text(encoding="utf-8"))


def message_vectors(name: str) -> Iterator[dict[str, Any]]:
    """The lines of both releases, also of `frames` and `malformed`."""
    return _lines_of_releases(f"messages/{name}.jsonl")


def coordinator_vectors(name: str) -> Iterator[dict[str, Any]]:
    """The lines of both releases. The version of a key is its record type, which 4.4.0 calls so."""
    for line in _lines_of_releases(f"coordinator_records/{name}.jsonl"):
        record_type = line.pop("recordType", None)
        yield line if record_type is None or name.endswith("Value") else {**line, "version": record_type}


def _lines_of_releases(path: str) -> Iterator[dict[str, Any]]:
    for release in RELEASES:
        if (release / path).exists():
            yield from lines_of(str(release / path))


def cut_points(data: bytes) -> list[int]:
    """Positions to cut `data`: all in a soak, else both ends and some between that depend on its bytes.

    Vectors of one message differ little, so together their samples cover most positions.
    """
    size = len(data)
    if SOAK or size <= 24:
        return list(range(size))
    return sorted({*range(6), *range(size - 6, size), *random.Random(data).sample(range(6, size - 6), 10)})
