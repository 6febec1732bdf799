"""What the doctor says of the checkpoint is what the ingest makes of it; and it changes nothing."""

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

from odradek.broker.testing import BrokerThread
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.findings import OK, PROBLEM, WARNING
from odradek.pipeline.jobs import ingest
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from tests.pipeline.checkpoint_files import checkpoint, cut
from tests.pipeline.ingest_state import (
    Mishap,
    ingested,
    read_topic,
    refused,
    removed,
    start,
    told,
    torn,
    write,
    written_over,
)
from tests.pipeline.lake import check_tables, order, send
from tests.pipeline.ledger_rows import batch, enter


@pytest.fixture
def settings(orders: Settings) -> Settings:
    return replace(orders, dedup_keys=("id",))


def test_where_nothing_is_yet_the_setting_says_where_to_begin(broker: BrokerThread, settings: Settings) -> None:
    send(broker.bootstrap, settings.topics[0], [order(1, 1)])
    state = Places.of(settings).state
    assert told(settings) == {
        "checkpoint": (OK, f"none yet in {state}; the ingest begins at earliest", ""),
        "offsets": (OK, "1 wait to be read", ""),
    }
    assert not state.exists()
    assert told(replace(settings, starting_offsets="latest"))["offsets"] == (OK, "0 wait to be read", "")
    found = told(replace(settings, starting_offsets="newest"))
    assert found["offsets"][:2] == (PROBLEM, "starting-offsets 'newest' is neither earliest, latest nor offsets")


def test_a_whole_checkpoint_is_told_with_where_it_goes_on(broker: BrokerThread, settings: Settings) -> None:
    name = read_topic(broker, settings)
    found = told(settings)
    assert found == {
        "checkpoint": (OK, f"generation 1, batch 1 is done; goes on at {name}-0 10, {name}-1 10", ""),
        "offsets": (OK, "20 wait to be read", ""),
    }
    assert start(settings) == []
    checkpoint(Places.of(settings).checkpoint(1), 3, 2)
    assert "batch 1 is done and batch 2 is begun; goes on" in told(settings)["checkpoint"][1]
    assert "offsets" not in told(settings, answers=False)


def test_many_partitions_are_told_in_short(settings: Settings) -> None:
    ingested(settings, plans=1, commits=0, entered=0)
    assert told(settings, False)["checkpoint"][1] == "generation 1, batch 0 is begun; goes on at earliest"
    ends = {settings.topics[0]: {number: 10 * number for number in range(50)}}
    write(settings, 0)
    enter(settings, batch(0, ends))
    said = told(settings, False)["checkpoint"][1]
    assert said.endswith("-0 0, {0}-1 10, {0}-2 20, {0}-3 30 and so on in 50 partitions".format(settings.topics[0]))


@pytest.mark.parametrize(
    ("plans", "mishap", "file"),
    [
        (3, torn("checkpoint-1/offsets/2"), "offsets/2: torn before anything was done by it"),
        (3, torn("checkpoint-1/commits/1", 0), "commits/1: torn; the batch is repeated"),
        (2, torn("checkpoint-1/metadata"), "metadata: torn; the query gets a new id"),
        (2, torn("checkpoint-1/sources/0/0"), "sources/0/0: torn, and needed no more"),
        (3, removed("checkpoint-1/offsets/2"), "offsets/.2.crc, whose file is gone"),
    ],
    ids=["plan", "commit", "metadata", "beginning", "checksum"],
)
def test_what_is_mended_by_itself_is_a_warning_until_it_is(
    settings: Settings, plans: int, mishap: Mishap, file: str
) -> None:
    ingested(settings, plans=plans)
    mishap(Places.of(settings))
    state, says, remedy = told(settings, False)["checkpoint"]
    name = settings.topics[0]
    assert (state, remedy) == (
        WARNING,
        f"nothing to do: the next ingest removes it; it begins at {name}-0 10, {name}-1 10",
    )
    assert says == f"{Places.of(settings).checkpoint(1)}/{file}"
    assert start(settings) == [f"removed {says}"]
    assert told(settings, False)["checkpoint"][0] == OK


