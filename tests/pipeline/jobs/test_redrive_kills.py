"""kill -9 of all processes of a redrive, at each of its steps and at random: no letter is lost, and none is doubled."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.jobs.test_kills import finish, kill, one_after_the_other, start
from tests.pipeline.jobs.test_redrive import POINTS, check, fixed, run, strict, wave
from tests.pipeline.lake import send
from tests.soak import SOAK, rounds

RANDOM_KILLS = rounds(1, in_soak=20)


@pytest.mark.soak("a kill at each of 8 places, and after each the next redrive", minutes=4)
@pytest.mark.timeout(1200)
def test_placed_kills_of_a_redrive_leave_the_tables_of_a_batch_computation(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    settings = strict(orders)
    send(broker.bootstrap, topic, wave())
    assert ingest.run(settings) == 0
    points = [(point, 1) for point in (POINTS if SOAK else (POINTS[2], POINTS[6]))]
    with one_after_the_other(fixed(settings), tmp_path, points, "redrive") as jobs:
        for job in jobs:
            finish(job, tmp_path, -signal.SIGKILL)
    run(fixed(settings))
    rows = check(spark, fixed(settings))
    assert [row.redriven for row in rows] == [0, 13]


@pytest.mark.soak("20 kills at random moments", minutes=10)
@pytest.mark.timeout(3000)
def test_random_kills_of_redrives_leave_the_tables_of_a_batch_computation(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    """Between the kills, ingests by the old settings finish what they find, and add letters."""
    settings, source = strict(orders), random.Random(30)
    places = Places.of(settings)
    for number in range(RANDOM_KILLS):
        send(broker.bootstrap, topic, wave(100 * number))
        assert ingest.run(settings) == 0
        process = start(fixed(settings), tmp_path, "-", "1", "redrive")
        rows, until = len(Ledger(places.ledger).rows()), time.monotonic() + 200
        try:
            # The plan is written a moment before the first commit.
            while process.poll() is None and time.monotonic() < until and not list(places.state.path.glob("plan-*")):
                time.sleep(0.02)
            time.sleep(source.random() * 8)
        finally:
            kill(process)
        assert len(Ledger(places.ledger).rows()) - rows in (0, 1)
    run(fixed(settings))
    rows_of_all = check(spark, fixed(settings))
    assert sum(row.redriven for row in rows_of_all) == 13 * RANDOM_KILLS
