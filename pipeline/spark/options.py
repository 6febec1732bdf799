"""Options for Spark's Java process, passed in a file that only this user can read.

PySpark passes the options of a session to `spark-submit` as arguments, and every user of the machine can see the
arguments of all processes. So the options are written to a file (`--properties-file`) that exists only while the
process starts. Options that Spark itself turns into arguments of the Java process remain visible: memory, class path
and `spark.driver.*JavaOptions`.
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
    """Within the context, a Java process that PySpark starts has these options, over those of the file `defaults`."""
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
    """Within the context, started processes have the environment variable, unless `value` is None."""
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
    """Formats the options for Java's Properties, one per line."""
    return "".join(f"{_escaped(name, IN_NAMES)}={_value(value)}\n" for name, value in options.items())


def default_options_file(spark_home: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the options file that Spark reads by default. A named file replaces it."""
    return Path(environ.get("SPARK_CONF_DIR") or spark_home / "conf") / "spark-defaults.conf"


def default_options(path: Path) -> dict[str, str]:
    """Parses an options file of Spark: each line has a name and a value, separated by a blank, `=` or `:`.

    Of Properties' escapes only those of single characters are supported, and line continuations are not."""
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