@pytest.mark.parametrize(
    ("mishap", "says", "remedy"),
    [
        (torn("checkpoint-1/offsets/1"), "offsets/1 is damaged: it is cut short, and with it the", "put the check"),
        (removed("checkpoint-1"), "checkpoint-1 is gone, and with it the keys", "put the checkpoint back"),
        (
            lambda places: checkpoint(shutil.rmtree(places.checkpoint(1)) or places.checkpoint(1), 1, 1),
            "checkpoint-1 is a checkpoint, but not of this pipeline",
            "move its tables",
        ),
        (removed("batches"), "has committed batch 1, but the ledger", "put the tables back"),
        (removed("../orders"), "has batch 1 of the rows in", "put the table back"),
        (removed("../orders_dead_letters"), "has batch 1 of the dead letters in", "put the table back"),
        (removed("../_orders"), "have batches that the ledger", "move its tables"),
        (removed("generation-1.json"), "generation-1.json is gone, with the ids of the topics", "move its tables"),
        (torn("generation-1.json"), "generation-1.json is damaged: it is not JSON", "put it back"),
        (written_over("generation-1.json", "[]"), "generation-1.json is damaged: it is no object", "put it back"),
        (
            written_over("generation-1.json", '{"starting_offsets": "{", "lost": 0, "topics": {}, "seen_ends": "{}"}'),
            "generation-1.json is damaged: JSONDecodeError",
            "put it back",
        ),
        (torn("checkpoint-1/query.json"), "query.json is damaged: it is not JSON, and with it the keys", "put the"),
    ],
    ids=[
        "torn plan", "lost", "foreign", "ledger lost", "rows lost", "dead letters lost", "state lost",
        "generation lost", "generation torn", "generation no object", "generation's offsets", "query torn",
    ],
)  # fmt: skip
def test_what_is_refused_is_a_problem_in_the_same_words(
    settings: Settings, mishap: Mishap, says: str, remedy: str
) -> None:
    ingested(settings)
    mishap(Places.of(settings))
    found = told(settings, False)
    assert found == {"checkpoint": refused(settings)}
    assert says in found["checkpoint"][1]
    assert found["checkpoint"][2].startswith(remedy)


def test_tables_that_are_ahead_of_an_old_checkpoint_are_a_problem_where_keys_were_remembered(
    settings: Settings,
) -> None:
    ingested(settings, plans=1, commits=1)
    assert told(settings, False) == {"checkpoint": refused(settings)}
    assert "has planned up to batch 0, but the tables have batch 1, and" in told(settings, False)["checkpoint"][1]
    going_on = replace(settings, on_data_loss="continue")
    state, says, remedy = told(going_on, False)["checkpoint"]
    assert (state, remedy) == (WARNING, "nothing to do: the next ingest does so by itself")
    assert start(going_on) == [says]
    assert told(going_on, False)["checkpoint"][1].startswith("generation 2 has no batch yet; it begins at")


def test_a_batch_that_only_some_tables_have_and_no_checkpoint_can_finish_is_a_problem(settings: Settings) -> None:
    ingested(settings, plans=3)
    write(settings, 2)
    assert told(settings, False)["checkpoint"][0] == OK
    shutil.rmtree(Places.of(settings).checkpoint(1))
    assert told(settings, False) == {"checkpoint": refused(settings)}
    assert "batch 2 is only in a part of the tables" in told(settings, False)["checkpoint"][1]


