"""Segments that are rolled, renamed, replaced or deleted between planning and reading."""

import os
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from tests.pipeline.segments.batch_builder import batch
from tests.pipeline.segments.log_files import planned, rows_in, write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three segments: offsets 0-1, 2-3, 4-5."""
    return write_log(tmp_path, *((base, batch(base, [b"%d" % base, b"%d" % (base + 1)])) for base in (0, 2, 4)))


def segment(log: Path, base: int, suffix: str = ".log") -> Path:
    return log / "t-0" / f"{base:020d}{suffix}"


def offsets(log: Path, change: object = None, **options: Any) -> list[int]:
    """Plans, lets `change` happen, and reads."""
    ranges, given = planned(log, "t", **options)
    if callable(change):
        change()
    return [row["offset"] for one in ranges for row in rows_in(one, given)]


def test_a_segment_pending_deletion_is_read(log: Path) -> None:
    assert offsets(log, lambda: segment(log, 0).rename(segment(log, 0, ".log.deleted"))) == [0, 1, 2, 3, 4, 5]


def test_a_topic_pending_deletion_is_read(log: Path) -> None:
    renamed = log / "t-0.0123456789abcdef0123456789abcdef-delete"
    assert offsets(log, lambda: (log / "t-0").rename(renamed)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("base", "gone"), [(0, "0 to 1"), (2, "2 to 3"), (4, "4 to 5")])
def test_a_deleted_segment_is_an_error_with_its_offsets(log: Path, base: int, gone: str) -> None:
    with pytest.raises(PipelineError, match=rf"the offsets {gone} of t-0 are lost: segment 0*{base} was deleted"):
        offsets(log, segment(log, base).unlink)


@pytest.mark.parametrize(("base", "rest"), [(0, [2, 3, 4, 5]), (2, [0, 1, 4, 5]), (4, [0, 1, 2, 3])])
def test_without_fail_on_data_loss_the_rest_is_read(
    log: Path, base: int, rest: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    assert offsets(log, segment(log, base).unlink, failOnDataLoss="false") == rest
    assert "are lost" in caplog.text


def test_a_deleted_topic_is_an_error(log: Path) -> None:
    def remove() -> None:
        for file in (log / "t-0").iterdir():
            file.unlink()
        (log / "t-0").rmdir()

    with pytest.raises(PipelineError, match="offsets 0 to 1 of t-0 are lost"):
        offsets(log, remove)


def test_a_segment_that_the_cleaner_replaced_is_read(log: Path) -> None:
    """Segments 0 and 2 become one, without offsets 1 and 2."""

    def clean() -> None:
        kept = batch(0, [b"0"]) + batch(3, [b"3"])
        segment(log, 0, ".log.swap").write_bytes(kept)
        segment(log, 0).unlink()
        segment(log, 2).unlink()
        segment(log, 0, ".log.swap").rename(segment(log, 0))

    assert offsets(log, clean) == [0, 3, 4, 5]


def test_a_log_is_read_completely_during_a_swap(log: Path) -> None:
    swap = batch(0, [b"0"]) + batch(3, [b"3"])
    segment(log, 0, ".log.swap").write_bytes(swap)
    assert offsets(log) == [0, 3, 4, 5]
    segment(log, 0).rename(segment(log, 0, ".log.deleted"))
    assert offsets(log) == [0, 3, 4, 5]
    assert offsets(log, lambda: segment(log, 0, ".log.swap").rename(segment(log, 0))) == [0, 3, 4, 5]


def test_an_unfinished_cleaning_is_ignored(log: Path) -> None:
    segment(log, 0, ".log.cleaned").write_bytes(batch(0, [b"0"]))
    segment(log, 2, ".log.swap").write_bytes(batch(3, [b"3"]))
    assert offsets(log) == [0, 1, 2, 3, 4, 5]


def test_records_appended_after_the_plan_are_not_read(log: Path) -> None:
    def append() -> None:
        with segment(log, 4).open("ab") as file:
            file.write(batch(6, [b"6"]))
        segment(log, 7).write_bytes(batch(7, [b"7"]))

    assert offsets(log, append) == [0, 1, 2, 3, 4, 5]
    assert offsets(log) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_log_truncated_after_the_plan_is_an_error(log: Path) -> None:
    with pytest.raises(PipelineError, match=r"was truncated to 0 bytes: .* it had the offsets up to 5 of t-0"):
        offsets(log, lambda: os.truncate(segment(log, 4), 0))
