"""A store that fails sometimes, permanently, or after it applied a request: nothing is lost or duplicated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import compact, doctor, ingest, report
from odradek.pipeline.report.findings import PROBLEM
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.cluster.faulty_store import (
    CUT,
    SERVER_ERROR,
    SLOW_DOWN,
    Fault,
    FaultyStore,
    Request,
    always,
    faulty_store,
    never,
    one_in,
)
from tests.pipeline.cluster.lake_tables import check_same, every_kind, in_store, ingested_twin, varied
from tests.pipeline.cluster.object_store import ObjectStore
from tests.pipeline.lake import send

pytestmark = pytest.mark.timeout(900)
MANY_ATTEMPTS = 30
"""Of all tasks together; one task makes nine."""

RESTARTS = 3


@dataclass(frozen=True, slots=True)
class Work:
    """A topic, and the tables that it must give."""

    settings: Settings
    twin: Settings


@pytest.fixture(scope="module")
def work(spark: SparkSession, broker: BrokerThread, tmp_path_factory: pytest.TempPathFactory) -> Work:
    topic = "of-faults"
    send(broker.bootstrap, topic, every_kind(0, 0))
    settings = varied(
        Settings(
            name="orders",
            topics=(topic,),
            bootstrap_server=broker.bootstrap,
            schema="id LONG, customer STRING, amount DOUBLE, at TIMESTAMP",
            event_time="at",
            required=("id", "at"),
            max_offsets_per_trigger=35,
        )
    )
    return Work(settings, ingested_twin(settings, str(tmp_path_factory.mktemp("twin") / "lake")))


@pytest.fixture
def faulty(bucket: ObjectStore) -> Iterator[FaultyStore]:
    with faulty_store(bucket) as running:
        yield running


def until_it_ends(settings: Settings) -> int:
    """Runs the ingest until it exits with 0; returns the number of failed runs."""
    for failures in range(RESTARTS):
        try:
            assert ingest.run(settings) == 0
        except PipelineError:
            continue
        return failures
    assert ingest.run(settings) == 0
    return RESTARTS


def now_and_then(seed: int) -> Callable[[Request], Fault | None]:
    """500 or 503 for one request in ten."""
    errors, pauses = one_in(20, SERVER_ERROR, seed=seed), one_in(20, SLOW_DOWN, seed=seed + 1)
    return lambda request: errors(request) or pauses(request)


def test_errors_in_one_request_of_ten_change_no_table(work: Work, faulty: FaultyStore) -> None:
    settings = in_store(work.settings, faulty.store)
    faulty.rule = now_and_then(seed=11)
    until_it_ends(settings)
    faulty.rule = never
    assert len(faulty.injected) > 15
    check_same(settings, work.twin)


def once_for_each_place(*faults: Fault) -> Callable[[Request], Fault | None]:
    """Loses the response to the first and third PUT of each log and of the plans."""
    seen: Counter[str] = Counter()

    def rule(request: Request) -> Fault | None:
        directory, _, name = request.path.rpartition("/")
        if request.method != "PUT" or not (directory.endswith("/_delta_log") or name.startswith("plan-")):
            return None
        seen[directory] += 1
        return faults[seen[directory] % len(faults)] if seen[directory] % 2 else None

    return rule


def test_lost_responses_of_the_store_lose_and_duplicate_nothing(work: Work, faulty: FaultyStore) -> None:
    settings = in_store(work.settings, faulty.store)
    faulty.rule = once_for_each_place(SERVER_ERROR.applied(), CUT)
    failures = until_it_ends(settings)
    faulty.rule = never
    hit = {request.path.rpartition("/")[0].partition("/lake/")[2] for request, _ in faulty.injected}
    tables = {f"{name}/_delta_log" for name in ("orders", "orders_dead_letters", "orders_windows", "_orders/batches")}
    assert hit >= {*tables, "_orders"}
    check_same(settings, work.twin)
    assert failures == 0, "the job goes on by itself"


@pytest.mark.parametrize("below", ["/", "part-", "/_orders/batches/"])
def test_permanent_errors_end_the_job_after_few_attempts_with_one_line(
    work: Work, faulty: FaultyStore, below: str
) -> None:
    settings = in_store(replace(work.settings, shadow_group=f"of-{abs(hash(below))}"), faulty.store)
    faulty.rule = always(SERVER_ERROR, method="" if below == "/" else "PUT", below=below)
    with pytest.raises(PipelineError, match=r"the ingest failed: the object store fails: [A-Z]+ http.* 500 ") as caught:
        ingest.run(settings)
    assert len(faulty.injected) < MANY_ATTEMPTS
    assert "check the store" in caught.value.remedy
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    faulty.rule = never
    if below == "/_orders/batches/":
        assert ingest.run(settings) == 0
        check_same(settings, work.twin)


def test_the_other_jobs_report_store_errors_in_one_line_too(work: Work, faulty: FaultyStore) -> None:
    settings = in_store(work.settings, faulty.store)
    faulty.rule = always(SERVER_ERROR)
    for job in (compact, report):
        with pytest.raises(PipelineError, match=r"the object store fails: [A-Z]+ http.* 500 ") as caught:
            job.run(settings)
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)
    found = {one.subject: one for one in doctor.examine(settings)}
    assert found["lake"].state == found["state"].state == PROBLEM
    assert not any("\n" in one.says or "\x1b" in one.says for one in found.values())


def test_retry_settings_apply_to_both_clients(work: Work, faulty: FaultyStore) -> None:
    settings = in_store(work.settings, faulty.store, max_retries="1")
    faulty.rule = always(SERVER_ERROR)
    with pytest.raises(Exception, match="after 1 retries"):
        Places.of(settings).state.read("plan-0.json")
    with pytest.raises(PipelineError, match="after 1 retries"):
        report.run(settings)
    with pytest.raises(PipelineError, match=r"\[store\] retry_timeout is 'soon', not a duration"):
        Places.of(in_store(work.settings, faulty.store, retry_timeout="soon"))
