"""The release of Kafka beside which the rows are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import Session, all_rows
from benchmarks.contestants import KAFKA, ODRADEK, ApacheKafka, Kind, Odradek
from benchmarks.measurement import LESS, Metric, Reading, Result, Row
from benchmarks.report import as_json, table

CONTROL = """#!/bin/sh
echo "$KAFKA_VERSION $*" >> {asked}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the control was asked for, with the release."""
    control, asked = tmp_path / "control", tmp_path / "asked"
    control.write_text(CONTROL.format(asked=asked))
    control.chmod(0o755)
    monkeypatch.setenv("KAFKA_CONTROL", str(control))
    monkeypatch.delenv("KAFKA_VERSION", raising=False)
    return asked


@pytest.mark.parametrize("version", [None, "4.3.0", "3.9.1"])
def test_the_control_starts_the_release_that_the_environment_names(
    asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    if version is not None:
        monkeypatch.setenv("KAFKA_VERSION", version)
    kafka = ApacheKafka(tmp_path)
    kafka._launch()
    kafka._settle()
    assert asked.read_text().split()[:2] == [version or "4.4.0", "start"]


class OfAPart(Row):
    name = "part"
    metrics = (Metric("part", "us", LESS),)
    needs_broker = False

    def kafka_version(self) -> str:
        return "3.9.1"

    def measure(self, contestant: object) -> dict[str, Reading]:
        return {"part": Reading(1.0)}


def test_a_row_beside_an_older_release_says_so(asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [Kind(ODRADEK, Odradek), Kind(KAFKA, lambda workspace: ApacheKafka(workspace))]
    session = Session(tmp_path, kinds)
    session.run([OfAPart()], 1)
    assert session.notes == ["part: beside Kafka 3.9.1, since 4.4.0 has no such part"]
    monkeypatch.setenv("KAFKA_VERSION", "3.9.1")
    session = Session(tmp_path, kinds)
    session.run([OfAPart()], 1)
    assert session.notes == []


def test_only_clusters_and_the_purgatory_need_an_older_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_VERSION", raising=False)
    older = [row.name for row in all_rows(1) if row.kafka_version() != "4.4.0"]
    assert older == ["purgatory", "cluster acks=all", "cluster partitions", "cluster visits"]


def test_the_table_and_the_document_name_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_VERSION", "4.3.0")
    results = [Result("part", OfAPart.metrics[0], {ODRADEK: [Reading(1.0)], KAFKA: [Reading(2.0)]})]
    assert "kafka 4.3.0" in table(results).splitlines()[1]
    assert as_json(results, [], 1)["kafka"] == "4.3.0"
