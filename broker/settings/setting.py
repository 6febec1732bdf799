"""One row of the settings table.

A row is data. It is created once at import, all rows share these few classes, and nothing is computed from a row before
it is needed: the table adds less than two milliseconds to the start. Values are typed (`None` if Kafka's default is
null); `values.py` converts between text and values.

Source: Kafka 4.4's `KafkaConfig`, `LogConfig`, `ConfigDef`, `DynamicBrokerConfig.dynamicConfigUpdateModes`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, Generic, Never, NoReturn, Protocol, TypeVar, overload

Value = bool | int | float | str | list[str] | None
T_co = TypeVar("T_co", bound=Value, covariant=True)


class SettingType(Generic[T_co]):
    """The type of a setting, numbered as in DescribeConfigs (KIP-569); its values are of the type T_co."""

    __slots__ = ("name", "number")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number


class Importance(Enum):
    """How much a setting matters to most users."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class UpdateMode(Enum):
    """At which level a broker setting may be changed while the broker runs (KIP-226); topic settings may always be
    changed.
    """

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


BOOLEAN: SettingType[bool] = SettingType("BOOLEAN", 1)
STRING: SettingType[str] = SettingType("STRING", 2)
INT: SettingType[int] = SettingType("INT", 3)
SHORT: SettingType[int] = SettingType("SHORT", 4)
LONG: SettingType[int] = SettingType("LONG", 5)
DOUBLE: SettingType[float] = SettingType("DOUBLE", 6)
LIST: SettingType[list[str]] = SettingType("LIST", 7)
CLASS: SettingType[str] = SettingType("CLASS", 8)
PASSWORD: SettingType[str] = SettingType("PASSWORD", 9)
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
PER_BROKER = UpdateMode.PER_BROKER
CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max


class Synonym:
    """A broker setting that supplies a topic setting's default: its value times `multiplier`."""

    __slots__ = ("multiplier", "name")

    def __init__(self, name: str, multiplier: int = 1) -> None:
        self.name = name
        self.multiplier = multiplier


class Rule(Protocol):
    """A constraint on a typed value. `text` is the form in Kafka's documentation."""

    @property
    def text(self) -> str: ...

    def problem(self, value: Value) -> str | None:
        """Returns why `value` is invalid, as the end of a sentence that starts with it, or None if it is valid."""


class SettingValues:
    """The values of a broker's or a topic's settings.

    Each attribute that a subclass declares is a row of the table, and its name that of the setting with underscores for
    dots. Read from an instance, the attribute is the setting's present value, with its type.
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        """`values`: of every setting, by name."""
        self.values = values


class Setting(Generic[T_co]):
    """One setting of a topic or a broker, whose values are of the type T_co.

    `name`           as in server.properties; taken from the attribute, or in without_effect.py from the key
    `type`           how its text is parsed
    `default`        typed; None if there is none
    `importance`     Kafka's
    `valid`          the rule for values; None if any value of the type is valid
    `documentation`  one sentence
    `takes_effect`   whether it has an effect in Odradek today, and so is an attribute
    `protects`       whether a value other than the default promises protection: a login, encryption, access rules, a
                     limit for others. While such a setting has no effect, such a value is refused. A setting that only
                     tunes a protection (how often, in which format) promises nothing
    `update_mode`    for broker settings
    `synonyms`       topic setting: the broker settings that supply its default, in order of precedence;
                     broker setting: names, including its own, of which the first that is set wins
    `internal`       omitted from descriptions and from the documentation, as in Kafka
    `removed_in`     the release of Kafka that no longer has it. It is still accepted, with a warning, and described
                     only if it takes effect
    """

    __slots__ = (
        "default",
        "documentation",
        "importance",
        "internal",
        "name",
        "protects",
        "removed_in",
        "synonyms",
        "takes_effect",
        "type",
        "update_mode",
        "valid",
    )

    def __init__(
        self,
        type: SettingType[T_co],  # noqa: A002 - Kafka's word
        default: T_co,
        importance: Importance,
        *,
        doc: str,
        name: str = "",
        valid: Rule | None = None,
        protects: bool = False,
        update_mode: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[Synonym, ...] = (),
        internal: bool = False,
        removed_in: str | None = None,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.importance = importance
        self.documentation = doc
        self.valid = valid
        self.takes_effect = False
        self.protects = protects
        self.update_mode = update_mode
        self.synonyms = synonyms
        self.internal = internal
        self.removed_in = removed_in

    def __set_name__(self, owner: type[SettingValues], attribute: str) -> None:
        self.name = self.name or attribute.replace("_", ".")
        self.takes_effect = True

    @overload
    def __get__(self, values: None, owner: type[SettingValues]) -> Setting[T_co]: ...

    @overload
    def __get__(self, values: SettingValues, owner: type[SettingValues]) -> T_co: ...

    def __get__(self, values: SettingValues | None, owner: type[SettingValues]) -> Any:
        return self if values is None else values.values[self.name]

    def of(self, values: SettingValues) -> T_co:
        """Returns its present value among the values of all settings."""
        return self.__get__(values, type(values))

    def __set__(self, values: SettingValues, value: Never) -> NoReturn:
        raise AttributeError(f"{self.name} is read only")

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is PASSWORD

    @property
    def is_hidden(self) -> bool:
        """Whether it is described only if it is set."""
        return self.internal or (self.removed_in is not None and not self.takes_effect)

    @property
    def is_missing_protection(self) -> bool:
        """Whether the setting promises protection and has no effect."""
        return self.protects and not self.takes_effect

    def promises_protection(self, value: Value) -> bool:
        """Whether `value` promises protection. An empty value promises nothing."""
        return self.protects and value not in (None, "", [], self.default)

    def promises_missing_protection(self, value: Value) -> bool:
        """Whether `value` promises protection that Odradek does not provide."""
        return not self.takes_effect and self.promises_protection(value)

    def __repr__(self) -> str:
        return f"Setting({self.name})"


def rows(settings: type[SettingValues]) -> list[Setting[Value]]:
    """Returns the settings that the class itself declares."""
    return [row for row in vars(settings).values() if isinstance(row, Setting)]
