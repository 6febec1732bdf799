"""History from segments finds the source also where PySpark does not, as in an editable install."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from odradek.pipeline.history import history_records
from odradek.pipeline.segments.source import SegmentSource
from odradek.pipeline.settings import make_settings


class Session:
    """Of a Spark session what is asked; `error`: what registering raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.registered: list[type] = []
        self.dataSource = SimpleNamespace(register=self._register)
        self.read: Any = SimpleNamespace(
            format=lambda name: self.read, options=lambda **_: self.read, load=lambda: "rows"
        )
        self._error = error

    def _register(self, source: type) -> None:
        if self._error:
            raise self._error
        self.registered.append(source)


def records(session: Any, log_dir: Path) -> object:
    (log_dir / "t-0").mkdir()
    settings = make_settings({"topics": ["t"], "backfill_from": "segments", "log_dirs": [str(log_dir)]})
    return history_records(session, settings, {"t": {0: 0}}, {"t": {0: 1}}, {})


def test_the_source_is_registered(tmp_path: Path) -> None:
    session = Session()
    assert records(session, tmp_path) == "rows"
    assert session.registered == [SegmentSource]


def test_one_that_pyspark_has_found_by_itself_is_taken(tmp_path: Path) -> None:
    there = AnalysisException("it is there", errorClass="DATA_SOURCE_ALREADY_EXISTS", messageParameters={})
    assert records(Session(there), tmp_path) == "rows"
    (tmp_path / "t-0").rmdir()
    with pytest.raises(AnalysisException, match="it is not"):
        records(Session(AnalysisException("it is not")), tmp_path)
