"""The state of an ingest made by hand, and what the doctor and the ingest say of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from odradek.broker.testing import BrokerThread
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.batch_tables import BatchTables
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.findings import PROBLEM
from odradek.pipeline.generations import Generation, Generations, fingerprint_of
from odradek.pipeline.ledger import Ledger
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from odradek.pipeline.state_findings import state_findings
from odradek.pipeline.topic_ids import look
from tests.pipeline.checkpoint_files import checkpoint, cut
from tests.pipeline.lake import order, send
from tests.pipeline.ledger_rows import batch, enter

Told = dict[str, tuple[str, str, str]]
Mishap = Callable[[Places], object]
KEYS = {"id": "bigint"}


def read_topic(broker: BrokerThread, settings: Settings) -> str:
    """A topic of 2 partitions with 20 records each, and its ingest of which batches 0 and 1 are done."""
    send(broker.bootstrap, settings.topics[0], [order(number, number) for number in range(40)])
    ingested(settings, look(settings, bool)[settings.topics[0]].id)
    return settings.topics[0]


def ingested(settings: Settings, topic_id: str = "", plans: int = 2, commits: int = 2, entered: int = 2) -> None:
    """The state of an ingest: `entered` batches of the ledger and the tables, each with five offsets a partition."""
    places, topic = Places.of(settings), settings.topics[0]
    checkpoint(places.checkpoint(1), plans, commits).save_query(
        fingerprint_of(settings, KEYS if settings.dedup_keys else {})
    )
    Generation(1, "earliest", 0, {topic: topic_id}, {topic: {0: 20, 1: 20}}, None).save(places)
    for number in range(entered):
        write(settings, number)
        enter(settings, batch(number, {topic: {0: 5 * number + 5, 1: 5 * number + 5}}))


def write(settings: Settings, number: int, job: str = "ingest") -> None:
    """A batch into the table of rows and that of dead letters."""
    places, name = Places.of(settings), BatchId(settings.name, job, 1, number)
    for path, table in ((places.rows, "rows"), (places.dead_letters, "dead_letters")):
        properties = CommitProperties(app_transactions=[Transaction(name.app(table), number)])
        write_deltalake(str(path), pa.table({"id": [number]}), mode="append", commit_properties=properties)


def contents(directory: Path) -> dict[str, bytes | None]:
    return {
        str(one.relative_to(directory)): one.read_bytes() if one.is_file() else None for one in directory.rglob("*")
    }


def told(settings: Settings, answers: bool = True) -> Told:
    """What is found of the state, by subject; fails if anything on the disk was changed by the look."""
    lake = Path(settings.lake)
    before = contents(lake)
    found = list(state_findings(settings, answers))
    assert contents(lake) == before
    assert len({one.subject for one in found}) == len(found)
    assert all("\n" not in one.says + one.remedy and one.says for one in found)
    return {one.subject: (one.state, one.says, one.remedy) for one in found}


def start(settings: Settings) -> list[str]:
    """The decisions of an ingest that starts, with Spark left out; its notes."""
    places = Places.of(settings)
    tables = BatchTables(settings, places)
    fingerprint = fingerprint_of(settings, dict.fromkeys(settings.dedup_keys, "bigint"))
    generations = Generations(settings, places, tables, Ledger(places.ledger), fingerprint)
    generations.begin(generations.current())
    return generations.notes


def refused(settings: Settings) -> tuple[str, str, str]:
    """What an ingest that starts ends with, as a finding."""
    with pytest.raises(PipelineError) as caught:
        start(settings)
    return PROBLEM, caught.value.problem, caught.value.remedy


def removed(name: str) -> Mishap:
    def remove(places: Places) -> None:
        path = places.state / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def torn(name: str, part: float = 0.5) -> Mishap:
    return lambda places: cut(places.state / name, part)


def written_over(name: str, text: str) -> Mishap:
    return lambda places: (places.state / name).write_text(text)
