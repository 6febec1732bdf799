"""Reads log directories without Spark, and the expected content of Apache Kafka's logs (tests/vectors)."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from odradek.pipeline.segments.options import parse_options
from odradek.pipeline.segments.planning import SPLIT_BYTES, plan
from odradek.pipeline.segments.ranges import SegmentRange
from odradek.pipeline.segments.reading import read_range

VECTORS = Path(__file__).parent.parent.parent / "vectors"
LOGS = VECTORS / "logs"
FIRST = "00000000000000000000"

Row = dict[str, Any]


def rows_of(path: Path | str, topic: str = "", *, split_bytes: int = SPLIT_BYTES, **options: str) -> list[Row]:
    """All rows of the data source, with headers, in order of topic, partition and offset."""
    ranges, more = planned(path, topic, split_bytes=split_bytes, **options)
    return [row for one in ranges for row in rows_in(one, more)]


def planned(
    path: Path | str, topic: str = "", *, split_bytes: int = SPLIT_BYTES, **options: str
) -> tuple[list[SegmentRange], dict[str, str]]:
    given = {"path": str(path), "includeHeaders": "true", **options}
    given |= {"topic": topic} if topic else {"topicsPattern": ".*"}
    return plan(parse_options(given), split_bytes), given


def rows_in(one: SegmentRange, options: dict[str, str]) -> list[Row]:
    return [row for batch in read_range(one, parse_options(options)) for row in batch.to_pylist()]


def write_log(directory: Path, *segments: bytes | tuple[int, bytes]) -> Path:
    """Writes a log directory with one partition, t-0, from segments: bytes, or (base offset, bytes)."""
    (directory / "t-0").mkdir(parents=True, exist_ok=True)
    for segment in segments:
        base, data = segment if isinstance(segment, tuple) else (0, segment)
        (directory / "t-0" / f"{base:020d}.log").write_bytes(data)
    return directory


def copy_of(name: str, target: Path, *partitions: str) -> Path:
    """A writable copy of one of the vectors' log directories, or of some partitions of it."""
    source = LOGS / name
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if entry.is_dir() and (not partitions or entry.name in partitions) and entry.name not in ("contents", "dump"):
            shutil.copytree(entry, target / entry.name, copy_function=shutil.copyfile)
        elif entry.name.endswith("checkpoint"):
            shutil.copyfile(entry, target / entry.name)
    return target


def json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def stored(batches: list[Any], topic: str, partition: int) -> list[Row]:
    """The records of described batches, except control batches, as rows."""
    return [
        {
            "key": record["key"],
            "value": record["value"],
            "topic": topic,
            "partition": partition,
            "offset": record["offset"],
            "timestamp": record["timestamp"],
            "timestampType": {"CreateTime": 0, "LogAppendTime": 1}[batch["timestampType"]],
            "headers": [{"key": key, "value": value} for key, value in record["headers"]] or None,
        }
        for batch in batches
        if not batch["isControl"]
        for record in batch["records"]
    ]


def as_vector(row: Row) -> Row:
    """A row of the source in the form of the vectors: bytes as base64 (long ones as a digest), times in ms."""
    headers = row["headers"] and [{"key": one["key"], "value": _text(one["value"])} for one in row["headers"]]
    milliseconds = row["timestamp"].timestamp() * 1000
    return row | {
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "timestamp": round(milliseconds),
        "headers": headers,
    }


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    if len(data) > 512:
        return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return base64.b64encode(data).decode()
