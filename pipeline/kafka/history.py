"""Records of a range of offsets: of topics by Spark's connector, or of log segments. Both give the same rows.

key, value, headers, topic, partition, offset, timestamp, timestampType: `key` and `value` are binary, `headers` an
array of (key, value) or null, `timestamp` the record's (UTC session), `timestampType` 0 for the producer's time, 1 for
the broker's.
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
    """The records from `start` to before `end`, which name the same partitions; at least one. `ids`: of the topics.

    Raises PipelineError."""
    if job == "backfill" and settings.backfill_from == "segments":
        options = _segment_options(settings, start, end, ids)
        _register(spark)
        return spark.read.format("odradek").options(**options).load()
    options = connector_options(settings)
    options["assign"] = json.dumps({topic: sorted(partitions) for topic, partitions in start.items()})
    options |= {"startingOffsets": offsets_text(start), "endingOffsets": offsets_text(end)}
    return spark.read.format("kafka").options(**options).load()


def _register(spark: SparkSession) -> None:
    """For editable installs, in which PySpark does not find `pyspark_odradek` by its name."""
    try:
        spark.dataSource.register(SegmentSource)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # It has found it.
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
            "name all log-dirs of a broker that has it, or set backfill-from to topics",
        )
    # The source wants offsets of all partitions that are there: of those that came later, none are read.
    nothing: dict[str, dict[int, int]] = {topic: {} for topic in start}
    for topic, number in there:
        nothing[topic][number] = EARLIEST
    for name, offsets in (("startingOffsets", start), ("endingOffsets", end)):
        options[name] = offsets_text({topic: {**nothing[topic], **offsets[topic]} for topic in start})
    return options


def _refuse_other_topic(topic: str, wanted: str, directory: Path) -> None:
    """Raises PipelineError where partition.metadata (PartitionMetadataFile) tells another id; it need not be there."""
    try:
        text = (directory / "partition.metadata").read_text()
        told = next(line.removeprefix(TOPIC_ID).strip() for line in text.splitlines() if line.startswith(TOPIC_ID))
        found = uuid.UUID(bytes=base64.urlsafe_b64decode(told + "=="))
    except (OSError, ValueError, StopIteration):
        return
    if wanted and str(found) != wanted:
        raise PipelineError(
            f"{directory} is of another topic than the brokers' {topic}: its id is {found}, theirs {wanted}",
            "name the log.dirs of these brokers",
        )
