"""The declarations of Kafka's messages.

A message is a class with typed attributes. Each attribute has a specifier: its wire type, the versions in which it
exists, and its default::

    @message(api_key=12, kind="request", versions=(0, 4), flexible=4)
    class HeartbeatRequest(Message):
        group_id: str = string()
        generation_id: int = int32()
        group_instance_id: str | None = string(default=None, versions=since(3), nullable=since(3))

Structures are classes inside their message, under Kafka's names. The class of a structure, or of an array's structures,
is taken from the annotation, so that it is named only once::

        topics: list[FetchRequest.FetchTopic] = array()

Every such class has:

(A) slots, and a keyword constructor with Kafka's defaults, compiled at the first use;
(B) a `Schema` under `__schema__`, from which `protocol.compiler` makes one reader and one writer per version, and
    `protocol.documents` the JSON form;
(C) `unknown_tagged_fields` in every class: None, or a list of (tag, bytes) in the order they were read.

A tagged structure that is not nullable is None if it has its default (it is then not written), so that responses with
thousands of partitions need not hold thousands of default objects.

Fields that a version does not have keep their default on reading and are skipped on writing. A string that is None is
written as an empty one in versions before it is nullable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, dataclass_transform
from uuid import UUID

NEWEST = 32767
ZERO_UUID = UUID(int=0)


class Versions(NamedTuple):
    """An inclusive range of message versions; empty when `lowest` is above `highest`."""

    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


ALWAYS = Versions(0, NEWEST)
NEVER = Versions(0, -1)


def since(lowest: int) -> Versions:
    return Versions(lowest, NEWEST)


def until(highest: int) -> Versions:
    return Versions(0, highest)


def between(lowest: int, highest: int) -> Versions:
    return Versions(lowest, highest)


def only(version: int) -> Versions:
    return Versions(version, version)


# wire type -> (struct code, bytes), in network order
FIXED: dict[str, tuple[str, int]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}


class Field:
    """One field of a message. `type` is a name in FIXED, or string, bytes, records, array, struct.

    `element` is the type of an array's elements, `struct_class` the class of a structure or of an array's structures.
    """

    __slots__ = (
        "attribute",
        "default",
        "element",
        "flexible",
        "name",
        "nullable",
        "struct_class",
        "tag",
        "tagged",
        "type",
        "versions",
    )

    def __init__(
        self,
        type_: str,
        default: object,
        versions: Versions = ALWAYS,
        *,
        nullable: Versions = NEVER,
        tag: int | None = None,
        tagged: Versions | None = None,
        name: str | None = None,
        flexible: bool = True,
        element: str | None = None,
    ) -> None:
        self.type = type_
        self.default = default
        self.versions = versions
        self.nullable = nullable
        self.tag = tag
        self.tagged = NEVER if tag is None else (tagged or versions)
        self.name = name or ""
        self.flexible = flexible
        self.element = element
        self.attribute = ""
        self.struct_class: type[Message] | None = None

    @property
    def structure(self) -> type[Message]:
        """The class of the structure or structures in this field."""
        if self.struct_class is None:
            raise TypeError(f"{self.name} holds no structures")
        return self.struct_class

    def is_plain_in(self, version: int) -> bool:
        """Whether in this version the field has a fixed place in the body and is not tagged."""
        return version in self.versions and version not in self.tagged

    def is_tagged_in(self, version: int) -> bool:
        return version in self.versions and version in self.tagged

    def default_value(self) -> Any:
        """Returns a default that the caller owns: lists and structures are new objects."""
        if self.default == [] and self.type == "array":
            return []
        if self.type == "struct" and self.default is not None:
            return self.structure()
        return self.default


# The specifiers return Any, so that `partition: int = int32()` is well typed.


def bool_(default: bool = False, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("bool", default, versions, **rest)


def int8(default: int = 0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("int8", default, versions, **rest)


def int16(default: int = 0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("int16", default, versions, **rest)


def uint16(default: int = 0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("uint16", default, versions, **rest)


def int32(default: int = 0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("int32", default, versions, **rest)


def uint32(default: int = 0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("uint32", default, versions, **rest)


def int64(default: int = 0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("int64", default, versions, **rest)


def float64(default: float = 0.0, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("float64", default, versions, **rest)


def uuid(default: UUID = ZERO_UUID, versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("uuid", default, versions, **rest)


def string(default: str | None = "", versions: Versions = ALWAYS, **rest: Any) -> Any:
    """At most 32767 bytes of UTF-8; compact in flexible versions unless `flexible=False`."""
    return Field("string", default, versions, **rest)


def bytes_(default: bytes | None = b"", versions: Versions = ALWAYS, **rest: Any) -> Any:
    return Field("bytes", default, versions, **rest)


def records(default: bytes | None = None, versions: Versions = ALWAYS, **rest: Any) -> Any:
    """Raw record batches; for writing, any object with `__len__` that the connection can send."""
    return Field("records", default, versions, **rest)


def array(
    element: Callable[..., Any] | None = None,
    default: list[Any] | None = [],  # noqa: B006  (never returned: see default_value)
    versions: Versions = ALWAYS,
    **rest: Any,
) -> Any:
    """An array of a type, as in `array(int32)`, or, without an element, of the structures in the annotation."""
    return Field("array", default, versions, element="struct" if element is None else element().type, **rest)


def structure(default: object = None, versions: Versions = ALWAYS, **rest: Any) -> Any:
    """One structure, of the class in the annotation; `default=True`: an object with all defaults."""
    return Field("struct", default, versions, **rest)


class Schema:
    """The schema of a message or structure: its fields in wire order, and for messages key, kind and versions."""

    __slots__ = ("api_key", "fields", "flexible", "kind", "name", "versions")

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields
        self.kind: Kind = "struct"
        self.api_key: int | None = None
        self.versions = NEVER
        self.flexible = NEVER

    def plain_fields(self, version: int) -> Iterator[Field]:
        return (field for field in self.fields if field.is_plain_in(version))

    def tagged_fields(self, version: int) -> list[Field]:
        """Returns the fields that are tagged in this version, by tag."""
        tagged = [field for field in self.fields if field.is_tagged_in(version)]
        return sorted(tagged, key=lambda field: field.tag or 0)


Kind = Literal["request", "response", "header", "data", "struct"]
Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[[Any, list[Any]], None]


class MessageClass(type):
    """Creates the class of a message or structure: with a slot for each field instead of its specifier."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> MessageClass:
        fields = []
        for attribute, field in list(namespace.items()):
            if isinstance(field, Field):
                field.attribute = attribute
                fields.append(field)
                del namespace[attribute]
        namespace.setdefault("__slots__", tuple(field.attribute for field in fields))
        namespace["__schema__"] = Schema(name, tuple(fields))
        return super().__new__(cls, name, bases, namespace)


