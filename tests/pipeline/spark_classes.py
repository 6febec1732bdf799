"""Keeps what Java makes of Spark's classes, so that the tests' Spark processes start with half of the processor time.

    python -m tests.pipeline.spark_classes

A job with a broker of ours runs once, and Java writes the classes that it has loaded into SPARK_CLASSES.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext

from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import make_settings
from odradek.pipeline.spark.session import open_session
from odradek.testing import BrokerThread
from tests.pipeline.conftest import QUICK_JAVA, QUICK_SESSION, SPARK_CLASSES
from tests.pipeline.lake import check_tables, order, send

ORDERS = 100
END_S = 120


def keep(archive: Path) -> None:
    """Runs the job, and waits until its Java process has written the archive and ended."""
    options = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={archive} -Xlog:disable"
    with tempfile.TemporaryDirectory() as directory, BrokerThread(num_partitions=2) as broker:
        settings = make_settings(
            {
                "name": "orders",
                "lake": directory,
                "bootstrap_server": broker.bootstrap,
                "topics": ["orders"],
                "schema": "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP",
                "event_time": "at",
                "dedup_keys": ["id"],
                "window": "1 minute",
                "window_by": ["customer"],
                "window_sums": ["amount"],
                "master": "local[2]",
            }
        )
        send(broker.bootstrap, "orders", [order(number, number) for number in range(ORDERS)])
        session = open_session(settings, {**QUICK_SESSION, "spark.driver.extraJavaOptions": options})
        assert ingest.run(settings) == 0
        check_tables(session, settings)
        session.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(END_S)


def main() -> int:
    unfinished = SPARK_CLASSES.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    keep(unfinished)
    unfinished.replace(SPARK_CLASSES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
