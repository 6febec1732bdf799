"""What Apache Kafka 3.9.1 in ZooKeeper mode has answered, in tests/vectors/authorization. It is recorded by

ODRADEK_RECORD=1 pytest --kinds=quick,programs tests/broker/authorization -k gives_the_recorded    # with $KAFKA_CONTROL
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.beside_kafka.recordings import VECTORS
from tests.broker.authorization.case import Line
from tests.broker.authorization.script import ScriptLine

REQUESTS = VECTORS / "authorization" / "requests.jsonl"
EVERYONE = REQUESTS.with_name("everyone.jsonl")
SCRIPTED = REQUESTS.with_name("scripts.jsonl")


@cache
def recorded_requests(*, everyone: bool) -> dict[str, Line]:
    """The recorded answers to requests, by `Line.key`."""
    path = EVERYONE if everyone else REQUESTS
    lines = (Line.from_json(text) for text in path.read_text().splitlines())
    return {line.key: line for line in lines}


@cache
def recorded_scripts() -> dict[str, ScriptLine]:
    """What scripts have noted, by `ScriptLine.key`."""
    lines = (ScriptLine.from_json(text) for text in SCRIPTED.read_text().splitlines())
    return {line.key: line for line in lines}


def write(path: Path, lines: Iterable[Line | ScriptLine]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(line.to_json() + "\n" for line in lines))
