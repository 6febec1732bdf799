"""The commands and options that people's scripts use."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cli.__main__ import COMMANDS, build_parser

FILE = Path(__file__).with_name("public_commands.txt")
"""A line for each command and its arguments."""


def test_the_commands_have_their_public_options() -> None:
    found = [line for command in COMMANDS for line in sorted(_lines(command))]
    assert found == FILE.read_text().splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_and_its_own_commands_print_their_help(command: str) -> None:
    """Argparse expands percent signs in the texts."""
    for path, parser in _parsers(command, _parser(command)):
        assert parser.format_help().startswith(f"usage: odradek {path} ")


def _lines(command: str) -> Iterator[str]:
    """A line for the command and for each of its own commands: its positional arguments and its options."""
    for path, parser in _parsers(command, _parser(command)):
        names = [name for action in parser._actions for name in action.option_strings or [action.dest]]
        yield " ".join([path, *sorted(name for name in names if name not in {"-h", "--help"})])


def _parser(command: str) -> argparse.ArgumentParser:
    (subparsers,) = _subparsers(build_parser(command, alone=True))
    return subparsers.choices[command]


def _parsers(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parser of the command, and those of its own commands, each with the words that call it."""
    yield path, parser
    for action in _subparsers(parser):
        for name, inner in action.choices.items():
            yield from _parsers(f"{path} {name}", inner)


def _subparsers(parser: argparse.ArgumentParser) -> list[argparse._SubParsersAction[argparse.ArgumentParser]]:
    return [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
