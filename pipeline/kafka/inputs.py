"""What a job asks before it reads: for the topics that its settings name."""

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
    """Tells which of the topics the settings name. Raises PipelineError where they name none, or one that cannot be."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        for name in settings.topics:
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
                raise PipelineError(f"topic {name!r} is no name of a topic", "for several, give topics-pattern")
        if not settings.topics and not settings.topics_pattern:
            raise PipelineError("no topics are given", "set topics or topics-pattern")
        self._spark = spark
        self._settings = settings
        self._known: dict[str, bool] = {}
        named = self([settings.results_topic] if settings.results_topic else [])
        if named:
            raise PipelineError(
                f"results-topic {settings.results_topic} is one of the topics that are read: its results would come "
                "again",
                "name another topic for the results",
            )

    def __call__(self, names: Collection[str]) -> Collection[str]:
        """Those that are named. Spark is asked for new ones only."""
        if self._settings.topics:
            return [name for name in names if name in self._settings.topics]
        new = [name for name in names if name not in self._known]
        if new or not self._known:
            found = matching(self._spark, self._settings.topics_pattern, new)
            self._known |= {name: name in found for name in new}
        return [name for name in names if self._known[name]]


def refuse_missing(settings: Settings, topics: Topics, known: Collection[str] = ()) -> None:
    """Raises PipelineError where a topic is not there, or none matches; but for topics that are `known`."""
    missing = [name for name in settings.topics if name not in topics and name not in known]
    if missing:
        raise PipelineError(f"there is no topic {', '.join(missing)}", "create it, or change topics")
    if not topics and not known:
        raise PipelineError(f"no topic matches {settings.topics_pattern}", "change topics-pattern")


def refuse_beyond(starts: Offsets, topics: Topics) -> None:
    """Raises PipelineError where a partition is to be read from behind its end."""
    for name, partitions in starts.items():
        for number, offset in partitions.items():
            if offset > (end := topics[name].ends[number]):
                raise PipelineError(
                    f"starting-offsets: {name}-{number} is to begin at {offset}, and ends at {end}",
                    "give an offset that it has",
                )
