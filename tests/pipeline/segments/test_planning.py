"""Options, available offsets, and their division into tasks; records of many shapes; open transactions."""

import re
import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments.options import parse_options
from tests.pipeline.segments.batch_builder import ABORT, COMMIT, batch, marker, record, wrapped
from tests.pipeline.segments.log_files import LOGS, Row, planned, rows_of, write_log

TRANSACTIONAL, CONTROL = 0x10, 0x20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two segments, each with one batch of three records: offsets 0-2 and 3-5."""
    return write_log(tmp_path, *((base, batch(base, [b"a", b"b", b"c"])) for base in (0, 3)))


def offsets(rows: list[Row]) -> list[int]:
    return [row["offset"] for row in rows]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", [0, 1, 2, 3, 4, 5]),
        ("latest", "latest", []),
        ("earliest", "earliest", []),
        ('{"t": {"0": 1}}', '{"t": {"0": 5}}', [1, 2, 3, 4]),
        ('{"t": {"0": -2}}', '{"t": {"0": 2}}', [0, 1]),
        ('{"t": {"0": 4}}', '{"t": {"0": -1}}', [4, 5]),
        ('{"t": {"0": 6}}', "latest", []),
    ],
)
def test_a_range_of_offsets_is_exact_to_the_record(log: Path, start: str, end: str, expected: list[int]) -> None:
    assert offsets(rows_of(log, "t", startingOffsets=start, endingOffsets=end)) == expected


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"startingOffsets": '{"t": {"0": 7}}'}, "t-0 cannot be read from 7 to 6"),
        (
            {"endingOffsets": '{"t": {"0": 7}}'},
            "t-0 has the offsets from 0 to its last stable offset 6, but 7 was requested",
        ),
        ({"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'}, "cannot be read from 5 to 4"),
        ({"startingOffsets": '{"t": {"1": 5}}'}, "startingOffsets and the existing partitions differ in t-0, t-1"),
        ({"endingOffsets": '{"u": {"0": 5}}'}, "endingOffsets and the existing partitions differ in t-0, u-0"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first', not earliest, latest or JSON"),
        ({"startingOffsets": "[1]"}, "startingOffsets is '[1]', not earliest, latest or JSON"),
        ({"endingOffsets": '{"t": {"0": -3}}'}, "endingOffsets has -3 for t-0, not an offset"),
        ({"endingOffsets": '{"t": {"0": 1.5}}'}, "endingOffsets has 1.5 for t-0, not an offset"),
        ({"isolationLevel": "serializable"}, "isolationLevel is 'serializable', not read_committed or read_unc"),
        ({"verifyCrc": "maybe"}, "verifyCrc is 'maybe', not true or false"),
        ({"maxOffsets": "1"}, "the odradek source has no option maxoffsets"),
        ({"topicsPattern": "t"}, "needs either topics or a pattern"),
        ({"topic": "t,absent"}, "has no partition of absent"),
        ({"path": "/nowhere"}, "the log directory /nowhere cannot be read: No such file or directory"),
        ({"path": " , "}, "the odradek source needs a path"),
    ],
)
def test_invalid_options_are_reported_in_one_line(log: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(PipelineError, match=re.escape(problem)):
        rows_of(options.pop("path", log), options.pop("topic", "t"), **options)


def test_an_invalid_pattern_is_an_error() -> None:
    with pytest.raises(PipelineError, match=r"topicsPattern '\(' is not a regular expression"):
        parse_options({"path": "/", "topicsPattern": "("})
    with pytest.raises(PipelineError, match="needs either topics or a pattern"):
        parse_options({"path": "/"})


def test_records_removed_by_delete_records_are_not_returned(log: Path) -> None:
    (log / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    assert offsets(rows_of(log, "t")) == [2, 3, 4, 5]
    with pytest.raises(
        PipelineError, match="t-0 has the offsets from 2 to its last stable offset 6, but 1 was requested"
    ):
        rows_of(log, "t", startingOffsets='{"t": {"0": 1}}')
    assert offsets(rows_of(log, "t", startingOffsets='{"t": {"0": 1}}', failOnDataLoss="false")) == [2, 3, 4, 5]


@pytest.mark.parametrize("content", ["0\n2\nt 0 2\n", "1\n0\n", "0\n1\nt 0 x\n", "garbage"])
def test_an_invalid_checkpoint_is_an_error(log: Path, content: str) -> None:
    (log / "log-start-offset-checkpoint").write_text(content)
    with pytest.raises(PipelineError, match="log-start-offset-checkpoint is not a checkpoint of offsets"):
        rows_of(log, "t")


def test_several_directories_and_patterns_are_read(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_log(tmp_path / name, batch(0, [name.encode()]))
    (tmp_path / "two" / "t-0").rename(tmp_path / "two" / "t-1")
    (tmp_path / "two" / "__consumer_offsets-0").mkdir()
    (tmp_path / "two" / "t-1.abc-delete").mkdir()
    both = f"{tmp_path / 'one'},{tmp_path / 'two'}"
    assert [(row["partition"], row["value"]) for row in rows_of(both, topicsPattern=".*")] == [(0, b"one"), (1, b"two")]
    (tmp_path / "two" / "t-1").rename(tmp_path / "two" / "t-0")
    with pytest.raises(PipelineError, match=r"t-0 is in .*/one and in .*/two; set the log.dirs of one broker"):
        rows_of(both, "t")


def test_a_segment_is_one_task_and_a_large_segment_several(log: Path) -> None:
    assert len(planned(log, "t")[0]) == 2
    whole = rows_of(LOGS / "clean", "plain")
    ranges = planned(LOGS / "clean", "plain", split_bytes=1000)[0]
    assert len(ranges) > 2 * len(planned(LOGS / "clean", "plain")[0])
    assert all(one.end_position - one.start_position >= 500 for one in ranges if one.start_position)
    assert rows_of(LOGS / "clean", "plain", split_bytes=1000) == whole
    for start in range(0, 150, 7):
        asked = f'{{"plain": {{"0": {start}, "1": {start}}}}}'
        part = rows_of(LOGS / "clean", "plain", split_bytes=700, startingOffsets=asked)
        assert part == [row for row in whole if row["offset"] >= start]


def test_an_open_transaction_ends_the_read_and_aborted_ones_are_skipped(tmp_path: Path) -> None:
    data = (
        batch(0, [b"aborted"], attributes=TRANSACTIONAL, producer_id=1)
        + batch(1, [b"plain of the same producer"], producer_id=1)
        + batch(2, [b"committed"], attributes=TRANSACTIONAL, producer_id=2)
        + marker(3, ABORT, 1)
        + batch(4, [b"again"], attributes=TRANSACTIONAL, producer_id=1)
        + marker(5, COMMIT, 2)
        + marker(6, COMMIT, 1)
        + batch(7, [b"behind"])
    )
    still_open = batch(8, [b"open"], attributes=TRANSACTIONAL, producer_id=2) + batch(9, [b"late"])
    log = write_log(tmp_path, data + still_open)
    assert offsets(rows_of(log, "t")) == [1, 2, 4, 7]
    assert offsets(rows_of(log, "t", isolationLevel="read_uncommitted")) == [0, 1, 2, 4, 7, 8, 9]
    write_log(tmp_path, data, (8, still_open), (10, marker(10, ABORT, 2)))
    assert offsets(rows_of(log, "t")) == [1, 2, 4, 7, 9]


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 0),
        (record(0, struct.pack(">hh", 0, 2), b""), 1),
        (record(0, b"\0\0\0", b""), 1),
        (record(0, None, b""), 1),
        (record(0, struct.pack(">hh", 0, ABORT), b"")[:-1], 1),
    ],
    ids=["empty", "of another type", "short key", "no key", "cut"],
)
def test_a_control_batch_without_a_marker_ends_no_transaction(tmp_path: Path, payload: bytes, count: int) -> None:
    begun = batch(0, [b"open"], attributes=TRANSACTIONAL, producer_id=1)
    log = write_log(tmp_path, begun + wrapped(1, payload, count, TRANSACTIONAL | CONTROL, 1, last_delta=0))
    assert offsets(rows_of(log, "t")) == []
    write_log(tmp_path, begun + marker(1, COMMIT, 1))
    assert offsets(rows_of(log, "t")) == [0]


@pytest.mark.parametrize("attributes", [0, 1])
def test_a_batch_with_many_records_is_returned_in_parts(tmp_path: Path, attributes: int) -> None:
    values = [b"%d" % number for number in range(150_000)]
    log = write_log(tmp_path, batch(0, values, attributes=attributes))
    assert [row["value"] for row in rows_of(log, "t")] == values


def test_records_of_many_shapes_are_read(tmp_path: Path) -> None:
    """Rows of equal and of different sizes, lengths of one to four bytes, nulls, headers."""
    sizes = [0] * 100 + [60, 61, 62, 63, 64, 65] * 20 + [8186] * 70 + [8190, 8191, 8192] * 5 + [2_100_000, 1] + [5] * 33
    shapes = [
        (None if at % 7 == 0 else b"k" * (at % 3), None if at % 11 == 0 else b"v" * size, [(b"h", None)] * (at % 4))
        for at, size in enumerate(sizes)
    ]
    payload = b"".join(record(delta, *shape) for delta, shape in enumerate(shapes))
    rows = rows_of(write_log(tmp_path, batch(0, [], payload=payload, count=len(shapes))), "t")
    assert [
        (row["key"], row["value"], [(one["key"].encode(), one["value"]) for one in row["headers"] or []])
        for row in rows
    ] == shapes
    assert offsets(rows) == list(range(len(shapes)))


def test_values_that_look_like_record_lengths_are_read(tmp_path: Path) -> None:
    """Lengths of 100 and 4004 both begin with C8, and so does every byte of the values."""
    values = [b"\xc8" * size for size in [92] * 5 + [3996] + [92] * 40]
    records = [record(0, b"k", value) for value in values]
    assert {one[0] for one in records} == {0xC8}
    payload = b"".join(records)
    rows = rows_of(write_log(tmp_path, batch(0, [], payload=payload, count=len(values))), "t")
    assert [row["value"] for row in rows] == values
