"""Makes what Kafka's tools print comparable: ids, times, ports, speeds and positions in files are replaced."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

REPLACEMENTS = (
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[:,.]\d{3}", "TIME"),
    (r"\b1[6-9]\d{11}\b", "TIME"),
    (r"\b\d+\.\d+\b", "DECIMAL"),
    (r"\btest-group-TIME\b", "test-group"),
)


def comparable(sentence: str, text: str) -> str:
    """Returns the part of the output that must be the same on both brokers."""
    for beginning, change in SPECIAL.items():
        if sentence.startswith(beginning):
            text = change(text)
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    return "\n".join(_columns(line) for line in text.splitlines())


def _columns(line: str) -> str:
    """Removes the widths of columns, which depend on their content."""
    return re.sub(r"[ \t]+", " ", line).strip()


def _performance(text: str) -> str:
    """Keeps how much was read, not how fast."""
    numbers = [line.split(", ") for line in text.splitlines()]
    return "\n".join(", ".join(row[2:3] + row[4:5]) if len(row) > 8 else ", ".join(row) for row in numbers)


def _latency(text: str) -> str:
    return re.sub(r"\d+(\.\d+)?\b(?!th)", "N", text.partition("--- stderr")[0])


def _verifiable_consumer(text: str) -> str:
    """Replaces the batches, whose sizes depend on speed, by their sums; keeps each record."""
    lines, counts, committed = [], 0, 0
    for line in text.splitlines():
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {"name": line}
        event.pop("timestamp", None)
        match event["name"]:
            case "records_consumed":
                counts += event["count"]
                committed = max(committed, *(part["maxOffset"] for part in event["partitions"]))
            case "offsets_committed":
                committed = max(committed, *(part["offset"] for part in event["offsets"]))
            case _:
                lines.append(json.dumps(event, sort_keys=True))
    return "\n".join([*lines, f"{counts} records, committed {committed}"])


def _verifiable_producer(text: str) -> str:
    lines = []
    for line in text.splitlines():
        if not line.startswith("{"):
            lines.append(line)
            continue
        event = {name: value for name, value in json.loads(line).items() if name not in ("timestamp", "avg_throughput")}
        lines.append(json.dumps(event, sort_keys=True))
    return "\n".join(lines)


def _dump(text: str) -> str:
    """Each key's values in order. Of an offset only the last: how often it is committed depends on speed."""
    records: dict[str, list[str]] = defaultdict(list)
    others = []
    for line in text.splitlines():
        found = re.search(r"key: (.*?) payload: ?(.*)$", line.replace("payload:", " payload: "))
        if found:
            values = records[_masked(found[1])]
            if "partition" in found[1] or [_masked(found[2])] == values[-1:]:
                values.clear()
            values.append(_masked(found[2]))
        elif "baseOffset" not in line and "Dumping" not in line and "endTxnMarker" not in line:
            others.append(line)
    return "\n".join([*(f"{key} -> {value}" for key, values in sorted(records.items()) for value in values), *others])


def _masked(text: str) -> str:
    return re.sub(r'("?(?:producerId|lastProducerId|previousProducerId|expireTimestamp)"?[:=] ?)-?\d+', r"\1N", text)


SPECIAL = {
    "ConsumerPerformance": _performance,
    "EndToEndLatency": _latency,
    "VerifiableConsumer": _verifiable_consumer,
    "VerifiableProducer": _verifiable_producer,
    "DumpLogSegments": _dump,
}
