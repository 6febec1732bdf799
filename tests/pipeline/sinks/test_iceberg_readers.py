"""Iceberg's own reader for Spark finds in the tables what the pipeline wrote: by path and in a catalog.

The runtime has to fit the minor version of Spark. There is none for 4.2 yet; `make test-old-spark` runs this on 4.0.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.sinks.iceberg.sink import IcebergSink
from odradek.pipeline.sinks.iceberg.upserts import IcebergUpserts
from odradek.pipeline.sinks.table_files import Layout
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.location import Location
from tests.pipeline.sinks.test_delta_sink import EVERY_TYPE, split
from tests.pipeline.sinks.test_iceberg_sink import MORE_TYPES
from tests.pipeline.sinks.test_iceberg_upserts import upsert

MINOR = ".".join(pyspark.__version__.split(".")[:2])
RUNTIMES = {"4.0": "1.10.0", "4.1": "1.11.0"}
"""The version of iceberg-spark-runtime for a minor version of Spark."""
__test__ = MINOR in RUNTIMES
"""Whether pytest collects this module."""
READER = """
import json, sys
from pyspark.sql import SparkSession
jar, lake, queries = sys.argv[1], sys.argv[2], sys.argv[3:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jar).config("spark.ui.enabled", "false")
    .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.lake.type", "hadoop").config("spark.sql.catalog.lake.warehouse", f"file://{lake}")
    .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
spark.read.format("iceberg").load(f"file://{lake}/plain").createOrReplaceTempView("by_path")
for query in queries:
    print(json.dumps([row.asDict(True) for row in spark.sql(query).collect()], default=str), flush=True)
"""


@pytest.fixture(scope="module")
def runtime() -> Path:
    """The jar, which Maven downloads once."""
    if shutil.which("mvn") is None:
        pytest.skip("needs mvn")
    name, version = f"iceberg-spark-runtime-{MINOR}_2.13", RUNTIMES[MINOR]
    artifact = f"org.apache.iceberg:{name}:{version}"
    subprocess.run(["mvn", "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false"], check=True)
    return Path.home() / f".m2/repository/org/apache/iceberg/{name}/{version}/{name}-{version}.jar"


def read(runtime: Path, lake: Path, *queries: str) -> list[list[dict[str, object]]]:
    """Runs queries in a Spark of their own, since jars belong to a session from its start."""
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", READER, str(runtime), str(lake), *queries],
        capture_output=True, text=True, timeout=200, env=environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def test_spark_reads_every_type_partitions_grown_columns_and_upserts(
    spark: SparkSession, tmp_path: Path, runtime: Path
) -> None:
    rows = spark.range(20).selectExpr(*split(EVERY_TYPE), *split(MORE_TYPES))
    place = Location(str(tmp_path))
    for name, layout in (("plain", Layout()), ("parts", Layout(("day", "text")))):
        sink = IcebergSink(place / name, "rows", layout)
        sink.prepare(rows.schema)
        sink.write(rows, 20, BatchId("orders", 0))
    upserts = IcebergUpserts(place / "states", "rows", Layout(), ["id"])
    upsert(upserts, 0, spark.sql("SELECT CAST(id AS INT) AS id, 'old' AS text FROM range(3)"))
    upsert(upserts, 1, spark.sql("SELECT id + 1 AS id, 'new' AS text, 7 AS more FROM range(1)"))
    every = "SELECT * FROM {} ORDER BY id"
    by_path, plain, parts, some, states, batches = read(
        runtime, tmp_path, every.format("by_path"), every.format("lake.plain"), every.format("lake.parts"),
        "SELECT id FROM lake.parts WHERE text = 'text 13' AND day > DATE '2024-01-01' AND id > 5",
        every.format("lake.states"), "SELECT summary['odradek.batch.orders/rows'] AS n FROM lake.states.snapshots",
    )  # fmt: skip
    wanted = json.loads(json.dumps([row.asDict(True) for row in rows.collect()], default=str))
    assert repr(plain) == repr(by_path)
    assert repr(plain) == repr(parts)
    plain_types = [name for name in rows.columns if name not in ("at", "bytes")]  # Printed in another form.
    assert repr([[row[name] for name in plain_types] for row in plain]) == repr(
        [[row[name] for name in plain_types] for row in wanted]
    )
    assert [str(row["at"])[:26] for row in plain][:2] == ["2023-11-14 22:13:20.000001", "2023-11-14 22:13:20.001002"]
    assert some == [{"id": 13}]
    assert [(row["id"], row["text"], row["more"]) for row in states] == [
        (0, "old", None),
        (1, "new", 7),
        (2, "old", None),
    ]
    assert [row["n"] for row in batches] == ["0", "1"]
