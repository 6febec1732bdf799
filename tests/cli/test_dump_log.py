"""`odradek dump-log` from a user's view."""

import argparse
from pathlib import Path

import pytest

from odradek.cli.dump_log import add_parser, main

LOGS = Path(__file__).parent.parent / "vectors" / "logs"
FOLDER = LOGS / "clean" / "plain-0"
SEGMENT = FOLDER / "00000000000000000000.log"


def test_a_segment_is_printed_batch_by_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SEGMENT)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[:2] == [f"Dumping {SEGMENT}", "Log starting offset: 0"]
    assert lines[2].startswith("baseOffset: 0 lastOffset: 1 count: 2 ")
    assert not [line for line in lines if line.startswith("|")]


def test_records_are_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--deep-iteration", str(SEGMENT)]) == 0
    assert "| offset: 0 CreateTime: 1700000001000 keySize: -1 valueSize: 19" in capsys.readouterr().out
    assert main(["--print-data-log", str(SEGMENT)]) == 0
    assert "payload: tombstone retention" in capsys.readouterr().out
    assert main(["--print-data-log", "--skip-record-metadata", str(SEGMENT)]) == 0
    assert "|  payload: tombstone retention" in capsys.readouterr().out.replace("| payload", "|  payload")


def test_files_can_be_given_in_the_form_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    index = FOLDER / "00000000000000000000.index"
    assert main(["--files", f"{SEGMENT}, {index}"]) == 0
    out = capsys.readouterr().out
    assert f"Dumping {SEGMENT}" in out
    assert f"Dumping {index}" in out
    assert "offset: " in out


def test_no_more_than_max_bytes_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--max-bytes", "200", str(SEGMENT)]) == 0
    out = capsys.readouterr().out
    assert out.count("baseOffset:") == 1
    assert "invalid bytes" not in out


def test_indexes_can_be_checked_without_being_printed(capsys: pytest.CaptureFixture[str]) -> None:
    index = str(FOLDER / "00000000000000000000.index")
    assert main(["--verify-index-only", index]) == 0
    assert capsys.readouterr().out == f"Dumping {index}\n"
    assert main(["--index-sanity-check", index]) == 0
    assert capsys.readouterr().out == f"Dumping {index}\n{index} passed sanity check.\n"


def test_checkpoints_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(FOLDER / "leader-epoch-checkpoint"), str(LOGS / "clean" / "log-start-offset-checkpoint")]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[1:4] == ["epoch: 0 startOffset: 0", "epoch: 2 startOffset: 47", "epoch: 4 startOffset: 93"]
    assert lines[5] == "topic: trimmed partition: 0 offset: 101"


def test_a_damaged_segment_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    damaged = LOGS / "damaged" / "plain-1" / "00000000000000000130.log"
    assert main([str(damaged)]) == 1
    captured = capsys.readouterr()
    assert "Found 500 invalid bytes at the end of 00000000000000000130.log" in captured.out
    wrong = LOGS / "damaged" / "compressed-0" / "00000000000000000870.log"
    assert main([str(wrong)]) == 1
    assert "isvalid: false" in capsys.readouterr().out


def test_a_wrong_index_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    segment, index = tmp_path / SEGMENT.name, tmp_path / "00000000000000000000.index"
    segment.write_bytes(SEGMENT.read_bytes())
    index.write_bytes(b"\x00\x00\x00\x09\x00\x00\x00\x01")
    assert main([str(index)]) == 1
    assert f"Mismatches in :{index}" in capsys.readouterr().err
    index.write_bytes(b"\x00\x00\x00\x09\x00\x00\x00\x01\x00")
    assert main(["--index-sanity-check", str(index)]) == 1
    assert "is corrupt" in capsys.readouterr().err


def test_a_missing_file_does_not_hide_the_next_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing, strange = tmp_path / "00000000000000000000.log", tmp_path / "notes.txt"
    strange.write_text("x")
    assert main([str(missing), str(strange), str(SEGMENT)]) == 1
    captured = capsys.readouterr()
    assert "baseOffset: 0" in captured.out
    assert str(missing) in captured.err
    assert f"Ignoring unknown file {strange}" in captured.err


def test_without_a_file_it_prints_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "needs at least one file" in capsys.readouterr().err


def test_dump_log_is_a_command_of_odradek(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="odradek")
    add_parser(parser.add_subparsers())
    arguments = parser.parse_args(
        ["dump-log", "--transaction-log-decoder", str(LOGS / "clean/__transaction_state-39/00000000000000000000.log")]
    )
    assert arguments.run(arguments) == 0
    assert (
        '"transactionalId":"id-a-transactions"}} payload: {"version":"0","data":{"producerId":8'
        in capsys.readouterr().out
    )
    with pytest.raises(SystemExit) as end:
        parser.parse_args(["dump-log", "--help"])
    assert end.value.code == 0
    assert "--index-sanity-check" in capsys.readouterr().out
