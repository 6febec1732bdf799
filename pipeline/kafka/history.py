"""Reads the records of a range of offsets: from topics with Spark's connector, or from log segments, as equal rows.

Columns: key, value, headers, topic, partition, offset, timestamp, timestampType. `key` and `value` are binary,
`headers` is an array of (key, value) or null, `timestamp` is the record's (UTC session), `timestampType` is 0 for
CreateTime and 1 for LogAppendTime.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.connector import connector_options
from odradek.pipeline.kafka.offsets import Offsets, offsets_text
from odradek.pipeline.segments.log_directory import find_partitions
from odradek.pipeline.segments.options import EARLIEST, parse_options
from odradek.pipeline.segments.source import SegmentSource
from odradek.pipeline.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC_ID = "topic_id: "


def records_of(
    spark: SparkSession, settings: Settings, job: str, start: Offsets, end: Offsets, ids: Mapping[str, str]
) -> DataFrame:
    """Returns the records from `start` (inclusive) to `end` (exclusive), which have the same partitions, at least one.

    `ids`: the topic ids by name. Raises PipelineError."""
    if job == "backfill" and settings.backfill_from == "segments":
        options = _segment_options(settings, start, end, ids)
        _register(spark)
        return spark.read.format("odradek").options(**options).load()
    options = connector_options(settings)
    options["assign"] = json.dumps({topic: sorted(partitions) for topic, partitions in start.items()})
    options |= {"startingOffsets": offsets_text(start), "endingOffsets": offsets_text(end)}
    return spark.read.format("kafka").options(**options).load()


def _register(spark: SparkSession) -> None:
    """Registers the source. Needed in editable installs, where PySpark does not find `pyspark_odradek` by its name."""
    try:
        spark.dataSource.register(SegmentSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # PySpark has found it by its name.
            raise


def _segment_options(settings: Settings, start: Offsets, end: Offsets, ids: Mapping[str, str]) -> dict[str, str]:
    options = {
        "path": ",".join(settings.log_dirs),
        "topics": ",".join(start),
        "isolationLevel": settings.isolation_level,
        "includeHeaders": "true",
        "failOnDataLoss": str(settings.on_data_loss == "fail").lower(),
    }
    there = find_partitions(parse_options(options))
    for (topic, _), directory in there.items():
        _refuse_other_topic(topic, ids.get(topic, ""), Path(directory))
    missing = [f"{topic}-{number}" for topic in start for number in start[topic] if (topic, number) not in there]
    if missing:
        raise PipelineError(
            f"{', '.join(settings.log_dirs)} lacks {', '.join(missing)}",
            "set log-dirs to all log.dirs of a broker that has them, or set backfill-from to topics",
        )
    # The source needs offsets of all existing partitions. Of partitions that were added later nothing is read.
    nothing: dict[str, dict[int, int]] = {topic: {} for topic in start}
    for topic, number in there:
        nothing[topic][number] = EARLIEST
    for name, offsets in (("startingOffsets", start), ("endingOffsets", end)):
        options[name] = offsets_text({topic: {**nothing[topic], **offsets[topic]} for topic in start})
    return options


def _refuse_other_topic(topic: str, wanted: str, directory: Path) -> None:
    """Raises PipelineError if partition.metadata (PartitionMetadataFile) has another topic id. The file is optional."""
    try:
        text = (directory / "partition.metadata").read_text()
        topic_id = next(line.removeprefix(TOPIC_ID).strip() for line in text.splitlines() if line.startswith(TOPIC_ID))
        found = uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "=="))
    except (OSError, ValueError, StopIteration):
        return
    if wanted and str(found) != wanted:
        raise PipelineError(
            f"{directory} is not of the brokers' topic {topic}: its topic id is {found}, the brokers' is {wanted}",
            "set log-dirs to the log.dirs of these brokers",
        )