@dataclass_transform(kw_only_default=True, eq_default=True)
class Message(metaclass=MessageClass):
    """The base of every message and structure."""

    __slots__ = ("unknown_tagged_fields",)
    __schema__: ClassVar[Schema]
    __readers__: ClassVar[dict[int, Reader]]
    __writers__: ClassVar[dict[int, Writer]]
    unknown_tagged_fields: list[tuple[int, bytes]] | None

    def __init__(self, **values: Any) -> None:
        _install_constructor(type(self))
        type(self).__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = self.__slots__
        return all(getattr(self, name) == getattr(other, name) for name in names) and (
            (self.unknown_tagged_fields or []) == (getattr(other, "unknown_tagged_fields", None) or [])
        )

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__slots__]
        if self.unknown_tagged_fields:
            shown.append(f"unknown_tagged_fields={self.unknown_tagged_fields!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


M = TypeVar("M", bound=Message)


def message(
    *,
    versions: tuple[int, int],
    kind: Kind,
    api_key: int | None = None,
    flexible: int | None = None,
    lower_camel: bool = False,
) -> Callable[[type[M]], type[M]]:
    """Declares a message: its versions, and the first version with compact lengths and tag sections (None: none).

    `lower_camel`: the specification spells the fields `producerId`, not `ProducerId`.
    """

    def declare(cls: type[M]) -> type[M]:
        schema = cls.__schema__
        schema.kind = kind
        schema.api_key = api_key
        schema.versions = Versions(*versions)
        schema.flexible = NEVER if flexible is None else since(flexible)
        cls.__readers__ = {}
        cls.__writers__ = {}
        structs = {name: member for name, member in vars(cls).items() if isinstance(member, type)}
        for owner in (cls, *structs.values()):
            _finish_fields(owner, structs, lower_camel)
        return cls

    return declare


def _finish_fields(owner: type[Message], structs: dict[str, type[Message]], lower_camel: bool) -> None:
    """Sets every field's name in the specification and its structure's class."""
    for field in owner.__schema__.fields:
        if not field.name:
            field.name = _specification_name(field.attribute, lower_camel)
        if "struct" in (field.type, field.element):
            field.struct_class = structs[_class_in(owner.__annotations__[field.attribute])]


@cache  # thousands of fields have a few hundred names
def _specification_name(attribute: str, lower_camel: bool) -> str:
    name = "".join(part[:1].upper() + part[1:] for part in attribute.split("_"))
    return name[0].lower() + name[1:] if lower_camel else name


def _class_in(annotation: str) -> str:
    """`list[FetchRequest.FetchTopic] | None` -> `FetchTopic`"""
    return annotation.removesuffix(" | None").removesuffix("]").rpartition("[")[2].rpartition(".")[2]


class _Unset:
    """The default of list and structure parameters, since None may mean null."""

    def __repr__(self) -> str:
        return "..."


_UNSET = _Unset()


def _install_constructor(cls: type[Message]) -> None:
    """Compiles `__init__` with one keyword per field and Kafka's defaults."""
    names: dict[str, Any] = {"UNSET": _UNSET}
    parameters, body = [], ["self.unknown_tagged_fields = None"]
    for field in cls.__schema__.fields:
        attribute = field.attribute
        if field.default is None or not (field.type == "struct" or field.type == "array"):
            names[f"default_{attribute}"] = field.default
            parameters.append(f"{attribute}=default_{attribute}")
            body.append(f"self.{attribute} = {attribute}")
        else:
            made = "[]" if field.type == "array" else f"class_{attribute}()"
            names[f"class_{attribute}"] = field.struct_class
            parameters.append(f"{attribute}=UNSET")
            body.append(f"self.{attribute} = {made} if {attribute} is UNSET else {attribute}")
    stars = "*, " if parameters else ""
    source = f"def __init__(self, {stars}{', '.join(parameters)}):\n    " + "\n    ".join(body)
    exec(source, names)  # nosec B102 # made of schemas, not of messages
    constructor = names["__init__"]
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = constructor  # type: ignore[method-assign]
