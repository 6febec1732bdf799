"""The examples of docs/testing.md and docs/testing/ work unchanged, in a project of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = [DOCS / "testing.md", *sorted((DOCS / "testing").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_the_page_pass(page: Path, tmp_path: Path) -> None:
    blocks = [block.split("```")[0] for block in page.read_text().split("```python\n")[1:]]
    for number, block in enumerate(blocks):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--strict-markers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    tests = sum(block.count("def test_") for block in blocks)
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr
