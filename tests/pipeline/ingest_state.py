"""An ingest's state, written by hand, and what the doctor and the ingest report about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.history import refuse_unfinished
from odradek.pipeline.jobs.position import Position, position_of
from odradek.pipeline.jobs.state_findings import state_findings
from odradek.pipeline.kafka.topics import KnownTopic, look
from odradek.pipeline.report.findings import PROBLEM
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.iceberg.batches import marks_of
from odradek.pipeline.sinks.iceberg.tables import TablePlace
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.places import Places
from odradek.pipeline.state.plan import Plan, Plans, judging_settings
from odradek.testing import BrokerThread
from tests.pipeline.lake import order, send
from tests.pipeline.ledger_rows import batch, enter

Findings = dict[str, tuple[str, str, str]]
Mishap = Callable[[Places], object]


def read_topic(broker: BrokerThread, settings: Settings) -> str:
    """A topic of 2 partitions with 20 records each, and an ingest that has committed batches 0 and 1."""
    send(broker.bootstrap, settings.topics[0], [order(number, number) for number in range(40)])
    ingested(settings, look(settings, list)[settings.topics[0]].id)
    return settings.topics[0]


def ingested(settings: Settings, topic_id: str = "", batches: int = 2, job: str = "ingest") -> None:
    """Writes the ledger and the tables of an ingest whose batches have five offsets per partition."""
    topic = settings.topics[0]
    known = {topic: KnownTopic(topic_id, {0: 20, 1: 20})}
    for number in range(batches):
        write(settings, number)
        ends = {topic: {0: 5 * number + 5, 1: 5 * number + 5}}
        enter(settings, batch(number, ends, topics=known, job=job))


def write(settings: Settings, number: int) -> None:
    """Writes a batch into the tables of rows and of dead letters."""
    places, name = Places.of(settings), BatchId(settings.name, number)
    for place, table in ((places.rows, "rows"), (places.dead_letters, "dead_letters")):
        if settings.sink == "iceberg":
            sink = TablePlace(place, settings.iceberg)
            opened = sink.find() or sink.create(Schema(NestedField(1, "id", LongType())), ())
            opened.append(pa.table({"id": [number]}), snapshot_properties=marks_of(name.app(table), number))
            continue
        properties = CommitProperties(app_transactions=[Transaction(name.app(table), number)])
        write_deltalake(place.url, pa.table({"id": [number]}), mode="append", commit_properties=properties)


def planned(settings: Settings, number: int, job: str = "ingest") -> Plan:
    """Writes the plan of a batch."""
    topic = settings.topics[0]
    start, end = ({topic: {0: 5 * one, 1: 5 * one}} for one in (number, number + 1))
    now = datetime(2026, 3, 1, tzinfo=UTC)
    plan = Plan(number, job, now, start, end, {}, 0, None, None, judging_settings(settings))
    return Plans(Places.of(settings).state).create(plan)


def contents(directory: Path) -> dict[str, bytes | None]:
    return {
        str(one.relative_to(directory)): one.read_bytes() if one.is_file() else None for one in directory.rglob("*")
    }


def findings_of(settings: Settings, answers: bool = True) -> Findings:
    """The doctor's findings by subject; fails if the doctor changed anything on the disk."""
    lake = Path(settings.lake)
    before = contents(lake)
    found = list(state_findings(settings, answers))
    assert contents(lake) == before
    assert len({one.subject for one in found}) == len(found)
    assert all("\n" not in one.says + one.remedy and one.says for one in found)
    return {one.subject: (one.state, one.says, one.remedy) for one in found}


def start(settings: Settings) -> Position:
    """What a starting ingest decides, without Spark."""
    position = position_of(settings, Places.of(settings))
    refuse_unfinished(Places.of(settings), position)
    return position


def refused(settings: Settings) -> tuple[str, str, str]:
    """The error of a starting ingest, as a finding."""
    with pytest.raises(PipelineError) as caught:
        start(settings)
    return PROBLEM, caught.value.problem, caught.value.remedy


def removed(name: str) -> Mishap:
    def remove(places: Places) -> None:
        path = places.state.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def torn(name: str, part: float = 0.5) -> Mishap:
    def tear(places: Places) -> None:
        file = places.state.path / name
        whole = file.read_bytes()
        file.write_bytes(whole[: int(len(whole) * part)])

    return tear
