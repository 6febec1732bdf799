"""The options of the data source. Names, defaults and semantics are those of the Kafka connector where it has them.

path               a log directory of log.dirs, or several, separated by commas (`load(path)`)
topic, topics      topics, separated by commas; or
topicsPattern      a regular expression that matches whole names; internal topics are skipped
startingOffsets    earliest (default), latest, or {"topic": {"0": 23, "1": -2}}: -2 earliest, -1 latest
endingOffsets      latest (default), earliest, or the same JSON; exclusive
isolationLevel     read_committed (default) or read_uncommitted
includeHeaders     false
failOnDataLoss     true (default): requested offsets that no longer exist are an error; false: a warning
verifyCrc          true (default): verify the checksum of each batch
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from odradek.pipeline.errors import PipelineError

EARLIEST, LATEST = -2, -1
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
_INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
_NAMES = (
    *("path", "paths", "topic", "topics", "topicsPattern", "startingOffsets", "endingOffsets"),
    *("isolationLevel", "includeHeaders", "failOnDataLoss", "verifyCrc"),
)

TopicPartition = tuple[str, int]
Offsets = int | Mapping[TopicPartition, int]
"""EARLIEST or LATEST for all partitions, or an offset for each."""


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options."""

    paths: tuple[str, ...]
    topics: tuple[str, ...] = ()
    topics_pattern: str = ""
    starting_offsets: Offsets = EARLIEST
    ending_offsets: Offsets = LATEST
    read_committed: bool = True
    include_headers: bool = False
    fail_on_data_loss: bool = True
    verify_crc: bool = True

    def wants(self, topic: str) -> bool:
        if self.topics_pattern:
            return topic not in _INTERNAL_TOPICS and re.fullmatch(self.topics_pattern, topic) is not None
        return topic in self.topics


def parse_options(given: Mapping[str, str]) -> Options:
    """Parses Spark's options, whose names are case-insensitive. Raises PipelineError."""
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in _NAMES}
    if unknown := sorted(options.keys() - known):
        raise PipelineError(
            f"the odradek source has no option {', '.join(unknown)}", f"its options are {', '.join(sorted(_NAMES))}"
        )
    isolation = options.get("isolationlevel", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise PipelineError(f"isolationLevel is {isolation!r}, not read_committed or read_uncommitted")
    topics, pattern = _topics(options)
    return Options(
        _paths(options),
        topics,
        pattern,
        _offsets("startingOffsets", options.get("startingoffsets", "earliest")),
        _offsets("endingOffsets", options.get("endingoffsets", "latest")),
        isolation == "read_committed",
        _boolean(options, "includeHeaders", False),
        _boolean(options, "failOnDataLoss", True),
        _boolean(options, "verifyCrc", True),
    )


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    paths = _names(options.get("path", ""))
    if "paths" in options:  # from load([one, other])
        paths += tuple(json.loads(options["paths"]))
    if not paths:
        raise PipelineError("the odradek source needs a path", "pass the broker's log.dirs to load()")
    return tuple(path.removeprefix("file://") for path in paths)


def _topics(options: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    topics = _names(options.get("topic", "")) + _names(options.get("topics", ""))
    pattern = options.get("topicspattern", "")
    if bool(topics) == bool(pattern):
        raise PipelineError(
            "the odradek source needs either topics or a pattern", "set one of topic, topics, topicsPattern"
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise PipelineError(f"topicsPattern {pattern!r} is not a regular expression: {error}") from error
    return topics, pattern


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise PipelineError(f"{name} is {text!r}, not true or false")
    return text == "true"


def _offsets(name: str, text: str) -> Offsets:
    word = text.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    shape = 'earliest, latest or JSON such as {"topic": {"0": 23, "1": -2}}'
    try:
        content = json.loads(text)
        found = {
            (topic, int(partition)): offset
            for topic, partitions in content.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError) as error:
        raise PipelineError(f"{name} is {text!r}, not {shape}") from error
    for (topic, partition), offset in found.items():
        if type(offset) is not int or offset < EARLIEST:
            raise PipelineError(f"{name} has {offset!r} for {topic}-{partition}, not an offset")
    return found
