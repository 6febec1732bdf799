"""What the doctor says of backfills, of jobs at work, and of the offsets and topics that a job goes on with."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import TopicPartition

from odradek.broker.testing import BrokerThread
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.findings import OK, PROBLEM, WARNING
from odradek.pipeline.generations import fingerprint_of
from odradek.pipeline.handover import Handover
from odradek.pipeline.jobs.doctor import examine
from odradek.pipeline.one_job import alone, is_held
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from odradek.pipeline.topic_ids import look
from tests.pipeline.checkpoint_files import checkpoint, cut
from tests.pipeline.ingest_state import (
    KEYS,
    Mishap,
    ingested,
    read_topic,
    refused,
    removed,
    told,
    torn,
    write,
    written_over,
)
from tests.pipeline.lake import order, send
from tests.pipeline.ledger_rows import batch, enter


@pytest.fixture
def settings(orders: Settings) -> Settings:
    return replace(orders, dedup_keys=("id",))


@pytest.fixture
def admin(broker: BrokerThread) -> Any:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def made_again(admin: KafkaAdminClient, name: str) -> None:
    admin.delete_topics([name])
    admin.create_topics([NewTopic(name, 2, 1)])


def test_a_topic_that_was_made_again_is_a_problem_or_its_loss_is_told(
    broker: BrokerThread, settings: Settings, admin: KafkaAdminClient
) -> None:
    name = read_topic(broker, settings)
    made_again(admin, name)
    state, says, remedy = told(settings)["offsets"]
    assert (state, says.split(":")[0]) == (PROBLEM, name)
    assert "deleted and created again since it was read" in says
    assert remedy.startswith("set on-recreated-topic to continue")
    going_on = replace(settings, on_recreated_topic="continue")
    state, says, remedy = told(going_on)["offsets"]
    assert (state, remedy.split(":")[0]) == (WARNING, "nothing to do")
    assert "created again, so read from the beginning; 20 offsets are lost, and remembered keys forgotten" in says
    checkpoint(Places.of(settings).checkpoint(1), 3, 2)
    write(settings, 2)
    assert told(going_on)["offsets"][0] == PROBLEM, "batch 2 can only be finished by what is gone"


def test_a_topic_that_is_gone_is_a_problem(broker: BrokerThread, settings: Settings, admin: KafkaAdminClient) -> None:
    name = read_topic(broker, settings)
    admin.delete_topics([name])
    assert told(settings)["offsets"][:2] == (PROBLEM, f"{name}: read until now, and gone")


def test_offsets_that_the_broker_does_not_have_are_a_problem_or_counted(
    broker: BrokerThread, settings: Settings, admin: KafkaAdminClient
) -> None:
    name = read_topic(broker, settings)
    admin.delete_records({TopicPartition(name, 0): 13})
    write(settings, 2)
    enter(settings, batch(2, {name: {0: 10, 1: 25, 2: 0}}))
    says = f"{name}-0: offsets 10 to 12 are gone; {name}-1: read up to 25, and the log ends at 20; {name}-2 is gone"
    checkpoint(Places.of(settings).checkpoint(1), 3, 3)
    remedy = "set on-data-loss to continue, which goes on with what is there and counts the loss"
    assert told(settings)["offsets"] == (PROBLEM, says, remedy)
    remedy = "nothing to do: the job goes on with what is there, and counts what is lost"
    assert told(replace(settings, on_data_loss="continue"))["offsets"] == (WARNING, says, remedy)


def begun_backfill(settings: Settings, chunks: int, topic_id: str = "") -> Handover:
    """A backfill of 2 partitions with 20 offsets each in 4 chunks, of which `chunks` are done."""
    name, fingerprint = settings.topics[0], fingerprint_of(settings, KEYS)
    record = Handover(fingerprint, {name: topic_id}, {name: {0: 0, 1: 0}}, {name: {0: 20, 1: 20}}, 10)
    record.save(Places.of(settings))
    for number in range(chunks):
        write(settings, number, "backfill")
        start, end = record.border(number), record.border(number + 1)
        enter(settings, batch(number, {}, job="backfill", start_offsets=start, end_offsets=end))
    return record


def test_the_ingest_begins_where_a_backfill_has_ended(broker: BrokerThread, settings: Settings) -> None:
    name = settings.topics[0]
    send(broker.bootstrap, name, [order(number, number) for number in range(44)])
    begun_backfill(settings, 4)
    found = told(settings)
    assert found["backfill"] == (OK, "is at its end, of 40 offsets", "")
    assert found["checkpoint"][1].endswith(f"the ingest begins at {name}-0 20, {name}-1 20")
    assert found["offsets"] == (OK, "4 wait to be read", "")
    shutil.rmtree(Places.of(settings).rows)
    assert told(settings)["checkpoint"] == refused(settings)


def test_an_unfinished_backfill_comes_first(broker: BrokerThread, settings: Settings, admin: KafkaAdminClient) -> None:
    name = settings.topics[0]
    send(broker.bootstrap, name, [order(number, number) for number in range(44)])
    begun_backfill(settings, 3, look(settings, bool)[name].id)
    assert told(settings) == {"backfill": refused(settings), "offsets": (OK, "10 wait for the backfill", "")}
    assert told(settings)["backfill"][1:] == (
        "the backfill is at 30 of 40 offsets",
        "run `odradek pipeline backfill` to its end, then ingest",
    )
    admin.delete_records({TopicPartition(name, 0): 16})
    assert told(settings)["offsets"][:2] == (PROBLEM, f"{name}-0: offsets 15 to 15 are gone")
    assert told(replace(settings, on_data_loss="continue"))["offsets"][0] == WARNING
    made_again(admin, name)
    assert "created again since it was read" in told(settings)["offsets"][1]
    found = told(replace(settings, on_recreated_topic="continue"))["offsets"]
    assert found[:2] == (WARNING, f"{name}: created again, so what the backfill has not read of it is lost")
    shutil.rmtree(Places.of(settings).rows)
    assert "has batch 2 of the rows in" in told(settings, False)["backfill"][1]


@pytest.mark.parametrize(
    ("chunks", "mishap", "says", "remedy"),
    [
        (0, torn("handover.json"), "is damaged (JSONDecodeError", "remove it, or run `odradek pipeline backfill`"),
        (1, torn("handover.json"), "is damaged (JSONDecodeError", "put it back"),
        (4, removed("handover.json"), "which says where the backfill ends, is gone", "put it back"),
        (4, written_over("handover.json", "{}"), "is damaged (KeyError", "put it back"),
    ],
)
def test_a_bad_record_of_a_backfill_is_a_problem_also_once_the_ingest_has_begun(
    settings: Settings, chunks: int, mishap: Mishap, says: str, remedy: str
) -> None:
    begun_backfill(settings, chunks)
    mishap(Places.of(settings))
    found = told(settings, False)
    assert found == {"backfill": refused(settings)}
    assert says in found["backfill"][1]
    assert found["backfill"][2].startswith(remedy)
    ingested(settings)
    assert told(settings, False)["backfill"] == found["backfill"]
    assert told(settings, False)["checkpoint"][0] == OK


def test_a_backfill_of_other_settings_is_a_problem(settings: Settings) -> None:
    begun_backfill(settings, 4)
    state, says, _ = told(replace(settings, dedup_keys=("at",)), False)["backfill"]
    assert state == PROBLEM
    assert "is of another backfill: dedup-keys was {'id': 'bigint'} and is {'at': '?'}" in says


def test_a_job_at_work_is_told_and_keeps_its_lock(broker: BrokerThread, settings: Settings) -> None:
    read_topic(broker, settings)
    places = Places.of(settings)
    with alone(places.lock):
        found = told(settings)
        assert found["job"] == (
            WARNING, f"an ingest or backfill is at work: it holds {places.lock}", "another is refused until it ends"
        )  # fmt: skip
        assert found["checkpoint"] == (OK, "generation 1, in use: batch 1 is entered", "")
        assert found["offsets"] == (OK, "20 wait to be read", "")
        assert is_held(places.lock), "still"
        cut(places.checkpoint(1) / "offsets/1", 0.5)
        assert told(settings)["checkpoint"][0] == OK, "it may be just written"
    assert "job" not in told(settings)
    assert told(settings)["checkpoint"][0] == PROBLEM


def test_a_look_at_the_lock_does_not_keep_a_job_from_starting(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    assert not is_held(lock)
    assert not lock.exists()
    lock.touch()
    with lock.open("rb") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_held(lock), "two may look"
        end = threading.Timer(0.02, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        end.start()
        with alone(lock):
            assert is_held(lock)
            with pytest.raises(PipelineError, match="another ingest or backfill"), alone(lock):
                pass
        end.join()


def test_a_pattern_that_only_java_reads_is_compared_by_the_topics_that_are_known(
    broker: BrokerThread, settings: Settings
) -> None:
    read_topic(broker, settings)
    of_java = replace(settings, topics=(), topics_pattern=r"\p{Lower}+-[\w&&[^x]]+")
    Places.of(settings).checkpoint(1).joinpath("query.json").write_text(json.dumps(fingerprint_of(of_java, KEYS)))
    found = {one.subject: one for one in examine(of_java)}
    assert found["topics"].state == WARNING
    assert "is not for Python to read" in found["topics"].says
    assert found["offsets"].says == "20 wait to be read"
