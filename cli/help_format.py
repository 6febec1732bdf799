"""The form of `--help`: descriptions as they are written, as wide as the terminal."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys


class HelpFormat(argparse.RawDescriptionHelpFormatter):
    """argparse makes one for every argument. Its own would import shutil for the width, and with it what reads and
    writes archives.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_columns() - 2)


def _columns() -> int:
    """The width of the terminal, as `shutil.get_terminal_size` finds it."""
    columns = 0
    with contextlib.suppress(KeyError, ValueError):
        columns = int(os.environ["COLUMNS"])
    if columns <= 0 and sys.__stdout__ is not None:
        with contextlib.suppress(OSError, ValueError):
            columns = os.get_terminal_size(sys.__stdout__.fileno()).columns
    return columns if columns > 0 else 80
