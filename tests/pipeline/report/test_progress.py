"""Progress: a rewritten line on a terminal, JSON lines elsewhere, neither torn by log lines."""

import io
import json
import logging
from datetime import UTC, datetime

import pytest
import structlog

from odradek.pipeline.report.progress import CLEAR_LINE, BatchDone, open_progress

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """What the terminal shows: a cleared line starts again."""
        return [line.rpartition(CLEAR_LINE)[2] for line in self.getvalue().split("\n")]


def done(batch_id: int, **changes: object) -> BatchDone:
    counts: dict[str, object] = {"rows_in": 1000, "good": 990, "dead": 5, "duplicates": 3, "late": 2, "duration_s": 0.5}
    return BatchDone(job="ingest", batch_id=batch_id, **{**counts, **changes})  # type: ignore[arg-type]


def test_a_terminal_shows_one_line_of_totals_that_is_rewritten() -> None:
    stream = Terminal()
    with open_progress(stream, lambda: 120) as progress:
        progress.waiting("starting Spark")
        progress.batch(done(0, lag=5000))
        progress.batch(done(1, lag=0))
    assert stream.screen() == ["ingest batch 1  2,000 rows/s  good 1,980  dead 10  dup 6  late 4  lag 0", ""]


def test_lost_offsets_are_shown_if_there_are_any() -> None:
    stream = Terminal()
    with open_progress(stream, lambda: 120) as progress:
        progress.batch(done(0, lost=7))
    assert "lost 7" in stream.screen()[0]


def test_a_line_is_no_wider_than_the_terminal() -> None:
    stream = Terminal()
    with open_progress(stream, lambda: 30) as progress:
        progress.batch(done(0))
    assert stream.screen()[0] == "ingest batch 0  2,000 rows/s "


def test_a_log_line_is_printed_above_the_rewritten_line() -> None:
    stream = Terminal()
    with open_progress(stream, lambda: 120) as progress:
        progress.batch(done(0))
        structlog.get_logger("pipeline.test").warning("a topic is gone", topic="orders")
    first, last, _ = stream.screen()
    assert "a topic is gone" in first
    assert "ingest batch" not in first
    assert "orders" in first
    assert last.startswith("ingest batch 0")


def test_without_a_terminal_each_batch_is_a_line_of_json() -> None:
    stream = io.StringIO()
    with open_progress(stream) as progress:
        progress.waiting("starting Spark")
        progress.batch(done(3, watermark=NOON, lag=4))
        structlog.get_logger("pipeline.test").error("it broke", reason="disk full")
    batch, error = (json.loads(line) for line in stream.getvalue().splitlines())
    assert list(batch)[:4] == ["timestamp", "level", "logger", "event"]
    assert batch.items() >= {
        "level": "info", "logger": "pipeline.progress", "event": "batch", "job": "ingest", "batch_id": 3,
        "rows_in": 1000, "good": 990, "dead": 5, "duplicates": 3, "late": 2, "lost": 0, "lag": 4,
        "rows_per_second": 2000, "duration_s": 0.5, "watermark": "2026-01-01T12:00:00+00:00",
    }.items()  # fmt: skip
    assert error.items() >= {"level": "error", "event": "it broke", "reason": "disk full"}.items()


def test_log_messages_of_libraries_are_printed_with_their_traceback() -> None:
    stream = io.StringIO()
    with open_progress(stream):
        try:
            raise ValueError("no such thing")
        except ValueError:
            logging.getLogger("kafka.conn").exception("socket %s", "closed")
        logging.getLogger("kafka.conn").info("not this")
    (line,) = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (line["logger"], line["event"]) == ("kafka.conn", "socket closed")
    assert "ValueError: no such thing" in line["exception"]


def test_a_closed_stream_does_not_stop_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    with open_progress(stream) as progress:
        stream.close()
        progress.batch(done(0))


def test_a_batch_that_took_no_time_has_no_rate() -> None:
    assert done(0, duration_s=0.0).rows_per_second == 0


def test_logging_is_restored_afterwards() -> None:
    before = structlog.get_config()
    with open_progress(io.StringIO()):
        assert structlog.get_config()["processors"] != before["processors"]
    assert structlog.get_config() == before
