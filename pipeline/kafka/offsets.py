"""Offsets of many partitions, and their text forms."""

from __future__ import annotations

import json
from collections.abc import Mapping

from odradek.pipeline.segments.options import EARLIEST

Offsets = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""


def offsets_text(offsets: Offsets) -> str:
    """Formats offsets as Spark does: {"topic":{"0":12}}."""
    content = {topic: {str(number): offsets[topic][number] for number in sorted(offsets[topic])} for topic in offsets}
    return json.dumps(content, sort_keys=True)


def by_partition(offsets: Offsets) -> dict[str, int]:
    """Returns offsets in the form used in log lines: {"topic-0": 12}."""
    return {f"{name}-{number}": offset for name, partitions in offsets.items() for number, offset in partitions.items()}


def offsets_of(text: str) -> dict[str, dict[int, int]]:
    """Parses the text of offsets. Raises ValueError."""
    content = json.loads(text)
    if not isinstance(content, dict) or not all(isinstance(one, dict) for one in content.values()):
        raise ValueError(f"not offsets: {text[:80]}")
    strange = [
        at for partitions in content.values() for at in partitions.values() if type(at) is not int or at < EARLIEST
    ]
    if strange:
        raise ValueError(f"{strange[0]!r} is not an offset")
    return {topic: {int(number): at for number, at in partitions.items()} for topic, partitions in content.items()}
