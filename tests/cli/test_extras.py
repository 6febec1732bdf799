"""What a command prints if the extra that it needs is not installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from odradek.cli.extras import MODULES

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize(
    "command", [["produce", "t"], ["consume", "t"], ["pipeline", "report", "--topics", "t", "--schema", "id LONG"]]
)
def test_a_command_without_its_packages_says_in_one_line_what_to_install(command: list[str]) -> None:
    hidden = "import sys; sys.modules['kafka'] = None; from odradek.cli.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", hidden, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    extra = "spark" if command[0] == "pipeline" else "cli"
    assert "kafka.net" in line
    assert line.endswith(f"not installed; run: pip install 'odradek[{extra}]'")


def test_kafka_python_2_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "__init__.py").write_text("__version__ = '2.0.2'\n")
    code = "from odradek.cli.extras import require_extra; require_extra('cli')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "kafka.net: not installed" in done.stderr


def test_the_packages_of_an_extra_are_those_of_the_distribution() -> None:
    packages = {"kafka.net": "kafka-python", "snappy": "python-snappy"}
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    wanted = [*extras["cli"], *extras["spark"], *extras["security"]]
    for modules in MODULES.values():
        for module in modules:
            assert any(line.startswith(packages.get(module, module)) for line in wanted), module
