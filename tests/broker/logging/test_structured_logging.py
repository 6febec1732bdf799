from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from odradek.broker.logging.structured_logging import Loggers, configure_logging, current_loggers

MOMENT_MS = 1_700_000_000_123


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _structlog_restored() -> Iterator[None]:
    before, was_configured = structlog.get_config(), structlog.is_configured()
    handlers = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = handlers
    structlog.reset_defaults()
    if was_configured:
        structlog.configure(**before)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_json_without_a_terminal() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    structlog.get_logger("broker.network").warning("a frame was too large", size=5, raw=b"\x00")
    assert lines(stream) == [
        {
            "event": "a frame was too large",
            "size": 5,
            "raw": "b'\\x00'",
            "timestamp": "2023-11-14T22:13:20.123Z",
            "level": "warn",
            "logger": "broker.network",
        }
    ]


def test_a_log_line_is_plain_text_on_a_terminal() -> None:
    stream = Terminal()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    structlog.get_logger("storage.log").info("a segment was rolled", base_offset=7)
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "a segment was rolled" in text
    assert "{" not in text
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(text)


def test_long_texts_and_lists_are_shortened() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    members = ["m" * 30_000] * 5000
    structlog.get_logger("broker").info("group members removed", group="g" * 30_000, members=members, first=["a", 1])
    (line,) = lines(stream)
    assert line["group"] == "g" * 1000 + "..."
    assert line["members"] == ["m" * 1000 + "..."] * 20 + ["... and 4980 more"]
    assert line["first"] == ["a", 1]
    assert len(stream.getvalue()) < 25_000


def test_an_exception_is_one_line_of_json() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    try:
        raise OSError("no space")
    except OSError:
        structlog.get_logger("storage").exception("a flush failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "no space" in str(line["exception"])


def test_a_logger_writes_nothing_below_its_level() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream, level="WARN")
    log = structlog.get_logger("broker")
    log.debug("one")
    log.info("two")
    log.warning("three")
    assert [line["event"] for line in lines(stream)] == ["three"]


def test_a_level_applies_to_child_loggers_without_their_own() -> None:
    stream = io.StringIO()
    loggers = configure_logging(lambda: MOMENT_MS, stream=stream)
    network = structlog.get_logger("broker.network")
    network.debug("not yet")
    loggers.set_level("broker", "DEBUG")
    network.debug("now")
    structlog.get_logger("broker.made.later").debug("this too")
    loggers.set_level("broker.network", "ERROR")
    network.warning("no more")
    loggers.unset_level("broker.network")
    network.debug("again")
    assert [line["event"] for line in lines(stream)] == ["now", "this too", "again"]


def test_levels_are_listed_under_kafkas_names() -> None:
    loggers = Loggers(io.StringIO(), "INFO")
    loggers.set_level("storage", "TRACE")
    loggers("storage.log")
    loggers.set_level("timer", "FATAL")
    listed = loggers.levels()
    assert listed["root"] == "INFO"
    assert listed["storage.log"] == "TRACE"
    assert listed["timer"] == "FATAL"
    assert list(listed) == sorted(listed)


def test_the_root_keeps_its_level() -> None:
    loggers = Loggers(io.StringIO(), "WARN")
    loggers.unset_level("root")
    assert loggers.levels()["root"] == "WARN"


@pytest.mark.parametrize(("name", "level"), [("nobody", "INFO"), ("root", "LOUD")])
def test_an_unknown_logger_or_level_is_an_error(name: str, level: str) -> None:
    with pytest.raises(KeyError):
        Loggers(io.StringIO(), "INFO").set_level(name, level)


def test_bound_details_are_in_every_line() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    log = structlog.get_logger("broker").bind(connection=3)
    log.info("one")
    log.info("two")
    assert [line["connection"] for line in lines(stream)] == [3, 3]


def test_log_lines_of_libraries_have_the_same_format() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    configure_logging(lambda: MOMENT_MS, stream=stream)
    logging.getLogger("asyncio").warning("slow %s", "task")
    logging.getLogger("asyncio").debug("nothing")
    assert [(line["logger"], line["level"], line["event"]) for line in lines(stream)] == [
        ("asyncio", "warn", "slow task")
    ]


def test_an_unwritable_stream_does_not_raise() -> None:
    stream = io.StringIO()
    configure_logging(lambda: MOMENT_MS, stream=stream)
    stream.close()
    structlog.get_logger("broker").info("lost")


def test_current_loggers_returns_none_if_another_program_configured_structlog() -> None:
    assert current_loggers() is None
    loggers = configure_logging(lambda: MOMENT_MS, stream=io.StringIO())
    assert current_loggers() is loggers
