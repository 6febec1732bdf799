"""A lake in an object store has the same tables as one in a directory, and one job at a time."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import backfill, compact, doctor, ingest, report, sql
from odradek.pipeline.report.findings import OK
from odradek.pipeline.settings import Settings
from odradek.pipeline.state import lock
from odradek.pipeline.state.lock import alone, is_held
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.cluster.lake_tables import check_same, every_kind, in_store, tables_of, varied
from tests.pipeline.cluster.object_store import ObjectStore
from tests.pipeline.lake import check_tables, order, send

pytestmark = pytest.mark.timeout(900)

JOB = "job.lock"
HELD = "another ingest, backfill or redrive is running here"
HOLDER = """
import json, sys, time
from odradek.pipeline.state import lock
from odradek.pipeline.state.location import location_of
url, options = sys.argv[1], json.loads(sys.argv[2])
lock.LEASE_S, lock.RENEWED_S = float(sys.argv[3]), float(sys.argv[4])
with lock.alone(location_of("state", url, options), "job.lock", "held"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def quick_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE_S", 1.5)
    monkeypatch.setattr(lock, "RENEWED_S", 0.5)


def test_all_jobs_write_the_same_tables_as_in_a_local_lake(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, bucket: ObjectStore
) -> None:
    twin = varied(orders, max_offsets_per_trigger=70)
    settings = in_store(replace(twin, shadow_group="of-the-store"), bucket)
    send(broker.bootstrap, topic, every_kind(0, 0))
    assert [backfill.run(one) for one in (twin, settings)] == [0, 0]
    send(broker.bootstrap, topic, every_kind(1000, 120))
    assert [ingest.run(one) for one in (twin, settings)] == [0, 0]
    check_tables(spark, twin)
    check_same(settings, twin)
    send(broker.bootstrap, topic, [order(2000 + number, number % 60) for number in range(10)])  # Two minutes late.
    send(broker.bootstrap, topic, [order(number, 120 + number - 1000) for number in range(1000, 1010)])
    assert [ingest.run(one) for one in (twin, settings, settings)] == [0, 0, 0]
    check_same(settings, twin)
    assert len(tables_of(settings)["late"]) == 10
    assert compact.run(settings, io.StringIO()) == 0
    check_same(settings, twin)
    out = io.StringIO()
    assert report.run(settings, out) == 0
    totals = json.loads(Places.of(settings).state.read("report.json") or b"")["totals"]
    assert (totals["good"], totals["late"], totals["duplicates"]) == (120, 10, 22)
    assert f"{bucket.url}/lake/_orders/report.html" in out.getvalue()
    lake = {one.subject: one for one in doctor.examine(settings)}
    assert {lake[name].state for name in ("lake", "state", "offsets")} == {OK}, lake
    assert "supports conditional puts" in lake["lake"].says


def test_iceberg_tables_are_the_same_as_in_a_local_lake(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, bucket: ObjectStore
) -> None:
    twin = varied(orders, max_offsets_per_trigger=70, sink="iceberg")
    settings = in_store(replace(twin, shadow_group="of-the-store"), bucket)
    send(broker.bootstrap, topic, every_kind(1000, 120))
    assert [ingest.run(one) for one in (twin, settings)] == [0, 0]
    check_tables(spark, twin)
    check_same(settings, twin)
    send(broker.bootstrap, topic, [order(2000 + number, number % 60) for number in range(10)])  # Two minutes late.
    assert [ingest.run(one) for one in (twin, settings)] == [0, 0]
    assert compact.run(replace(settings, compact_retention="0 seconds"), io.StringIO()) == 0
    check_same(settings, twin)
    assert len(tables_of(settings)["late"]) == 10
    out = io.StringIO()
    assert sql.run(settings, "SELECT count(*) AS n, sum(amount) AS amount FROM rows", out) == 0
    assert out.getvalue().split()[:3] == ["n", "amount", "60"]
    assert {one.subject: one.state for one in doctor.examine(settings)}["state"] == OK


def test_plain_parquet_is_refused_in_a_store(orders: Settings, bucket: ObjectStore) -> None:
    with pytest.raises(PipelineError, match="plain Parquet needs; set sink to delta") as caught:
        ingest.run(in_store(replace(orders, sink="parquet"), bucket))
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("quick_lease")
def test_a_second_job_is_refused_while_the_first_runs(orders: Settings, bucket: ObjectStore) -> None:
    settings = in_store(orders, bucket)
    state = Places.of(settings).state
    with alone(state, JOB, HELD):
        assert is_held(state, JOB)
        time.sleep(2)  # Longer than a lease, which is therefore renewed.
        with pytest.raises(PipelineError, match=f"{HELD}: .* holds s3://.*/job.lock; stop it first"):
            ingest.run(settings)
    assert not is_held(state, JOB)
    assert state.names() == []


@pytest.mark.usefixtures("quick_lease")
def test_a_job_waits_for_the_lease_of_a_killed_job_to_expire(orders: Settings, bucket: ObjectStore) -> None:
    settings = in_store(orders, bucket)
    state = Places.of(settings).state
    arguments = [state.url, json.dumps(dict(state.options)), "1.5", "0.5"]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
        assert is_held(state, JOB)
        with alone(state, JOB, HELD):
            assert is_held(state, JOB)


@pytest.mark.usefixtures("quick_lease")
def test_a_job_does_not_release_a_lease_that_another_job_holds(
    orders: Settings, bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Places.of(in_store(orders, bucket)).state
    with alone(state, JOB, HELD):
        state.replace(JOB, json.dumps({"holder": "another", "until": time.time() + 60}).encode())
    assert b"another" in (state.read(JOB) or b"")
