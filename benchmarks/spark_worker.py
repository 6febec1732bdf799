"""Runs Spark in its own process, with one job per line of stdin: `python -m benchmarks.spark_worker`.

A line on stdin is a job as JSON, the line on stdout its outcome: {"rows", "seconds", ...} or {"error"}. One session
serves all rows of a run, so that each is measured on a warm JVM.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline.jobs import compact, ingest
from odradek.pipeline.kafka.connector import connector_options
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.spark.session import open_session
from odradek.pipeline.state.places import Places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Job = Callable[["SparkSession", Settings, Mapping[str, Any]], dict[str, Any]]


def read_topic(spark: SparkSession, settings: Settings, _: Mapping[str, Any]) -> dict[str, Any]:
    """Reads every record of the topics with the connector and discards them."""
    return _read_all(
        spark.read.format("kafka").options(**connector_options(settings), subscribe=",".join(settings.topics)).load()
    )


def read_segments(spark: SparkSession, settings: Settings, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Reads every record of the topics from the log's files and discards them."""
    options = {"path": asked["log_dir"], "topic": ",".join(settings.topics), "includeHeaders": "true"}
    return _read_all(spark.read.format("odradek").options(**options).load())


def _read_all(records: DataFrame) -> dict[str, Any]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    observation = Observation()
    records.observe(observation, sf.count(sf.lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return {"rows": observation.get["rows"]}


def plain_job(spark: SparkSession, settings: Settings, _: Mapping[str, Any]) -> dict[str, Any]:
    """Parses every record as `from_json` does, and writes the rows to Parquet: what a job without a pipeline is."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    options = {**connector_options(settings), "subscribe": ",".join(settings.topics)}
    records = spark.read.format("kafka").options(**options).load()
    rows = records.select(sf.from_json(sf.col("value").cast("string"), settings.schema).alias("row")).select("row.*")
    observation = Observation()
    counted = rows.observe(observation, sf.count(sf.lit(1)).alias("rows"))
    counted.write.mode("overwrite").parquet(f"{settings.lake}-plain")
    return {"rows": observation.get["rows"]}


def ingest_all(spark: SparkSession, settings: Settings, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Ingests all records of the topics into a new lake, or those that a copied lake lacks."""
    ingest.run(settings)
    return {"rows": int(asked["records"]), "files": len(list(Places.of(settings).rows.path.rglob("*.parquet")))}


def compact_all(spark: SparkSession, settings: Settings, _: Mapping[str, Any]) -> dict[str, Any]:
    """Compacts the tables; returns the number of files left."""
    from deltalake import DeltaTable

    compact.run(settings)
    return {"rows": 0, "files": len(DeltaTable(Places.of(settings).rows).file_uris())}


JOBS: dict[str, Job] = {
    "read topic": read_topic,
    "read segments": read_segments,
    "plain job": plain_job,
    "ingest": ingest_all,
    "compact": compact_all,
}


def main() -> None:
    """Serves jobs until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # Output of Spark and the jobs goes to stderr.
    spark = open_session(Settings(master="local[2]"), {"spark.driver.memory": "2g"})
    print(json.dumps({"ready": os.getpid()}), file=answers)
    for line in sys.stdin:
        asked = json.loads(line)
        settings = make_settings(asked["settings"])
        if asked["job"] == "ingest":
            shutil.rmtree(settings.lake, ignore_errors=True)
            if copied := asked.get("copied"):
                shutil.copytree(copied, settings.lake)
            else:
                Path(settings.lake).mkdir(parents=True)
        begin = time.perf_counter()
        try:
            outcome = JOBS[asked["job"]](spark, settings, asked)
        except Exception as error:
            outcome = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps({**outcome, "seconds": time.perf_counter() - begin}), file=answers)


if __name__ == "__main__":
    main()
