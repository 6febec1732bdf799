"""Checks the topics that the settings name, before a job reads them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import Topics
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.patterns import matching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TopicMatcher:
    """Selects the topics that the settings name. Raises PipelineError if they name none, or an invalid one."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        for name in settings.topics:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
                raise PipelineError(f"topic {name!r} is not a valid topic name", "for a pattern, set topics-pattern")
        if not settings.topics and not settings.topics_pattern:
            raise PipelineError("no topics are set", "set topics or topics-pattern")
        self._spark = spark
        self._settings = settings
        self._known: dict[str, bool] = {}
        named = self([settings.results_topic] if settings.results_topic else [])
        if named:
            raise PipelineError(
                f"results-topic {settings.results_topic} is one of the topics that are read: its results would be read "
                "again",
                "set another topic for the results",
            )

    def __call__(self, names: Collection[str]) -> Collection[str]:
        """Returns the names that match the settings. Spark evaluates the pattern for new names only."""
        if self._settings.topics:
            return [name for name in names if name in self._settings.topics]
        new = [name for name in names if name not in self._known]
        if new or not self._known:
            found = matching(self._spark, self._settings.topics_pattern, new)
            self._known |= {name: name in found for name in new}
        return [name for name in names if self._known[name]]


def refuse_missing(settings: Settings, topics: Topics, known: Collection[str] = ()) -> None:
    """Raises PipelineError if a topic does not exist, or no topic matches. Topics in `known` may be missing."""
    missing = [name for name in settings.topics if name not in topics and name not in known]
    if missing:
        raise PipelineError(f"topic {', '.join(missing)} does not exist", "create it, or change topics")
    if not topics and not known:
        raise PipelineError(f"no topic matches {settings.topics_pattern}", "change topics-pattern")


def refuse_beyond(starts: Offsets, topics: Topics) -> None:
    """Raises PipelineError if a start offset is beyond the end of its partition."""
    for name, partitions in starts.items():
        for number, offset in partitions.items():
            if offset > (end := topics[name].ends[number]):
                raise PipelineError(
                    f"starting-offsets: {name}-{number} starts at {offset}, but the log ends at {end}",
                    "set an offset that the log has",
                )
