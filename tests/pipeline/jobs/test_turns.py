"""Several pipelines take turns in one process, and each stays exactly once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.jobs import backfill, ingest
from odradek.pipeline.jobs.turns import each, take_turns
from odradek.pipeline.settings import Settings
from odradek.testing import BrokerThread
from tests.pipeline.conftest import QUICK_SESSION
from tests.pipeline.jobs.test_kills import finish, lively, settings_of
from tests.pipeline.lake import check_ledger, check_tables, order, send
from tests.soak import rounds

KILLS = [("rows: committed", 2), ("ledger: committed", 3), ("read", 2), ("windows: files written", 2)]


class Clock:
    def __init__(self, ends_at: float = 1000) -> None:
        self.now, self.ends_at = 0.0, ends_at

    def pause(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.ends_at:
            raise Stopped


def test_the_pipeline_that_is_due_first_is_next() -> None:
    clock, taken = Clock(), []

    def pipeline(name: str, took: float, waits: list[float]) -> Iterator[float]:
        for wait in waits:
            taken.append((name, clock.now))
            clock.now += took
            yield wait

    turns = {"busy": pipeline("busy", 4, [0, 0, 0]), "idle": pipeline("idle", 0, [10, 10])}
    take_turns(turns, clock.pause, pytest.fail, lambda: clock.now)
    assert taken == [("busy", 0), ("idle", 4), ("busy", 4), ("busy", 8), ("idle", 14)]


def test_a_failure_ends_the_turns_of_one_pipeline_and_is_raised_last() -> None:
    clock = Clock(ends_at=3)
    taken: list[str] = []
    failed: list[str] = []

    def pipeline(name: str, *failure: Exception) -> Iterator[float]:
        while True:
            taken.append(name)
            yield 1
            for each_failure in failure:
                raise each_failure

    turns = {
        "a": pipeline("a", PipelineError("gone", "restore it")),
        "b": pipeline("b"),
        "c": pipeline("c", OSError("x")),
    }
    with pytest.raises(PipelineError, match=r"^a: gone; restore it; c: the job failed: x$"):
        take_turns(turns, clock.pause, failed.append, lambda: clock.now)
    assert failed == ["a", "c"]
    assert "".join(taken) == "abcbb"


def test_one_after_the_other_a_failure_is_raised_last_and_the_highest_status_is_returned() -> None:
    done, status = [], {"a": 3, "b": 0}
    pipelines = [Settings(name=name) for name in status]
    assert each(pipelines, lambda one: status[one.name]) == 3

    def run(settings: Settings) -> int:
        done.append(settings.name)
        if settings.name == "a":
            raise PipelineError("gone")
        return 0

    with pytest.raises(PipelineError, match=r"^a: gone$"):
        each(pipelines, run)
    assert done == ["a", "b"]


def test_several_topics_become_tables_in_one_job_though_one_of_them_fails(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = replace(orders, name="first", max_offsets_per_trigger=30, dedup_keys=("id",), watermark_delay="1 hour")
    other = replace(
        orders, name="other", topics=(f"{topic}-2",), schema="id LONG", required=(), event_time="", job_version="2"
    )
    broken = replace(orders, name="broken", topics=(f"{topic}-missing",))
    send(broker.bootstrap, topic, [*(order(number, number) for number in range(60)), order(3, 3)])
    send(broker.bootstrap, f"{topic}-2", [*(order(number, number) for number in range(20)), b"{"])
    with pytest.raises(PipelineError, match=f"^broken: topic {topic}-missing does not exist; create it, or change"):
        ingest.run_all([broken, first, other])
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    batches = [(line["pipeline"], line["batch_id"]) for line in lines if line["event"] == "batch"]
    assert batches == [("first", 0), ("other", 0), ("first", 1), ("first", 2)]
    assert sum(row.duplicates for row in check_tables(spark, first)) == 1
    assert sum(row.good for row in check_tables(spark, other)) == 20
    with pytest.raises(PipelineError, match="the pipelines first and first_late would both write to"):
        ingest.run_all([first, replace(other, name="first_late")])


@pytest.mark.usefixtures("spark")
def test_a_backfill_of_several_pipelines_is_followed_by_their_ingest(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    pipelines = [orders, replace(orders, name="other", topics=(f"{topic}-2",))]
    for one in pipelines:
        send(broker.bootstrap, one.topics[0], [order(number, number) for number in range(10)])
    assert backfill.run_all(pipelines) == 0
    for one in pipelines:
        send(broker.bootstrap, one.topics[0], [order(number, number) for number in range(4)])
    assert ingest.run_all(pipelines) == 0
    for one in pipelines:
        assert [(row.job, row.good) for row in check_ledger(one)] == [("backfill", 10), ("ingest", 4)]


@pytest.mark.soak("a kill at each of 4 places", minutes=3)
@pytest.mark.timeout(1200)
def test_kills_leave_the_tables_of_a_batch_computation_of_each_pipeline(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    first = replace(settings_of(orders), name="first")
    pipelines = [first, replace(first, name="other", topics=(f"{topic}-2",), max_offsets_per_trigger=100)]
    for one in pipelines:
        send(broker.bootstrap, one.topics[0], lively(150))
    file = tmp_path / "settings.json"
    file.write_text(json.dumps([{**asdict(one), "spark": QUICK_SESSION} for one in pipelines]))
    for point, times in KILLS[: rounds(1, in_soak=len(KILLS))]:
        command = [sys.executable, "-m", "tests.pipeline.killed_ingest", str(file), point, str(times)]
        with (tmp_path / "ingest.log").open("ab") as log:
            finish(subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log), tmp_path, -signal.SIGKILL)
    assert ingest.run_all(pipelines) == 0
    for one in pipelines:
        check_tables(spark, one)
