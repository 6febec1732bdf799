"""Records of topics, as Spark's Kafka connector reads them: key, value, headers, topic, partition, offset, timestamp.

`key` and `value` are binary, `headers` an array of (key, value) or null, `timestamp` the record's (UTC session),
`timestampType` 0 for the producer's time, 1 for the broker's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.settings import Settings

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


def records_stream(spark: SparkSession, settings: Settings, starting_offsets: str | None = None) -> DataFrame:
    """A stream of all records from `starting_offsets` (earliest, latest, Spark's JSON; None: the setting) on.

    A query that has a checkpoint goes on from there whatever is said here. Raises PipelineError."""
    options = connector_options(settings)
    options["startingOffsets"] = starting_offsets or settings.starting_offsets
    if settings.max_offsets_per_trigger:
        options["maxOffsetsPerTrigger"] = str(settings.max_offsets_per_trigger)
    return spark.readStream.format("kafka").options(**options).load()


def records_batch(spark: SparkSession, settings: Settings, starting: str, ending: str) -> DataFrame:
    """The records from `starting` to before `ending`, both Spark's JSON ({"topic": {"0": 12}}) or earliest and latest.

    Raises PipelineError."""
    options = connector_options(settings) | {"startingOffsets": starting, "endingOffsets": ending}
    return spark.read.format("kafka").options(**options).load()


def connector_options(settings: Settings) -> dict[str, str]:
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
    return options | _topics(settings)


def _topics(settings: Settings) -> dict[str, str]:
    if settings.topics:
        return {"subscribe": ",".join(settings.topics)}
    if settings.topics_pattern:
        return {"subscribePattern": settings.topics_pattern}
    raise PipelineError("no topics are given", "set topics or topics-pattern")
