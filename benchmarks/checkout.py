"""A checkout of Odradek in which `make setup` was run: its Python, and the commands that run its modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class NotSetUp(Exception):
    """A checkout is not set up; the message names what is missing in which directory."""


class Checkout(NamedTuple):
    """`python` is the checkout's interpreter."""

    directory: Path
    python: str

    @classmethod
    def at(cls, directory: Path) -> Checkout:
        """Raises NotSetUp, also if modules that should be compiled are not."""
        checkout = cls(directory.resolve(), str(directory.resolve() / ".venv" / "bin" / "python"))
        if not Path(checkout.python).exists():
            raise NotSetUp(f"{directory} has no .venv: run `make setup` there")
        command = checkout.command(checkout.module("broker.build_info"), "--require-compiled")
        done = subprocess.run(command, cwd=checkout.directory, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotSetUp(f"{directory} is not compiled: run `make setup` there: {(done.stdout + done.stderr)[-300:]}")
        return checkout

    def module(self, name: str) -> str:
        """Returns a module's full name; before `odradek` was a package, its subpackages were top-level packages."""
        return f"odradek.{name}" if (self.directory / "odradek" / "__init__.py").exists() else name

    def command(self, module: str, *arguments: str) -> list[str]:
        """Returns the command that runs the module; start it in `directory`."""
        return [self.python, "-m", module, *arguments]

    def commit(self) -> str:
        """Returns the abbreviated commit; "" if git does not know it."""
        command = ["git", "-C", str(self.directory), "describe", "--always", "--dirty"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:
            return ""


THIS = Checkout(ROOT, sys.executable)