def test_a_checkpoint_that_nothing_was_written_by_is_made_anew(settings: Settings) -> None:
    ingested(settings, plans=1, commits=0, entered=0)
    cut(Places.of(settings).checkpoint(1) / "query.json", 0.5)
    state, says, _ = told(settings, False)["checkpoint"]
    assert state == WARNING
    assert start(settings) == [says]
    assert told(settings, False)["checkpoint"][:2] == (OK, "generation 1 has no batch yet; it begins at earliest")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dedup_keys": ("id", "at")}, "dedup-keys was {'id': 'bigint'} and is {'at': '?', 'id': 'bigint'}"),
        ({"dedup_keys": ()}, "dedup-keys was {'id': 'bigint'} and is {}"),
        ({"topics": ("others",)}, "is of another query: topics was"),
        ({"topics": (), "topics_pattern": "o.*"}, "topics-pattern was None and is 'o.*'"),
        ({"sink": "parquet"}, "sink was 'delta' and is 'parquet'"),
        ({"name": "others", "state": "_orders"}, "name was 'orders' and is 'others'"),
    ],
)
def test_a_checkpoint_of_another_query_is_a_problem(settings: Settings, changes: dict[str, Any], says: str) -> None:
    ingested(settings)
    if "state" in changes:
        changes["state"] = str(Path(settings.lake) / changes["state"])
    state, said, remedy = told(replace(settings, **changes), False)["checkpoint"]
    assert (state, remedy) == (PROBLEM, "move its tables and its state away to begin anew, or set another name")
    assert says in said


def test_a_table_that_cannot_be_read_is_a_problem(settings: Settings) -> None:
    ingested(settings)
    for file in (Places.of(settings).rows / "_delta_log").glob("*.json"):
        file.write_text("{")
    state, says, remedy = told(settings, False)["tables"]
    assert state == PROBLEM
    assert says.startswith(f"the table {Places.of(settings).rows} cannot be read: ")
    assert remedy == "put it back as it was; nothing was changed"


def test_without_deltalake_everything_else_is_told(settings: Settings, tmp_path: Path) -> None:
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
    place = lines.index("PROBLEM  checkpoint: cannot be looked at without deltalake")
    assert lines[place + 1] == "         -> pip install 'odradek[spark]'"
    assert any(line.startswith("ok       broker:") for line in lines)
    assert "PROBLEM  topic orders: is not there" in lines
    lines = run("kafka,pyspark")
    assert "PROBLEM  broker: cannot be looked at without kafka" in lines
    assert any(line.startswith("PROBLEM  checkpoint: cannot be looked at without") for line in lines)


def test_the_ingest_does_what_the_doctor_says(spark: SparkSession, broker: BrokerThread, settings: Settings) -> None:
    settings, places, name = replace(settings, max_offsets_per_trigger=20), Places.of(settings), settings.topics[0]
    send(broker.bootstrap, name, [order(number, number) for number in range(30)])
    assert ingest.run(settings) == 0
    assert told(settings)["checkpoint"][0] == told(settings)["offsets"][0] == OK
    done = max(int(one.name) for one in places.checkpoint(1).glob("commits/[0-9]*"))
    cut(places.checkpoint(1) / f"commits/{done}", 0.5)
    assert f"commits/{done}: torn" in told(settings)["checkpoint"][1]
    send(broker.bootstrap, name, [order(number, number) for number in range(20, 40)])
    assert ingest.run(settings) == 0
    assert told(settings)["checkpoint"][0] == OK
    check_tables(spark, settings)

    def refuses(subject: str) -> None:
        state, says, remedy = told(settings)[subject]
        assert state == PROBLEM
        with pytest.raises(PipelineError) as caught:
            ingest.run(settings)
        assert (caught.value.problem, caught.value.remedy) == (says, remedy)

    away = places.checkpoint(1).rename(places.state / "away")
    refuses("checkpoint")
    away.rename(places.checkpoint(1))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    send(broker.bootstrap, name, [order(number, number) for number in range(20)])
    admin.delete_records({TopicPartition(name, 0): 26})
    refuses("offsets")
    admin.delete_topics([name])
    refuses("offsets")
    admin.create_topics([NewTopic(name, 2, 1)])
    refuses("offsets")
    admin.close()
