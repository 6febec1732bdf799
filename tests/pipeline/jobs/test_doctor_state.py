"""The doctor reports what the ingest will do with the state and the topics, and changes nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import TopicPartition
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.jobs.doctor import examine
from odradek.pipeline.jobs.history import NAME, History, write_history
from odradek.pipeline.kafka.topics import KnownTopic, look
from odradek.pipeline.report.findings import OK, PROBLEM, WARNING
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.lock import alone, is_held
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.ingest_state import (
    Mishap,
    findings_of,
    ingested,
    planned,
    read_topic,
    refused,
    removed,
    start,
    torn,
    write,
)
from tests.pipeline.lake import check_tables, order, send
from tests.pipeline.ledger_rows import batch, enter

ITSELF = "nothing to do: the next job handles it"
COUNTED = "nothing to do: the job continues with what is left, and counts the loss"


@pytest.fixture(params=["delta", "iceberg"])
def settings(orders: Settings, request: pytest.FixtureRequest) -> Settings:
    return replace(orders, dedup_keys=("id",), sink=request.param)


@pytest.fixture
def admin(broker: BrokerThread) -> Any:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def made_again(admin: KafkaAdminClient, name: str) -> None:
    admin.delete_topics([name])
    admin.create_topics([NewTopic(name, 2, 1)])


def test_without_a_state_the_setting_decides_where_to_begin(broker: BrokerThread, settings: Settings) -> None:
    send(broker.bootstrap, settings.topics[0], [order(1, 1)])
    state = Places.of(settings).state
    assert findings_of(settings) == {
        "state": (OK, f"none yet in {state}; the first batch starts at earliest", ""),
        "offsets": (OK, "1 left to read", ""),
    }
    assert not state.path.exists()
    assert findings_of(replace(settings, starting_offsets="latest"))["offsets"] == (OK, "0 left to read", "")
    found = findings_of(replace(settings, starting_offsets="newest"))
    assert found["offsets"][:2] == (PROBLEM, "starting-offsets 'newest' is not earliest, latest or offsets")


def test_a_complete_state_is_reported_with_the_next_offsets(broker: BrokerThread, settings: Settings) -> None:
    name = read_topic(broker, settings)
    assert findings_of(settings) == {
        "state": (OK, f"batch 1 is done; continues at {name}-0 10, {name}-1 10", ""),
        "offsets": (OK, "20 left to read", ""),
    }
    assert start(settings).number == 2
    assert "offsets" not in findings_of(settings, answers=False)


def test_many_partitions_are_summarized(settings: Settings) -> None:
    name = settings.topics[0]
    write(settings, 0)
    enter(settings, batch(0, {name: {number: 10 * number for number in range(50)}}))
    message = findings_of(settings, False)["state"][1]
    assert message.endswith(f"{name}-0 0, {name}-1 10, {name}-2 20, {name}-3 30 and more, in 50 partitions")


@pytest.mark.parametrize(
    ("mishap", "says"), [(None, "was planned but not started"), (torn("plan-2.json"), "damaged plan")]
)
def test_a_plan_without_any_commit_is_recreated(settings: Settings, mishap: Mishap | None, says: str) -> None:
    ingested(settings)
    planned(settings, 2)
    if mishap:
        mishap(Places.of(settings))
    state, message, remedy = findings_of(settings, False)["state"]
    assert (state, remedy) == (WARNING, ITSELF)
    assert says in message
    assert start(settings).unfinished is None


def test_a_batch_that_only_some_tables_have_is_completed_by_its_plan(settings: Settings) -> None:
    ingested(settings)
    plan = planned(settings, 2)
    write(settings, 2)
    assert findings_of(settings, False)["state"] == (WARNING, "batch 2 is in some of the tables", ITSELF)
    assert start(settings).unfinished == plan
    changed = replace(settings, required=("id", "customer"), dedup_keys=())
    says = "with its original settings (changed since: required, dedup-keys)"
    assert says in findings_of(changed, False)["state"][1]
    unfinished = start(changed).unfinished
    assert unfinished is not None
    assert unfinished.settings(changed) == settings


@pytest.mark.parametrize(
    ("mishap", "says", "remedy"),
    [
        (removed("batches"), "have batch 2, the ledger .* has none: it was removed, or is an older copy", "restore it"),
        (removed("../orders"), "the ledger has batch 1 of the rows in .*, the table has none", "restore the table"),
        (removed("../orders_dead_letters"), "has batch 1 of the dead letters in .* has none", "restore the table"),
        (removed("plan-2.json"), "batch 2 is only in some of the tables, and its plan is missing", "restore it"),
        (torn("plan-2.json"), r"plan-2\.json is damaged \(JSONDecodeError", "restore it"),
        (removed("../_orders"), "have batch 2, the ledger .* has none", "restore it"),
    ],
    ids=["ledger lost", "rows lost", "dead letters lost", "plan lost", "plan torn", "state lost"],
)
def test_a_problem_has_the_text_of_the_jobs_refusal(settings: Settings, mishap: Mishap, says: str, remedy: str) -> None:
    ingested(settings)
    planned(settings, 2)
    write(settings, 2)
    mishap(Places.of(settings))
    found = findings_of(settings, False)
    assert found == {"state": refused(settings)}
    with pytest.raises(PipelineError, match=says):
        start(settings)
    assert found["state"][2].startswith(remedy)


def test_another_sink_or_name_is_a_problem(settings: Settings) -> None:
    ingested(settings)
    kind, other = ("a Delta", "iceberg") if settings.sink == "delta" else ("an Iceberg", "delta")
    assert f"is {kind} table" in findings_of(replace(settings, sink="parquet"), False)["state"][1]
    assert (
        f"is not {'an Iceberg' if other == 'iceberg' else 'a Delta'} table"
        in (findings_of(replace(settings, sink=other), False)["state"][1])
    )
    of_another = replace(settings, name="others", state=str(Places.of(settings).state))
    assert "the table has none" in findings_of(of_another, False)["state"][1]


def test_a_table_that_cannot_be_read_is_a_problem(settings: Settings) -> None:
    ingested(settings)
    log = "_delta_log" if settings.sink == "delta" else "metadata"
    for file in (Places.of(settings).rows.path / log).glob("*.json"):
        file.write_text("{")
    state, says, remedy = findings_of(settings, False)["tables"]
    assert state == PROBLEM
    assert says.startswith(f"the table {Places.of(settings).rows} cannot be read: ")
    assert remedy == "restore it; nothing was changed"


def test_a_recreated_topic_is_a_problem_or_its_loss_is_reported(
    broker: BrokerThread, settings: Settings, admin: KafkaAdminClient
) -> None:
    name = read_topic(broker, settings)
    made_again(admin, name)
    state, says, remedy = findings_of(settings)["offsets"]
    assert (state, says.split(":")[0]) == (PROBLEM, name)
    assert "deleted and recreated since it was read" in says
    assert remedy.startswith("set on-recreated-topic to continue")
    state, says, remedy = findings_of(replace(settings, on_recreated_topic="continue"))["offsets"]
    assert (state, remedy) == (WARNING, COUNTED)
    assert says == f"{name}: recreated, so read from the start; 20 offsets are lost"


def test_a_deleted_topic_is_a_problem(broker: BrokerThread, settings: Settings, admin: KafkaAdminClient) -> None:
    name = read_topic(broker, settings)
    send(broker.bootstrap, f"{name}.other", [order(1, 1)])
    admin.delete_topics([name])
    settings = replace(settings, topics=(name, f"{name}.other"))
    assert findings_of(settings)["offsets"][:2] == (PROBLEM, f"{name}: read before, but deleted now")


def test_offsets_missing_on_the_broker_are_a_problem_or_counted(
    broker: BrokerThread, settings: Settings, admin: KafkaAdminClient
) -> None:
    name = read_topic(broker, settings)
    admin.delete_records({TopicPartition(name, 0): 13})
    state, says, remedy = findings_of(settings)["offsets"]
    assert (state, says) == (PROBLEM, f"{name}-0: offsets 10 to 12 were deleted")
    assert remedy == "set on-data-loss to continue, which reads what is left and counts the loss"
    assert findings_of(replace(settings, on_data_loss="continue"))["offsets"] == (WARNING, says, COUNTED)


def begun_backfill(settings: Settings, batches: int, topic_id: str = "") -> None:
    """A backfill of 2 partitions with 20 offsets each, in batches of ten, of which `batches` are committed."""
    name = settings.topics[0]
    known = {name: KnownTopic(topic_id, {0: 20, 1: 20})}
    write_history(Places.of(settings).state, History({name: {0: 0, 1: 0}}, {name: {0: 20, 1: 20}}, known))
    ingested(settings, topic_id, batches, job="backfill")


def test_the_ingest_begins_where_the_backfill_ended(broker: BrokerThread, settings: Settings) -> None:
    name = settings.topics[0]
    send(broker.bootstrap, name, [order(number, number) for number in range(44)])
    begun_backfill(settings, 4, look(settings, list)[name].id)
    found = findings_of(settings)
    assert found["backfill"] == (OK, "is finished, with 40 offsets", "")
    assert found["state"][1].endswith(f"continues at {name}-0 20, {name}-1 20")
    assert found["offsets"] == (OK, "4 left to read", "")


def test_an_unfinished_backfill_must_end_before_the_ingest(broker: BrokerThread, settings: Settings) -> None:
    name = settings.topics[0]
    send(broker.bootstrap, name, [order(number, number) for number in range(44)])
    begun_backfill(settings, 3, look(settings, list)[name].id)
    found = findings_of(settings)
    assert found["backfill"] == refused(settings)
    assert found["backfill"][1:] == (
        "the backfill is at 30 of 40 offsets",
        "run `odradek pipeline backfill` to its end, then ingest",
    )
    assert "offsets" not in found


@pytest.mark.parametrize(
    ("batches", "mishap", "says", "remedy"),
    [
        (0, torn(NAME), "is damaged (JSONDecodeError", "remove it, or run `odradek pipeline backfill`"),
        (1, torn(NAME), "is damaged (JSONDecodeError", "restore it"),
        (4, removed(NAME), "the record of where the backfill ends, is missing", "restore it"),
    ],
)
def test_a_bad_record_of_a_backfill_is_a_problem_until_the_ingest_has_begun(
    settings: Settings, batches: int, mishap: Mishap, says: str, remedy: str
) -> None:
    begun_backfill(settings, batches)
    mishap(Places.of(settings))
    found = findings_of(settings, False)
    assert found["backfill"] == refused(settings)
    assert says in found["backfill"][1]
    assert found["backfill"][2].startswith(remedy)
    write(settings, batches)
    enter(settings, batch(batches, {settings.topics[0]: {0: 20, 1: 20}}))
    assert set(findings_of(settings, False)) == {"state"}, "it is needed no more"


def test_a_running_job_is_reported_and_keeps_its_lock(broker: BrokerThread, settings: Settings) -> None:
    read_topic(broker, settings)
    state = Places.of(settings).state
    with alone(state, "job.lock", "another is at work"):
        found = findings_of(settings)
        assert found["job"] == (
            WARNING,
            f"an ingest, backfill or redrive is running: it holds {state}/job.lock",
            "no other can start until it ends",
        )
        assert found["state"] == (OK, "in use: batch 1 is done", "")
        assert found["offsets"] == (OK, "20 left to read", "")
        assert is_held(state, "job.lock"), "still"
    assert "job" not in findings_of(settings)


def test_a_pattern_that_only_java_compiles_is_checked_by_its_known_topics(
    broker: BrokerThread, settings: Settings
) -> None:
    read_topic(broker, settings)
    of_java = replace(settings, topics=(), topics_pattern=r"\p{Lower}+-[\w&&[^x]]+")
    found = {one.subject: one for one in examine(of_java)}
    assert found["topics"].state == WARNING
    assert "cannot be compiled by Python" in found["topics"].says
    assert found["offsets"].says == "20 left to read"


def test_without_deltalake_everything_else_is_reported(settings: Settings, tmp_path: Path) -> None:
    arguments = ["pipeline", "doctor", "--topics", "orders", "--lake", str(tmp_path / "lake"),
                 "--bootstrap-server", settings.bootstrap_server]  # fmt: skip
    program = (
        "import sys\n"
        "for name in sys.argv[1].split(','): sys.modules[name] = None\n"
        "from odradek.cli.__main__ import main\n"
        "sys.exit(main(sys.argv[2:]))"
    )

    def run(missing: str) -> Sequence[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, missing, *arguments], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (1, "")
        return done.stdout.splitlines()

    lines = run("deltalake")
    place = lines.index("PROBLEM  state: cannot be checked without deltalake")
    assert lines[place + 1] == "         -> pip install 'odradek[spark]'"
    assert any(line.startswith("ok       broker:") for line in lines)
    assert "PROBLEM  topic orders: does not exist" in lines
    lines = run("kafka,pyspark")
    assert "PROBLEM  broker: cannot be checked without kafka" in lines
    assert any(line.startswith("PROBLEM  state: cannot be checked without") for line in lines)


def test_the_ingest_does_what_the_doctor_reported(
    spark: SparkSession, broker: BrokerThread, settings: Settings, admin: KafkaAdminClient
) -> None:
    settings, places, name = replace(settings, max_offsets_per_trigger=20), Places.of(settings), settings.topics[0]
    send(broker.bootstrap, name, [order(number, number) for number in range(30)])
    assert ingest.run(settings) == 0
    assert findings_of(settings)["state"][0] == findings_of(settings)["offsets"][0] == OK
    planned(settings, 2)
    assert findings_of(settings)["state"][0] == WARNING
    send(broker.bootstrap, name, [order(number, number) for number in range(20, 40)])
    assert ingest.run(settings) == 0
    assert findings_of(settings)["state"][0] == OK
    check_tables(spark, settings)

    def refuses(subject: str) -> None:
        state, says, remedy = findings_of(settings)[subject]
        assert state == PROBLEM
        with pytest.raises(PipelineError) as caught:
            ingest.run(settings)
        assert (caught.value.problem, caught.value.remedy) == (says, remedy)

    away = shutil.move(places.ledger.path, places.state.path / "away")
    refuses("state")
    shutil.move(away, places.ledger.path)
    send(broker.bootstrap, name, [order(number, number) for number in range(20)])
    admin.delete_records({TopicPartition(name, 0): 26})
    refuses("offsets")
    admin.delete_topics([name])
    admin.create_topics([NewTopic(name, 2, 1)])
    refuses("offsets")
