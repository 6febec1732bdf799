"""The examples of docs/testing.md and of its chapters work unchanged, in a project of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
OVERRIDDEN = "def odradek_session_broker_arguments("
"""A session has one of these."""
PAGES = [DOCS / "testing.md", *sorted(DOCS.glob("testing/*.md"))]
PROGRAMS = {
    "java": ROOT / "tests" / "clients" / "java" / "src" / "main" / "java" / "odradek",
    "go": ROOT / "tests" / "clients" / "franz_go",
}
"""The programs, run as tests, that have the examples in other languages."""


@pytest.mark.long
def test_the_examples_of_all_pages_pass(tmp_path: Path) -> None:
    """Most in one session: a start of Python with all clients takes as long as several of them."""
    blocks = {
        f"test_{page.stem}_{number}.py": block.split("```")[0]
        for page in PAGES
        for number, block in enumerate(page.read_text().split("```python\n")[1:])
    }
    alone = {name: block for name, block in blocks.items() if OVERRIDDEN in block}
    run(tmp_path / "together", {name: block for name, block in blocks.items() if name not in alone})
    for name, block in alone.items():
        run(tmp_path / f"alone-{name}", {name: block})


def run(directory: Path, blocks: dict[str, str]) -> None:
    directory.mkdir()
    for name, block in blocks.items():
        (directory / name).write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--strict-markers"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    tests = sum(block.count("def test_") for block in blocks.values())
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert passed is not None
    assert int(passed[1]) >= tests


@pytest.mark.parametrize("language", PROGRAMS)
def test_the_examples_in_other_languages_are_parts_of_programs_that_tests_run(language: str) -> None:
    files = [_unindented(file.read_text()) for file in PROGRAMS[language].glob(f"*.{language}")]
    blocks = [block.split("```")[0] for page in PAGES for block in page.read_text().split(f"```{language}\n")[1:]]
    assert blocks
    assert not [block for block in blocks if not any(_unindented(block) in file for file in files)]


def _unindented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())
