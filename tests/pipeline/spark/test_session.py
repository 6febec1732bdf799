"""The session has the connector: Spark reads a topic of an Odradek broker."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.session import open_session
from odradek.testing import BrokerThread


def test_a_topic_is_read_by_sparks_own_connector(spark: SparkSession, broker: BrokerThread, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(10):
        producer.send(topic, str(number).encode())
    producer.close()
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .load()
        .selectExpr("cast(cast(value AS string) AS int) AS value")
        .collect()
    )
    assert sorted(row.value for row in rows) == list(range(10))


def test_an_error_that_pyspark_raises_is_not_also_printed(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spark.range(1).selectExpr("current_timestamp() AS event_time")
    with pytest.raises(PySparkException, match="CANNOT_PARSE_INTERVAL"):
        rows.groupBy(sf.window("event_time", "soon")).count()
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("spark")
def test_spark_does_not_change_the_interrupt_handler() -> None:
    as_started = (signal.default_int_handler, signal.SIG_IGN)  # SIG_IGN: a shell started it in the background
    assert signal.getsignal(signal.SIGINT) in as_started


OPENS_A_SESSION = """
import subprocess, sys
from odradek.pipeline.spark.session import open_session
from odradek.pipeline.settings import Settings
secret = {"spark.hadoop.fs.s3a.secret.key": " s3cr3t = a\\\\b:#! ü"}
session = open_session(Settings(name="secret", master="local[1]", driver_memory="1280m", spark=secret))
print(subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout)
sys.stdout.flush()
print("context:", session.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key"))
print("hadoop:", session.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key"))
print("host:", session.sparkContext.getConf().get("spark.driver.host"))
print("defaults:", session.sparkContext.getConf().get("spark.from.defaults"))
print("partitions:", session.conf.get("spark.sql.shuffle.partitions"))
session.stop()
"""


def test_session_options_are_no_process_arguments_and_leave_no_file(tmp_path: Path) -> None:
    """`ps` shows every user the arguments of all processes."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "tmp").mkdir()
    defaults = "spark.from.defaults here\nspark.sql.shuffle.partitions 99"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(defaults)
    environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path / "conf"), "TMPDIR": str(tmp_path / "tmp")}
    environment.pop("SPARK_HOME", None)
    run = subprocess.run(
        [sys.executable, "-"],
        input=OPENS_A_SESSION,
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )
    processes, _, values = run.stdout.partition("context:")
    assert "org.apache.spark.deploy.SparkSubmit" in processes, run.stderr
    assert "s3cr3t" not in processes
    assert "-Xmx1280m" in processes
    assert values.splitlines() == [
        "  s3cr3t = a\\b:#! ü",
        "hadoop:  s3cr3t = a\\b:#! ü",
        "host: localhost",
        "defaults: here",
        "partitions: 99",
    ]
    assert list((tmp_path / "tmp").glob("odradek-spark-*")) == []


@pytest.mark.usefixtures("spark")
def test_the_open_session_is_used_with_its_own_master() -> None:
    session = open_session(Settings(spark={"spark.sql.files.maxPartitionBytes": "64m"}))
    assert session.conf.get("spark.sql.files.maxPartitionBytes") == "64m"
    session.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(master="local[7]"), r"master is local\[7\], but the Spark session is already open with local\[2\]"),
        (Settings(driver_memory="77g"), r"\[spark\] spark\.driver\.memory \(driver-memory\) cannot take effect"),
        (
            Settings(
                spark={"spark.executor.memory": "77g", "spark.hadoop.fs.x": "y", "spark.sql.ansi.enabled": "true"}
            ),
            r"\[spark\] spark\.executor\.memory, spark\.hadoop\.fs\.x cannot take effect, because the Spark session",
        ),
    ],
)
def test_options_that_an_open_session_cannot_apply_are_refused_by_name(settings: Settings, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        open_session(settings)
