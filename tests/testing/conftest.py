from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.both_loops import pytest_asyncio_loop_factories, pytest_itemcollected

__all__ = ["pytest_asyncio_loop_factories", "pytest_itemcollected"]


@pytest.fixture
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the test its own temporary directory. Skips it on systems that do not list a process's open files."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs Linux's /proc")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
