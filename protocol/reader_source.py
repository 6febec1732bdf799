"""Generates the source of a reader: one function that builds the message from bytes at a position, field after field.

How bounds are checked: (A) fixed fields raise `struct.error` or `IndexError` past the end. (B) Slices past the end are
too short, but the position advances by the full length: the next fixed field raises, or the final check does. (C)
Before an array is built, its count is compared with the number of elements that the remaining bytes can hold. So no
truncated message is accepted, and memory stays in proportion to the bytes received. (D) A tag section has at most
MOST_TAGS fields.

A reader in steps is for requests of many megabytes, where even a small proportion is a lot of memory: (E) when an
array's count is read, the memory of its elements and of their responses is charged to the caller's limit; (F) unknown
tagged fields are skipped.

In the source: `p` is the position, `end` the length of the data, `n` a length or count, `q` the end of a slice, `t` the
first byte of a tag section's count; `o` and `v` with the depth as a number are objects and lists. In steps, `c` is the
rest of the current step and `b` the remaining memory in bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from io import BytesIO

from odradek.protocol import primitives
from odradek.protocol.element_sizes import handled_bytes, least_bytes, memory_bytes
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.schema import FIXED, Field, Message
from odradek.protocol.source_lines import ELEMENTS_PER_STEP, SourceLines

TEXT_SHIFT = 6
"""If it is not ASCII, a string of 64 bytes takes as long as one more element."""
BUFFER_SHIFT = 12
COPIED_PER_STEP = 1 << 20
"""Bytes of a buffer; copying this many into untouched memory takes 0.3 to 1.5 ms."""


def _copied(data: bytes, start: int, stop: int) -> Generator[None, None, bytes]:
    """Returns the slice, copied in steps. BytesIO first only reserves the memory, and returns it without a copy."""
    view = memoryview(data)[:stop]
    whole = BytesIO(bytes(max(len(view) - start, 0)))
    for position in range(start, len(view), COPIED_PER_STEP):
        whole.write(view[position : position + COPIED_PER_STEP])
        yield
    return whole.getvalue()


def _cut_short(title: str, position: int, end: int) -> MalformedMessage:
    return MalformedMessage(f"{title}: truncated at byte {end}, inside a field that begins before byte {position + 1}")


def _null(where: str, position: int) -> MalformedMessage:
    return MalformedMessage(f"{where}: null before byte {position} is not allowed")


def _too_many(where: str, count: int, left: int) -> MalformedMessage:
    return MalformedMessage(f"{where}: {count} elements in the remaining {left} bytes")


def _too_large(where: str, count: int) -> MalformedMessage:
    return MalformedMessage(f"{where}: with these {count} elements the message exceeds its memory limit")


def _wrong_tag(where: str, tag: int) -> MalformedMessage:
    return MalformedMessage(f"{where}: tag {tag} belongs to other versions")


class ReaderSource(SourceLines):
    def __init__(self, cls: type[Message], version: int, *, in_steps: bool = False, answered: int = 0) -> None:
        """`answered`: bytes of memory for the response to each element of the message's own arrays (E)."""
        super().__init__(cls, version, in_steps=in_steps)
        self.answered = answered
        self.unpacked: list[str] = []
        self.names |= {
            "new": object.__new__,
            "unpack_from": struct.unpack_from,
            "long_varint": primitives.continue_unsigned_varint,
            "long_string": primitives.continue_string_length,
            "read_uuid": primitives.read_uuid,
            "read_varint": primitives.read_unsigned_varint,
            "read_tags": primitives.read_unknown_tags,
            "read_tag_value": primitives.read_tag_value,
            "skip_tag_value": primitives.skip_tag_value,
            "count_tags": primitives.count_of_tags,
            "struct_error": struct.error,
            "cut_short": _cut_short,
            "null": _null,
            "too_many": _too_many,
            "too_large": _too_large,
            "wrong_tag": _wrong_tag,
            "copied": _copied,
        }

    def source(self) -> str:
        with self.block("def reader(data, p, b):" if self.in_steps else "def reader(data, p):"):
            self.add("end = len(data)")
            if self.in_steps:
                self.begin_steps()
            with self.block("try:"):
                self.structure(self.cls, 0, self.title)
                self.flush()
            with self.block("except (struct_error, IndexError):"):
                self.add(f"raise cut_short({self.title!r}, p, end) from None")
            with self.block("if p > end:"):
                self.add(f"raise cut_short({self.title!r}, p, end)")
            self.add("return o0, p")
        return "\n".join([*self.functions, *self.lines, ""])

    def structure(self, cls: type[Message], depth: int, where: str) -> None:
        """Builds an object of `cls` in the variable `o<depth>`."""
        fields = cls.__schema__.fields
        target = f"o{depth}"
        self.flush()
        self.add(f"{target} = new({self.name_of('class_', cls)})")
        self.defaults([field for field in fields if not field.is_plain_in(self.version)], target)
        for field in cls.__schema__.plain_fields(self.version):
            self.field(field, f"{target}.{field.attribute}", depth, f"{where} {field.name}")
        if self.flexible:
            self.tag_section(cls, target, where)
        else:
            self.add(f"{target}.unknown_tagged_fields = None")

    def defaults(self, fields: list[Field], target: str) -> None:
        for field in fields:
            if field.type == "array" and field.default is not None:
                value = "[]"
            elif field.type == "struct" and field.default is not None:
                value = f"{self.name_of('class_', field.structure)}()"
            elif field.type == "uuid":
                value = self.name_of("uuid_", field.default)
            else:
                value = repr(field.default)
            self.add(f"{target}.{field.attribute} = {value}")

    # Runs of fixed fields

    def fixed(self, code: str, target: str, conversion: str = "") -> None:
        self.run.append((code, target))
        if conversion:
            self.unpacked.append(conversion)

    def flush(self) -> None:
        run, self.run = self.run, []
        conversions, self.unpacked = self.unpacked, []
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "B":
            self.add(f"{run[0][1]} = data[p]")
        elif codes == "?":
            self.add(f"{run[0][1]} = data[p] != 0")
        else:
            targets = ", ".join(target for _, target in run) + ("," if len(run) == 1 else "")
            self.add(f"{targets} = {self.packing(codes, 'unpack_from')}(data, p)")
        self.add(f"p += {struct.calcsize('>' + codes)}")
        for conversion in conversions:
            self.add(conversion)

    # Fields

    def field(self, field: Field, target: str, depth: int, where: str) -> None:
        kind = field.type
        if kind in FIXED:
            self.fixed_field(kind, target)
        elif kind == "string":
            self.text(target, self.is_compact(field), self.version in field.nullable, where)
        elif kind == "array":
            self.array(field, target, depth, where)
        elif kind == "struct":
            self.single_structure(field, target, depth, where)
        else:
            self.buffer(target, self.is_compact(field), self.version in field.nullable, where)

    def fixed_field(self, kind: str, target: str) -> None:
        if kind == "uuid":
            self.fixed("16s", f"u{len(self.unpacked)}", f"{target} = read_uuid(u{len(self.unpacked)})")
        else:
            self.fixed(FIXED[kind][0], target)

    def text(self, target: str, compact: bool, nullable: bool, where: str) -> None:
        long_length = "long_string" if compact else ""
        slice_ = f'data[p:q].decode("utf-8", "{primitives.TEXT_ERRORS}")'
        self.sliced(target, "B" if compact else "h", long_length, nullable, where, slice_, TEXT_SHIFT)

    def buffer(self, target: str, compact: bool, nullable: bool, where: str) -> None:
        long_length = "long_varint" if compact else ""
        slice_ = "data[p:q]"
        if self.in_steps:
            slice_ += f" if n <= {2 * COPIED_PER_STEP} else (yield from copied(data, p, q))"
        self.sliced(target, "B" if compact else "i", long_length, nullable, where, slice_, BUFFER_SHIFT)

    def sliced(
        self, target: str, code: str, long_length: str, nullable: bool, where: str, slice_: str, shift: int
    ) -> None:
        """Reads a length and as many bytes; a compact length is one more than the number of bytes."""
        self.length(code, long_length)
        null, length = ("n < 1", "n - 1") if long_length else ("n < 0", "n")
        with self.block(f"if {null}:"):
            self.add(f"{target} = None" if nullable else f"raise null({where!r}, p)")
        lines = [f"q = p + {length}", f"{target} = {slice_}", "p = q"]
        if self.in_steps:
            lines.append(f"c -= n >> {shift}")
        if nullable:
            with self.block("else:"):
                for line in lines:
                    self.add(line)
        else:
            for line in lines:
                self.add(line)

    def length(self, code: str, long_length: str) -> None:
        self.fixed(code, "n")
        self.flush()
        if long_length:
            with self.block("if n > 127:"):
                self.add(f"n, p = {long_length}(data, p, n)")

    def array(self, field: Field, target: str, depth: int, where: str) -> None:
        compact = self.is_compact(field)
        self.length("B" if compact else "i", "long_varint" if compact else "")
        if compact:
            self.add("n -= 1")
        with self.block("if n > 0:"):
            least = least_bytes(field, self.version, self.flexible)
            with self.block(f"if n * {least} > end - p:" if least > 1 else "if n > end - p:"):
                self.add(f"raise too_many({where!r}, n, end - p)")
            if self.in_steps:
                self.add(f"b -= n * {self.charge(field, depth)}")
                with self.block("if b < 0:"):
                    self.add(f"raise too_large({where!r}, n)")
            self.elements(field, target, depth, f"{where}[]", compact)
        with self.block("elif n == 0:"):
            self.add(f"{target} = []")
        with self.block("else:"):
            self.add(f"{target} = None" if self.version in field.nullable else f"raise null({where!r}, p)")

    def charge(self, field: Field, depth: int) -> int:
        """Returns the memory of an element and its handling; only the message's own elements have responses."""
        return memory_bytes(field, self.version) + handled_bytes(field, 0 if depth else self.answered)

    def elements(self, field: Field, target: str, depth: int, where: str, compact: bool) -> None:
        """Reads `n` elements, at least one."""
        kind = field.element or ""
        if kind in FIXED and self.in_steps:
            self.fixed_elements_in_steps(kind, target)
        elif kind == "uuid":
            self.add("q = p + n * 16")
            self.add(f"{target} = [read_uuid(data[i : i + 16]) for i in range(p, q, 16)]")
            self.add("p = q")
        elif kind in FIXED:
            code, width = FIXED[kind]
            self.add(f"{target} = list(unpack_from(f'>{{n}}{code}', data, p))")
            self.add(f"p += n * {width}" if width > 1 else "p += n")
        else:
            elements, element = f"v{depth + 1}", f"o{depth + 1}"
            self.add(f"{target} = {elements} = []")
            with self.block("for _ in range(n):"):
                if kind == "struct":
                    self.structure(field.structure, depth + 1, where)
                else:
                    self.element(kind, element, compact, where)
                self.flush()
                self.add(f"{elements}.append({element})")
                self.pace()

    def fixed_elements_in_steps(self, kind: str, target: str) -> None:
        """Reads the same elements, some thousands at a time."""
        code, width = FIXED[kind]
        self.add(f"{target} = v = []")
        with self.block("while n > 0:"):
            self.add(f"m = min(n, {ELEMENTS_PER_STEP})")
            values = f"unpack_from(f'>{{m}}{code}', data, p)"
            if kind == "uuid":
                values = "[read_uuid(data[i : i + 16]) for i in range(p, p + m * 16, 16)]"
            self.add(f"v += {values}")
            self.add(f"p += m * {width}")
            self.add("n -= m")
            self.pace("m")

    def element(self, kind: str, target: str, compact: bool, where: str) -> None:
        if kind == "string":
            self.text(target, compact, False, where)
        else:
            self.buffer(target, compact, False, where)

    def single_structure(self, field: Field, target: str, depth: int, where: str, tagged: bool = False) -> None:
        """Reads a structure; if it is nullable, an int8 precedes it, or a varint in a tagged field."""
        if self.version not in field.nullable:
            self.placed_structure(field, target, depth, where)
            return
        self.length("B" if tagged else "b", "long_varint" if tagged else "")
        with self.block("if n < 1:" if tagged else "if n < 0:"):
            self.add(f"{target} = None")
        with self.block("else:"):
            self.placed_structure(field, target, depth, where)

    def placed_structure(self, field: Field, target: str, depth: int, where: str) -> None:
        self.structure(field.structure, depth + 1, where)
        self.flush()
        self.add(f"{target} = o{depth + 1}")

    # Tagged fields

    def tag_section(self, cls: type[Message], target: str, where: str) -> None:
        self.fixed("B", "t")
        self.flush()
        with self.block("if t:"):
            if self.in_steps or any(field.tag is not None for field in cls.__schema__.fields):
                self.tags_read_by(self.tag_reader(cls, where), target)
            else:
                self.add(f"{target}.unknown_tagged_fields, p = read_tags(data, p, t)")
        with self.block("else:"):
            self.add(f"{target}.unknown_tagged_fields = None")

    def tag_reader(self, cls: type[Message], where: str) -> str:
        """Returns the name of the function that reads the tags of `cls`; classes without declared tags share one."""
        tagged = [field for field in cls.__schema__.fields if field.tag is not None]
        name = f"read_tags_{cls.__name__}" if tagged else "skip_tags"
        if name not in self.names:
            self.names[name] = None
            self.tag_function(name, tagged, where)
        return name

    def tags_read_by(self, name: str, target: str) -> None:
        if self.in_steps:
            self.add(f"p, c, b = yield from {name}({target}, data, p, t, end, c, b)")
        else:
            self.add(f"p = {name}({target}, data, p, t, end)")

    def tag_function(self, name: str, tagged: list[Field], where: str) -> None:
        """Generates a separate function for the tagged fields, since most structures have none."""
        steps = ", c, b" if self.in_steps else ""
        with self.function(f"def {name}(o0, data, p, n, end{steps}):"):
            self.add("unknown = []" if not self.in_steps else "o0.unknown_tagged_fields = None")
            self.add("n, p = count_tags(data, p, n)")
            with self.block("for _ in range(n):"):
                self.add("tag, p = read_varint(data, p)")
                keyword = "if"
                for field in tagged:
                    with self.block(f"{keyword} tag == {field.tag}:"):
                        self.tagged_field(field, f"{where} {field.name}")
                    keyword = "elif"
                with self.block("else:" if tagged else "if True:"):
                    self.unknown_tag()
                self.pace()
            if not self.in_steps:
                self.add("o0.unknown_tagged_fields = unknown or None")
            self.add(f"return p{steps}")

    def unknown_tag(self) -> None:
        if self.in_steps:
            self.add("p = skip_tag_value(data, p)")
        else:
            self.add("value, p = read_tag_value(data, p)")
            self.add("unknown.append((tag & 0xFFFFFFFF, value))")

    def tagged_field(self, field: Field, where: str) -> None:
        """Reads the size before the value and ignores it, as Kafka does."""
        if not field.is_tagged_in(self.version):
            self.add(f"raise wrong_tag({where!r}, {field.tag})")
            return
        self.add("size, p = read_varint(data, p)")
        target = f"o0.{field.attribute}"
        if field.type == "struct":
            self.single_structure(field, target, 0, where, tagged=True)
        else:
            self.field(field, target, 0, where)
        self.flush()
