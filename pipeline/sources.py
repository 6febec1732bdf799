"""Records of topics, as Spark's Kafka connector reads them: key, value, headers, topic, partition, offset, timestamp.

`key` and `value` are binary, `headers` an array of (key, value) or null, `timestamp` the record's (UTC session),
`timestampType` 0 for the producer's time, 1 for the broker's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.schemas import first_line
from odradek.pipeline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TUNED = {
    "max.poll.records": "50000",
    "max.partition.fetch.bytes": "16777216",
    "fetch.max.bytes": "67108864",
    "receive.buffer.bytes": "1048576",
}
"""Consumer settings beyond Kafka's defaults: the connector asks for two offsets after each poll, so few big polls
save a sixth of the time and most of the broker's. `[kafka]` goes over them."""

RESERVED = {"bootstrap.servers": "bootstrap-server", "isolation.level": "isolation-level"}
"""Consumer settings that have a setting of their own here."""


COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp", "timestampType")


def records_stream(spark: SparkSession, settings: Settings, starting_offsets: str | None = None) -> DataFrame:
    """A stream of all records from `starting_offsets` (earliest, latest, Spark's JSON; None: the setting) on.

    A query that has a checkpoint goes on from there whatever is said here. Raises PipelineError."""
    starting = starting_offsets or settings.starting_offsets
    _check_offsets("starting-offsets", starting)
    options = connector_options(spark, settings) | {"startingOffsets": starting}
    if settings.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    return _loaded(lambda: spark.readStream.format("kafka").options(**options).load())


def records_batch(spark: SparkSession, settings: Settings, starting: str, ending: str) -> DataFrame:
    """The records from `starting` to before `ending`, both Spark's JSON ({"topic": {"0": 12}}) or earliest and latest.

    Raises PipelineError."""
    _check_offsets("the first offset", starting)
    _check_offsets("the last offset", ending)
    options = connector_options(spark, settings) | {"startingOffsets": starting, "endingOffsets": ending}
    return _loaded(lambda: spark.read.format("kafka").options(**options).load())


def connector_options(spark: SparkSession, settings: Settings) -> dict[str, str]:
    """The options that stream and batch share. Raises PipelineError."""
    options = {
        "kafka.bootstrap.servers": settings.bootstrap_server,
        "kafka.isolation.level": settings.isolation_level,
        "failOnDataLoss": str(settings.on_data_loss == "fail").lower(),
        "includeHeaders": "true",
    }
    for name, value in {**TUNED, **settings.kafka}.items():
        if name in RESERVED:
            raise PipelineError(f"[kafka] {name} has a setting of its own", f"set {RESERVED[name]}")
        options[f"kafka.{name}"] = value
    return options | _topics(spark, settings)


def _topics(spark: SparkSession, settings: Settings) -> dict[str, str]:
    for name in settings.topics:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name):
            raise PipelineError(f"topic {name!r} is no name of a topic", "for several, give topics-pattern")
    if settings.topics:
        _refuse_own_results(settings, settings.results_topic in settings.topics)
        return {"subscribe": ",".join(settings.topics)}
    if not settings.topics_pattern:
        raise PipelineError("no topics are given", "set topics or topics-pattern")
    jvm: Any = spark._jvm
    try:
        pattern = jvm.java.util.regex.Pattern.compile(settings.topics_pattern)
    except PySparkException as error:
        said = first_line(error)
        raise PipelineError(f"topics-pattern {settings.topics_pattern!r} is no regular expression: {said}") from error
    _refuse_own_results(settings, pattern.matcher(settings.results_topic).matches())
    return {"subscribePattern": settings.topics_pattern}


def _refuse_own_results(settings: Settings, are_read: bool) -> None:
    if settings.results_topic and are_read:
        raise PipelineError(
            f"results-topic {settings.results_topic} is one of the topics that are read: its results would come again",
            "name another topic for the results",
        )


def _check_offsets(what: str, text: str) -> None:
    """That offsets are a word or JSON: the connector would say it when the query runs, in many lines."""
    if text in ("earliest", "latest"):
        return
    try:
        topics = json.loads(text)
        right = bool(topics) and all(
            int(number) >= 0 and offset >= -2 for one in topics.values() for number, offset in one.items()
        )
    except (ValueError, AttributeError, TypeError):
        right = False
    if not right:
        remedy = """give offsets like {"topic": {"0": 12, "1": -2}}; -2 is the earliest, -1 the latest"""
        raise PipelineError(f"{what} {text!r} is neither earliest nor latest nor JSON of offsets", remedy)


def _loaded(load: Callable[[], DataFrame]) -> DataFrame:
    try:
        return load().select(*COLUMNS)
    except PySparkException as error:
        raise PipelineError(f"Spark's Kafka connector says: {' '.join(str(error).split())}") from error
