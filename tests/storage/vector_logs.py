"""Log directories written by Apache Kafka (tests/vectors/logs), opened with that broker's settings."""

import json
import shutil
from pathlib import Path
from typing import Any

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files import Files, OsFiles
from odradek.storage.log.log import Log
from odradek.storage.log_config import LogConfig
from odradek.timer import ManualClock

LOGS = Path(__file__).parent.parent / "vectors" / "logs"
WRITTEN_MS = 1795231531000 + 60_000  # about when that broker ran: it decides which producers have expired


def config_of(topic: str) -> LogConfig:
    """Returns the settings of that broker; offsets, transactions and compacted topics had their own."""
    segment_bytes = 1500 if topic.startswith("compacted") else 4096
    properties = {
        "segment.bytes": segment_bytes,
        "index.interval.bytes": 256,
        "segment.index.bytes": 8192,
        "message.timestamp.type": "LogAppendTime" if topic == "append-time" else "CreateTime",
        "retention.ms": -1,
        "cleanup.policy": "compact" if topic.startswith(("compacted", "__")) else "delete",
    }
    return LogConfig(properties)


def copy_of(name: str, target: Path, *parts: str) -> Path:
    """Returns a writable copy of everything in the set's directory, or of the named entries."""
    source = LOGS / name
    target.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        if parts and entry.name not in parts:
            continue
        if entry.is_dir() and entry.name not in ("contents", "dump"):
            shutil.copytree(entry, target / entry.name, copy_function=shutil.copyfile)
        elif entry.is_file() and entry.suffix not in (".jsonl", ".json"):
            shutil.copyfile(entry, target / entry.name)
    return target


def open_manager(directory: Path, files: Files | None = None, clock: ManualClock | None = None) -> LogManager:
    clock = clock if clock is not None else ManualClock(wall_ms=WRITTEN_MS)
    manager = LogManager([str(directory)], files if files is not None else OsFiles(), clock)
    manager.open()
    manager.load(config_of)
    return manager


def json_lines(path: Path) -> list[Any]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def answers(name: str) -> dict[TopicPartition, dict[str, Any]]:
    return {
        TopicPartition(answer["topic"], answer["partition"]): answer
        for answer in json_lines(LOGS / name / "answers.jsonl")
    }


def contents(name: str, topic_partition: TopicPartition) -> list[dict[str, Any]]:
    path = LOGS / name / "contents" / f"{topic_partition}.jsonl"
    return json_lines(path) if path.exists() else []


def partition_folders(name: str) -> list[TopicPartition]:
    folders = [
        entry.name for entry in (LOGS / name).iterdir() if entry.is_dir() and entry.name not in ("contents", "dump")
    ]
    return sorted(TopicPartition(folder.rpartition("-")[0], int(folder.rpartition("-")[2])) for folder in folders)


def whole_log(log: Log) -> bytes:
    """Returns all records from the log's first byte on, read segment by segment."""
    return b"".join(bytes(log.segments.use(segment).file.read(0, segment.size)) for segment in log.segments)
