"""The commands, run in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.cli.__main__ import main

Odradek = Callable[..., tuple[int, str, str]]
"""Arguments -> status, stdout, stderr."""


@pytest.fixture
def run_odradek(capsysbinary: pytest.CaptureFixture[bytes]) -> Odradek:
    """Runs `odradek` and captures its own output: librdkafka writes to descriptor 2 for clients of other tests."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsysbinary.readouterr()
        status = main(arguments)
        out, err = capsysbinary.readouterr()
        return status, out.decode(), err.decode()

    return run
