"""The commands and options that people's scripts use."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from odradek.cli.__main__ import COMMANDS, build_parser

FILE = Path(__file__).with_name("public_commands.txt")
"""A line for each command and its arguments."""


def test_the_commands_have_their_public_options() -> None:
    found = [line for command in COMMANDS for line in sorted(_lines(command))]
    assert found == FILE.read_text().splitlines()


def _lines(command: str) -> Iterator[str]:
    """A line for the command and for each of its own commands: its positional arguments and its options."""
    (subparsers,) = _subparsers(build_parser(command, alone=True))
    return _lines_of(command, subparsers.choices[command])


def _lines_of(path: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    names = [name for action in parser._actions for name in action.option_strings or [action.dest]]
    yield " ".join([path, *sorted(name for name in names if name not in {"-h", "--help"})])
    for action in _subparsers(parser):
        for name, inner in action.choices.items():
            yield from _lines_of(f"{path} {name}", inner)


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
