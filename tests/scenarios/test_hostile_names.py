"""Names that hold escape sequences: the terminal of an administrator does not execute what a client sends."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import kafka
import pytest
import structlog

from odradek.broker.logging.printable import printable, printable_lines
from odradek.broker.logging.structured_logging import configure_logging
from odradek.cli.__main__ import describe, main
from odradek.testing import BrokerThread
from tests.patience import PATIENCE_S

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nforged\u202e"
"""Sets the title, clears the screen, sets colors, begins a line, reverses the text direction."""
HARMLESS = r"\x1b]0;owned\x07\x1b[2J\x9b31m\r\nforged\u202e"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> Iterator[Callable[[], str]]:
    """A broker's log on a terminal, without the log's own colors."""
    before, was_configured = structlog.get_config(), structlog.is_configured()
    stream = Terminal()
    configure_logging(lambda: 0, stream=stream, is_final=False)
    yield lambda: "".join(part.partition("m")[2] for part in f"m{stream.getvalue()}".split("\x1b["))
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)


@pytest.fixture
def hostile_member() -> Iterator[BrokerThread]:
    """A broker with a member whose client id and group are hostile."""
    with BrokerThread(auto_create_topics_enable=True) as broker:
        consumer = kafka.KafkaConsumer(
            "t", bootstrap_servers=broker.bootstrap, group_id=f"g{HOSTILE}", client_id=f"c{HOSTILE}"
        )
        for _ in range(100):
            consumer.poll(100)
            if consumer.assignment():
                break
        yield broker
        consumer.close()


def is_harmless(text: str) -> bool:
    return all(line.isprintable() for line in text.replace("\t", "").split("\n")) and "\nforged" not in text


def test_the_command_escapes_client_ids(hostile_member: BrokerThread, capfd: pytest.CaptureFixture[str]) -> None:
    address = ("--bootstrap-server", hostile_member.bootstrap)
    for arguments in (
        ["list"],
        ["describe", "--all"],
        ["describe", "--all", "--members"],
        ["describe", "--all", "--state"],
    ):
        capfd.readouterr()
        assert main(["groups", *arguments, *address]) == 0
        out = capfd.readouterr().out
        assert is_harmless(out), out
        assert f"g{HARMLESS}" in out
        assert (f"c{HARMLESS}" in out) == (arguments in (["describe", "--all"], ["describe", "--all", "--members"]))


def test_an_error_that_quotes_client_data_is_escaped() -> None:
    assert is_harmless(describe(OSError(HOSTILE)))


def test_events_and_details_of_any_kind_are_escaped_on_a_terminal(terminal: Callable[[], str]) -> None:
    class Named:
        def __repr__(self) -> str:
            return HOSTILE

    log = structlog.get_logger("broker")
    details = {"client_id": HOSTILE, "names": [HOSTILE], "mapping": {HOSTILE: 1}, "named": Named(), "plain": "a b"}
    log.warning(f"event {HOSTILE}", **details)
    assert is_harmless(terminal())
    assert terminal().count(HARMLESS) == 5
    assert terminal().count("\n") == 1
    assert "a b" in terminal()


def test_an_exception_that_quotes_client_data_is_escaped_on_a_terminal(terminal: Callable[[], str]) -> None:
    try:
        raise ValueError("\x1b[2J\x9b31m")
    except ValueError:
        structlog.get_logger("broker").exception("request failed")
    assert is_harmless(terminal())
    assert r"ValueError: \x1b[2J\x9b31m" in terminal()
    assert "Traceback" in terminal()


def test_a_json_log_is_escaped_by_its_format() -> None:
    before, was_configured = structlog.get_config(), structlog.is_configured()
    stream = io.StringIO()
    configure_logging(lambda: 0, stream=stream, is_final=False)
    structlog.get_logger("broker").warning(HOSTILE, client_id=HOSTILE)
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)
    assert is_harmless(stream.getvalue())
    assert stream.getvalue().count("\n") == 1


def test_records_consumed_as_json_are_escaped(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with BrokerThread(auto_create_topics_enable=True) as broker:
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
        producer.send("t", key="größe".encode(), value=HOSTILE.encode()).get(timeout=PATIENCE_S)
        producer.close()
        main(["consume", "t", "--from-beginning", "--exit", "--json", "--bootstrap-server", broker.bootstrap])
    lines = capfdbinary.readouterr().out.decode().splitlines()
    (line,) = [line for line in lines if line.startswith("{")]  # among what the broker logs
    assert is_harmless(line)
    assert json.loads(line)["value"] == HOSTILE
    assert "größe" in line


@pytest.mark.parametrize("text", ["orders", "größe 日本語", "a\\b", ""])
def test_printable_text_is_not_changed(text: str) -> None:
    assert printable(text) == text


def test_control_characters_of_terminals_are_escaped() -> None:
    assert printable(HOSTILE) == HARMLESS
    assert printable("\ud800\x00\x7f\t") == r"\ud800\x00\x7f\t"
    assert printable_lines("a\x1b\nb") == "a\\x1b\nb"
