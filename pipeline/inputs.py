"""What a job asks before it reads: for the topics that its settings name, and for the columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger import Offsets
from odradek.pipeline.settings import Settings
from odradek.pipeline.topic_ids import Topics, look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def topics_of(spark: SparkSession, settings: Settings, sleep: Callable[[float], None] = time.sleep) -> Topics:
    """The topics that the settings name, as they are now. `sleep`: waits for brokers. Raises PipelineError."""
    compiled = spark._jvm.java.util.regex.Pattern.compile(settings.topics_pattern)  # type: ignore[union-attr]
    return look(settings, lambda name: bool(compiled.matcher(name).matches()), sleep=sleep)


def refuse_missing(settings: Settings, topics: Topics) -> None:
    """Raises PipelineError where a topic is not there, or none matches."""
    missing = [name for name in settings.topics if name not in topics]
    if missing:
        raise PipelineError(f"there is no topic {', '.join(missing)}", "create it, or change topics")
    if not topics:
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


def key_types(settings: Settings, parsed: DataFrame) -> dict[str, str]:
    """The types of the dedup keys, in Spark's short form."""
    columns: Any = parsed.schema["data"].dataType
    return {name: columns[name].dataType.simpleString() for name in settings.dedup_keys}
