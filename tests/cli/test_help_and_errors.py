import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.__main__ import COMMANDS, describe, main
from odradek.pipeline.errors import PipelineError
from odradek.protocol.records import Record, build_batch


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "odradek.cli", *arguments], capture_output=True, text=True, check=False
    )


def test_help_names_every_command_and_imports_none_of_them() -> None:
    program = (
        "import sys; from odradek.cli.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "packages = {f'odradek.{package}' for package in ('broker', 'protocol', 'storage', 'cli.topics')}\n"
        "heavy = {'asyncio', 'kafka', 'structlog', *packages} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or None)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^    {command}\s", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: odradek {command}" in text
    assert f"odradek {command}" in text[text.index("examples:") :]


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics", "create"],
        ["topics"],
        ["topics", "frobnicate"],
        ["frobnicate"],
        ["topics", "create", "t", "--partitions", "0"],
        ["topics", "create", "t", "--partitions", "three"],
        ["configs", "describe"],
        ["configs", "describe", "--topic", "t", "--broker", "0"],
        ["consume", "t", "--offset", "3", "--from-beginning"],
        ["produce"],
        ["transactions"],
        ["transactions", "describe"],
        ["transactions", "abort", "--topic", "t", "--partition", "-1"],
    ],
)
def test_wrong_arguments_end_with_status_2_and_say_what_is_wrong(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["topics", "list"], "cannot connect to 127.0.0.1:1: Connection refused"),
        (["topics", "describe", "t"], "cannot connect to 127.0.0.1:1: Connection refused"),
        (["configs", "describe", "--topic", "t"], "cannot connect to 127.0.0.1:1: Connection refused"),
        (["produce", "t", "--file", "/dev/null"], "cannot connect to 127.0.0.1:1: Connection refused"),
        (["consume", "t"], "cannot connect to 127.0.0.1:1: Connection refused"),
        (["configs", "alter", "--topic", "t"], "nothing to change: give --set, --delete, --append or --subtract"),
        (["configs", "alter", "--topic", "t", "--set", "x"], "--set x: expected NAME=VALUE"),
        (["topics", "create", "t", "--config", "=1"], "--config =1: expected NAME=VALUE"),
    ],
)
def test_failures_are_one_line_and_status_1(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == f"odradek: {line}\n"


@pytest.mark.parametrize("address", ["nonsense:port", ":9092", "", "a:0", "a:99999"])
def test_an_invalid_address_is_named(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "--bootstrap-server", address]) == 1
    assert capsys.readouterr().err.startswith("odradek: --bootstrap-server: ")


def test_an_unexpected_error_prints_one_line_and_how_to_see_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ODRADEK_DEBUG", raising=False)

    def with_admin(*_: object) -> None:
        raise KeyError("missing")

    monkeypatch.setattr("odradek.cli.topics.with_admin", with_admin)
    assert main(["topics", "list"]) == 1
    assert capsys.readouterr().err == "odradek: KeyError: 'missing' (ODRADEK_DEBUG=1 prints a traceback)\n"
    monkeypatch.setenv("ODRADEK_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["topics", "list"])


def test_every_user_error_is_printed_unchanged() -> None:
    class TopicGone(PipelineError):
        pass

    assert describe(TopicGone("orders: gone", "create it")) == "orders: gone; create it"


def test_serve_prints_in_one_line_why_it_does_not_start() -> None:
    result = run("serve", "--set", "num.partitions=none")
    assert result.returncode == 1
    assert result.stdout == ""
    assert "num.partitions" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout.startswith("odradek 0.")


def test_a_closed_stdout_is_no_error_for_a_dump(tmp_path: Path) -> None:
    batch = build_batch([Record(value=b"x")])
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(b"".join(with_base_offset(batch, offset) for offset in range(5000)))
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "odradek.cli", "dump-log", str(segment)]
    result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


def with_base_offset(batch: bytes, offset: int) -> bytes:
    """The checksum does not cover it."""
    return offset.to_bytes(8, "big") + batch[8:]
