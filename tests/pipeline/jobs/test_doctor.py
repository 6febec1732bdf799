"""For each item, the doctor reports what it found, or the problem and a remedy."""

import dataclasses
import os
import re
from pathlib import Path

import pyspark
import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.cli.__main__ import main
from odradek.pipeline.jobs.doctor import examine, run
from odradek.pipeline.report.findings import OK, PROBLEM, WARNING
from odradek.pipeline.settings import Settings
from odradek.testing import BrokerThread


def findings(settings: Settings, **environ: str) -> dict[str, tuple[str, str, str]]:
    return {one.subject: (one.state, one.says, one.remedy) for one in examine(settings, environ or _environ())}


def _environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}


@pytest.fixture
def existing_topic(broker: BrokerThread, topic: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(topic, 3, 1)])
    admin.close()
    return topic


def test_everything_is_ok_in_a_complete_environment(
    orders: Settings, existing_topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = findings(orders)
    assert {state for state, _, _ in found.values()} == {OK}
    assert found[f"topic {existing_topic}"][1] == "3 partition(s)"
    minor = ".".join(pyspark.__version__.split(".")[:2])
    assert re.search(rf"of the same version as PySpark|of Spark {re.escape(minor)}\.\d+, which serve", found["jars"][1])
    assert run(orders) == 0
    assert capsys.readouterr().out.count("ok     ") == len(found)


def test_each_problem_is_reported_with_a_remedy(orders: Settings, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    broken = dataclasses.replace(orders, lake=str(file / "lake"))
    found = findings(
        broken, SPARK_HOME="/opt/spark", PATH="", ODRADEK_SPARK_JARS=str(tmp_path), XDG_CACHE_HOME=str(tmp_path)
    )
    assert found["SPARK_HOME"] == (
        PROBLEM,
        "SPARK_HOME is /opt/spark, which has no Spark for Scala 2.13",
        "unset SPARK_HOME, or set it to a Spark of PySpark's version (Scala 2.13)",
    )
    assert found["Java"][0] == PROBLEM
    assert "pip install 'odradek[java]'" in found["Java"][2]
    assert found["jars"][0] == PROBLEM
    assert "lacks" in found["jars"][1]
    assert found["lake"][0] == PROBLEM
    name = orders.topics[0]
    assert found[f"topic {name}"] == (
        PROBLEM,
        "does not exist",
        f"create it: odradek topics create {name} --partitions 4",
    )


def test_the_engine_of_spark_home_is_reported(orders: Settings) -> None:
    own = str(Path(pyspark.__file__).parent)
    assert findings(orders, **_environ(), SPARK_HOME=own)["SPARK_HOME"] == (
        OK,
        f"is {own}, whose engine has PySpark's version",
        "",
    )


def test_the_drivers_memory_is_reported_with_its_source(orders: Settings) -> None:
    state, says, _ = findings(orders)["memory"]
    assert state == OK
    assert "a quarter of" in says
    found = findings(dataclasses.replace(orders, driver_memory="90t"))["memory"]
    assert found[0] == WARNING
    assert found[1].startswith("a heap of 90t for Spark's driver: driver-memory; ")
    found = findings(dataclasses.replace(orders, driver_memory="much"))["memory"]
    assert found[:2] == (PROBLEM, "driver-memory is 'much', not a heap size")
    assert "spark-submit" in findings(orders, **_environ(), PYSPARK_GATEWAY_PORT="1")["memory"][1]


def test_missing_jars_without_maven_are_a_warning(orders: Settings, tmp_path: Path) -> None:
    found = findings(orders, PATH="", XDG_CACHE_HOME=str(tmp_path))
    assert found["jars"][0] == WARNING
    assert "Ivy" in found["jars"][1]


def test_an_unreachable_broker_is_reported_with_its_address(orders: Settings) -> None:
    found = findings(dataclasses.replace(orders, bootstrap_server="127.0.0.1:1"))
    assert found["broker"][0] == PROBLEM
    assert "127.0.0.1:1 does not respond" in found["broker"][1]


def test_the_topics_that_match_a_pattern_are_reported(orders: Settings, existing_topic: str) -> None:
    found = findings(dataclasses.replace(orders, topics=(), topics_pattern=f"{existing_topic}|other"))
    assert found["topics"] == (OK, f"'{existing_topic}|other' matches {existing_topic}", "")
    found = findings(dataclasses.replace(orders, topics=()))
    assert found["topics"][:2] == (PROBLEM, "none is set")


def test_the_command_exits_with_1_if_there_is_a_problem(broker: BrokerThread, tmp_path: Path) -> None:
    arguments = [
        "pipeline",
        "doctor",
        "--topics",
        "orders",
        "--lake",
        str(tmp_path),
        "--bootstrap-server",
        broker.bootstrap,
    ]
    assert main(arguments) == 1
