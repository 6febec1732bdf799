"""Options for Spark's Java process, handed over in a file that only this user reads.

PySpark passes the options of a session to `spark-submit` as arguments, and every user of the machine sees the arguments
of all processes. Here they stand in a file (`--properties-file`) that is there only while the process starts. What
Spark itself makes arguments of the Java process still shows: memory, class path and `spark.driver.*JavaOptions`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
IN_NAMES = {**ESCAPES, **{character: f"\\{character}" for character in " =:#!"}}


@contextlib.contextmanager
def in_private_file(options: Mapping[str, str], defaults: Path) -> Iterator[None]:
    """While it lasts, a Java process that PySpark starts takes these options, over those of the file `defaults`."""
    before = os.environ.get(SUBMIT_ARGUMENTS)
    descriptor, path = tempfile.mkstemp(prefix="odradek-spark-", suffix=".conf")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{_text(defaults)}\n\n{properties(options)}")
        os.environ[SUBMIT_ARGUMENTS] = f"--properties-file {shlex.quote(path)} {before or 'pyspark-shell'}"
        yield
    finally:
        os.unlink(path)
        if before is None:
            os.environ.pop(SUBMIT_ARGUMENTS, None)
        else:
            os.environ[SUBMIT_ARGUMENTS] = before


@contextlib.contextmanager
def in_environment(name: str, value: str | None) -> Iterator[None]:
    """While it lasts, a process that is started has the variable, unless `value` is None."""
    before = os.environ.get(name)
    if value is not None:
        os.environ[name] = value
    try:
        yield
    finally:
        if value is not None and before is None:
            del os.environ[name]
        elif before is not None:
            os.environ[name] = before


def properties(options: Mapping[str, str]) -> str:
    """The options in the form that Java's Properties reads, one a line."""
    return "".join(f"{_escaped(name, IN_NAMES)}={_value(value)}\n" for name, value in options.items())


def default_options_file(spark_home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Where Spark looks for options when no file is named, which naming one puts out of force."""
    return Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf") / "spark-defaults.conf"


def default_options(path: Path) -> dict[str, str]:
    """The options of a file that Spark reads: a name and a value in a line, with a blank, `=` or `:` between.

    Of Properties' escapes those of single characters are read; a line does not go on in the next."""
    lines = [line.strip() for line in _text(path).splitlines()]
    found = [re.match(r"([^#!\s=:][^\s=:]*)\s*[=:\s]\s*(.*)", line) for line in lines]
    return {one[1]: re.sub(r"\\(.)", r"\1", one[2].strip()) for one in found if one}


def _value(value: str) -> str:
    escaped = _escaped(value, ESCAPES)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
