"""Common base of the generators of readers and writers: indented lines, names of objects, runs of fixed fields.

A run is a sequence of adjacent fields of fixed width. It is collected while fields are visited and becomes one call of
a precompiled `struct.Struct` when a field of variable width follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from odradek.protocol.schema import Field, Message

ELEMENTS_PER_STEP = 2000
"""Elements of all arrays together, which take one or two milliseconds."""


class SourceLines:
    """The lines of a generated function, and the objects that it refers to by name."""

    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        """`in_steps`: generate a generator function that yields after every ELEMENTS_PER_STEP elements."""
        self.cls = cls
        self.version = version
        self.in_steps = in_steps
        self.flexible = version in cls.__schema__.flexible
        self.title = f"{cls.__schema__.name} v{version}"
        self.names: dict[str, Any] = {"__name__": "odradek.protocol.compiled"}
        self.lines: list[str] = []
        self.functions: list[str] = []
        self.indentation = ""
        self.run: list[tuple[str, str]] = []

    def add(self, line: str) -> None:
        self.lines.append(self.indentation + line)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        """`line` opens a block that ends with the context."""
        self.add(line)
        self.indentation += "    "
        yield
        self.indentation = self.indentation[:-4]

    @contextmanager
    def function(self, line: str) -> Iterator[None]:
        """Collects a separate function, which is placed before the main one."""
        saved = self.lines, self.indentation, self.run
        self.lines, self.indentation, self.run = [], "", []
        with self.block(line):
            yield
        self.functions += self.lines
        self.lines, self.indentation, self.run = saved

    def begin_steps(self) -> None:
        self.add(f"c = {ELEMENTS_PER_STEP}")
        with self.block("if not c:"):
            self.add("yield  # makes this a generator even without arrays")

    def pace(self, elements: str = "1") -> None:
        """In a loop: ends the step when `c`, its remaining elements, is used up. No effect in a plain function."""
        if self.in_steps:
            self.add(f"c -= {elements}")
            with self.block("if c < 0:"):
                self.add(f"c = {ELEMENTS_PER_STEP}")
                self.add("yield")

    def name_of(self, prefix: str, value: object) -> str:
        """Returns the name under which the compiled code refers to this object: one name per object."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def packing(self, codes: str, method: str) -> str:
        """Returns the name of `pack` or `unpack_from` of this struct format."""
        name = f"{method}_{codes.replace('?', 'bool')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def is_compact(self, field: Field) -> bool:
        return self.flexible and field.flexible

    def source(self) -> str:
        raise NotImplementedError
