"""Generates the source of a writer: one function that appends a message's buffers to a list.

Adjacent fields of fixed width, with the length that follows them, are packed in one call. A compact length is a
varint: one byte, packed with the fields before it, unless the value is long. Values of `records` fields are appended by
reference.

In the source: `a` appends, `n` is a length (plus one in compact forms), `s` a value in bytes; `o` and `v` with the
depth as a number are objects and lists; in steps, `c` is the rest of the current step.
"""

from __future__ import annotations

import struct

from odradek.protocol import primitives
from odradek.protocol.errors import UnwritableMessage
from odradek.protocol.schema import FIXED, NEVER, Field, Message
from odradek.protocol.source_lines import SourceLines


def _unwritable(title: str, error: Exception) -> UnwritableMessage:
    return UnwritableMessage(f"{title}: {error}")


class WriterSource(SourceLines):
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False) -> None:
        super().__init__(cls, version, in_steps=in_steps)
        self.names |= {
            "pack": struct.pack,
            "byte": tuple(bytes((value,)) for value in range(128)),
            "long_varint": primitives.unsigned_varint,
            "long_string": primitives.string_length,
            "tag_section": primitives.tag_section,
            "struct_error": struct.error,
            "unwritable": _unwritable,
        }

    def source(self) -> str:
        with self.block("def writer(o0, parts):"):
            self.add("a = parts.append")
            if self.in_steps:
                self.begin_steps()
            with self.block("try:"):
                self.structure(self.cls, 0, self.title)
                self.flush()
            with self.block("except (struct_error, AttributeError, TypeError, ValueError) as error:"):
                self.add(f"raise unwritable({self.title!r}, error) from error")
        return "\n".join([*self.functions, *self.lines, ""])

    def structure(self, cls: type[Message], depth: int, where: str) -> None:
        """Writes the object in the variable `o<depth>`; may leave the last run unflushed."""
        if not self.flexible and not any(cls.__schema__.plain_fields(self.version)):
            self.add("pass")
        for field in cls.__schema__.plain_fields(self.version):
            self.field(field, f"o{depth}.{field.attribute}", depth, f"{where} {field.name}")
        if self.flexible:
            self.tag_section(cls, f"o{depth}", where)

    # Runs of fixed fields

    def flush(self, *more: tuple[str, str]) -> None:
        """Packs the run, and `more` (code, expression) pairs, in one call; "x" packs a zero byte."""
        self.write([*self.run, *more])
        self.run = []

    def write(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if not codes.strip("x"):
            self.add(f"a({bytes(len(codes))!r})")
        elif codes == "B":
            self.add(f"a(byte[{run[0][1]}])")
        else:
            values = ", ".join(expression for code, expression in run if code != "x")
            self.add(f"a({self.packing(codes, 'pack')}({values}))")

    # Fields

    def field(self, field: Field, value: str, depth: int, where: str) -> None:
        kind = field.type
        if kind in FIXED:
            self.fixed_field(kind, value)
        elif kind == "array":
            self.array(field, value, depth, where)
        elif kind == "struct":
            self.single_structure(field, value, depth, where)
        else:
            nullable = self.version in field.nullable
            text = f"({value} or '')" if kind == "string" and field.nullable != NEVER and not nullable else value
            self.sized(kind, text, self.is_compact(field), nullable)

    def fixed_field(self, kind: str, value: str) -> None:
        self.run.append((FIXED[kind][0], f"{value}.int.to_bytes(16, 'big')" if kind == "uuid" else value))

    def sized(self, kind: str, value: str, compact: bool, nullable: bool) -> None:
        """Writes a string, bytes or records."""
        encoded = f"{value}.encode()" if kind == "string" else value
        plus = " + 1" if compact else ""
        if nullable:
            self.add(f"s = {value}")
            with self.block("if s is None:"):
                self.add("n = 0; s = b''" if compact else "n = -1; s = b''")
            with self.block("else:"):
                if kind == "string":
                    self.add("s = s.encode()")
                self.add(f"n = len(s){plus}")
        else:
            self.add(f"s = {encoded}")
            self.add(f"n = len(s){plus}")
        self.length("h" if kind == "string" else "i", compact, "long_string" if kind == "string" else "long_varint")
        if kind == "string":
            self.add("a(s)")
        else:
            with self.block("if n > 1:" if compact else "if n > 0:"):
                self.add("a(s)")

    def length(self, code: str, compact: bool, long_length: str) -> None:
        """Writes `n`, together with the run before it."""
        if not compact:
            self.flush((code, "n"))
            return
        with self.block("if n < 128:"):
            self.write([*self.run, ("B", "n")])
        with self.block("else:"):
            self.write(self.run)
            self.add(f"a({long_length}(n))")
        self.run = []

    def array(self, field: Field, value: str, depth: int, where: str) -> None:
        compact = self.is_compact(field)
        elements = f"v{depth + 1}"
        self.add(f"{elements} = {value}")
        length = f"len({elements}) + 1" if compact else f"len({elements})"
        if self.version in field.nullable:
            with self.block(f"if {elements} is None:"):
                self.add(f"n = {0 if compact else -1}; {elements} = ()")
            with self.block("else:"):
                self.add(f"n = {length}")
        else:
            self.add(f"n = {length}")
        self.length("i", compact, "long_varint")
        kind = field.element or ""
        if kind in FIXED and kind != "uuid":
            with self.block(f"if {elements}:"):
                self.add(f"a(pack(f'>{{len({elements})}}{FIXED[kind][0]}', *{elements}))")
        else:
            with self.block(f"for o{depth + 1} in {elements}:"):
                self.element(field, kind, depth + 1, compact, where)
                self.flush()
                self.pace()

    def element(self, field: Field, kind: str, depth: int, compact: bool, where: str) -> None:
        if kind == "struct":
            self.structure(field.structure, depth, f"{where}[]")
        elif kind == "uuid":
            self.fixed_field(kind, f"o{depth}")
        else:
            self.sized(kind, f"o{depth}", compact, False)

    def single_structure(self, field: Field, value: str, depth: int, where: str) -> None:
        inner = f"o{depth + 1}"
        self.add(f"{inner} = {value}")
        if self.version not in field.nullable:
            self.structure(field.structure, depth + 1, where)
            return
        with self.block(f"if {inner} is None:"):
            self.write([*self.run, ("b", "-1")])
        with self.block("else:"):
            self.run.append(("b", "1"))
            self.structure(field.structure, depth + 1, where)
            self.flush()

    # Tagged fields

    def tag_section(self, cls: type[Message], target: str, where: str) -> None:
        fields = cls.__schema__.tagged_fields(self.version)
        tests = [f"not {target}.unknown_tagged_fields"]
        tests += [self.has_default(field, f"{target}.{field.attribute}") for field in fields]
        with self.block(f"if {' and '.join(tests)}:"):
            self.write([*self.run, ("x", "")])
        with self.block("else:"):
            self.write(self.run)
            if fields:
                name = f"write_tags_{cls.__name__}"
                if name not in self.names:
                    self.names[name] = None
                    self.tag_function(name, fields, where)
                self.add(f"a({name}({target}))")
            else:
                self.add(f"a(tag_section([], {target}.unknown_tagged_fields))")
        self.run = []

    def has_default(self, field: Field, value: str) -> str:
        """Returns a quick test; a value that fails it is compared again when the tags are written."""
        if field.default is None or (field.type == "struct" and self.version not in field.nullable):
            return f"{value} is None"
        if field.type == "struct":
            return f"{value} == {self.name_of('default_', field.structure())}"
        if field.type == "array":
            return f"{value} == []"
        return f"{value} == {self.name_of('default_', field.default)}"

    def tag_function(self, name: str, fields: list[Field], where: str) -> None:
        paced, self.in_steps = self.in_steps, False  # tagged fields are short
        with self.function(f"def {name}(o0):"):
            self.add("known = []")
            for field in fields:
                with self.block(f"if not ({self.has_default(field, f'o0.{field.attribute}')}):"):
                    self.tagged_field(field, where)
            self.add("return tag_section(known, o0.unknown_tagged_fields)")
        self.in_steps = paced

    def tagged_field(self, field: Field, where: str) -> None:
        value = f"o0.{field.attribute}"
        self.add("parts = []; a = parts.append")
        if field.type == "struct" and self.version in field.nullable:
            with self.block(f"if {value} is None:"):
                self.add("a(b'\\0')")
            with self.block("else:"):
                self.add("a(b'\\1')")
                self.tagged_structure(field, value, where)
        elif field.type == "struct":
            with self.block(f"if {value} != {self.name_of('default_', field.structure())}:"):
                self.tagged_structure(field, value, where)
        else:
            self.field(field, value, 0, f"{where} {field.name}")
            self.flush()
        with self.block("if parts:"):
            self.add(f"known.append(({field.tag}, b''.join(parts)))")

    def tagged_structure(self, field: Field, value: str, where: str) -> None:
        self.add(f"o1 = {value}")
        self.structure(field.structure, 1, f"{where} {field.name}")
        self.flush()
