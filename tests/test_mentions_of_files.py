"""Every file of the project that a comment, a docstring or a page of docs mentions exists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("broker", "storage", "protocol", "purgatory", "timer", "cli", "clients", "testing", "pipeline", "benchmarks")
MENTION = re.compile(r"(?<![\w./*-])(?:[a-z_]+/)*[a-z_]+\.py\b")


def sources(*folders: str) -> list[str]:
    """The Python files of these folders, relative to the project's."""
    return [str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")]


def unknown(texts: Iterable[tuple[str, str]], files: Iterable[str]) -> Iterator[str]:
    """Yields `file: mention` for each mention that names none of `files`. A text is a pair (file, text)."""
    known = {part for file in files for part in endings(file)}
    for file, text in texts:
        for mention in sorted(set(MENTION.findall(text))):
            if mention not in known and mention.removeprefix("odradek/") not in known:
                yield f"{file}: {mention}"


def endings(file: str) -> Iterator[str]:
    """`broker/server.py` and `server.py` of broker/server.py."""
    parts = file.split("/")
    return ("/".join(parts[start:]) for start in range(len(parts)))


def test_every_mentioned_file_exists() -> None:
    pages = ["README.md", "CONTRIBUTING.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
    texts = [(file, (ROOT / file).read_text()) for file in [*sources(*FOLDERS), *pages]]
    assert not list(unknown(texts, [*sources(*FOLDERS, "tests"), "setup.py"]))


def test_a_mention_of_a_missing_file_is_found() -> None:
    texts = [("a.py", "see b.py, c/d.py and odradek/c/d.py"), ("e.md", "`gone.py` and d.py")]
    assert list(unknown(texts, ["a.py", "c/d.py"])) == ["a.py: b.py", "e.md: gone.py"]
