"""The Java programs in tests/clients/java, built by Maven when they are first needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "java"


def build_java_programs(directory: Path) -> list[str]:
    """Builds them into ``directory``; the command before the name of a class. Skips the test without Maven."""
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("java and mvn are not on this machine")
    command = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), f"-Doutput={directory / 'target'}"]
    command += ["compile", "dependency:copy-dependencies", f"-DoutputDirectory={directory / 'libs'}"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert built.returncode == 0, built.stdout[-3000:]
    jvm = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [*jvm, "-cp", f"{directory / 'target' / 'classes'}:{directory / 'libs'}/*"]
