"""The commands, run in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.cli.__main__ import main

Odradek = Callable[..., tuple[int, str, str]]
"""Arguments -> status, stdout, stderr."""


@pytest.fixture
def run_odradek(capfdbinary: pytest.CaptureFixture[bytes]) -> Odradek:
    """Runs `odradek`."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        status = main(arguments)
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run
