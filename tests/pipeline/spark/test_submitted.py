"""Under spark-submit, its Java process, master and options are kept and ours are added."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

import odradek
from tests.pipeline.conftest import QUICK_SPARK

SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SCRIPT = """
import json, threading
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.session import open_session

try:
    open_session(Settings(driver_memory="77g"))
except PipelineError as error:
    print(json.dumps(str(error)))

session = open_session(Settings(name="submitted", spark={"spark.executor.heartbeatInterval": "9s"}))
kafka = []

def load():
    try:
        session.read.format("kafka").load()
    except Exception as error:
        kafka.append(str(error).splitlines()[0])

load()
thread = threading.Thread(target=load)
thread.start()
thread.join()
context, system = session.sparkContext, session.sparkContext._jvm.java.lang.System
names = "spark.driver.host", "spark.app.name", "spark.ui.enabled", "spark.executor.heartbeatInterval"
found = {name: context.getConf().get(name) for name in names}
found["master"] = context.master
found["partitions"] = session.conf.get("spark.sql.shuffle.partitions")
found["zone"] = session.conf.get("spark.sql.session.timeZone")
found["avro"] = system.getProperty("org.apache.avro.limits.string.maxLength")
found["kafka"] = kafka
print(json.dumps(found))
"""


def test_spark_submits_options_are_kept_and_missing_ones_are_added(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_LOCAL_IP")}
    environment |= {"PYTHONPATH": str(Path(odradek.__file__).parents[1]), "PYSPARK_PYTHON": sys.executable}
    command = [str(SUBMIT), "--master", "local[2]", "--driver-java-options", QUICK_SPARK]
    command += ["--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0", str(tmp_path / "script.py")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, found = (json.loads(line) for line in done.stdout.splitlines())
    assert refused.startswith(
        "[spark] spark.driver.memory (driver-memory) cannot take effect, because Spark's Java process is running"
    )
    wanted_option = "One of the following options must be specified for Kafka source"
    kafka = found.pop("kafka")
    assert [one.startswith(wanted_option) for one in kafka] == [True, True], f"the connector in every thread: {kafka}"
    assert found == {
        "master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.app.name": "odradek-submitted",
        "spark.ui.enabled": "true",
        "spark.executor.heartbeatInterval": "9s",
        "partitions": "6",
        "zone": "UTC",
        "avro": str(64 << 20),
    }
