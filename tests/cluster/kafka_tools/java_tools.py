"""Kafka's command-line tools in one JVM, which Tools.java keeps."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

RUNNER = Path(__file__).parent / "Tools.java"
JVM = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
END_S = 30


class Printed(NamedTuple):
    """What a tool has printed, and its exit status."""

    out: str
    err: str
    status: int


class JavaTools:
    """Started by `java_tools`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, name: str, *arguments: str, until: str | None = None, given: str = "") -> Printed:
        """Runs the main class `name`. With `until`, the tool is ended when it has printed that. It reads `given`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"command": [name, *arguments], "until": until, "input": given}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the JVM of the tools has ended"
        answer = json.loads(line)
        assert answer["status"] >= 0, f"{name} {arguments} does not end: {answer}"
        return Printed(**answer)


@contextlib.contextmanager
def java_tools(command: Sequence[str], log: Path) -> Iterator[JavaTools]:
    """`command` stands before the name of a class, as $KAFKA_TOOLS. The file `log` gets what Java itself logs."""
    environment = {**os.environ, "KOPTS": JVM}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*command, str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        ) as process,
    ):
        yield JavaTools(process)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(END_S)
