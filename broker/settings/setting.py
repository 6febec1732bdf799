"""One row of the settings table.

A row is data. It is created once at import, all rows share these few classes, and nothing is computed from a row before
it is needed: the table adds less than two milliseconds to the start. Values are typed (`None` if Kafka's default is
null); `values.py` converts between text and values.

Source: Kafka 3.9's `KafkaConfig`, `LogConfig`, `ConfigDef`, `DynamicBrokerConfig.dynamicConfigUpdateModes`.
"""

from __future__ import annotations

import sys
from enum import Enum, IntEnum
from typing import Protocol

Value = bool | int | float | str | list[str] | None


class SettingType(IntEnum):
    """The type of a value, numbered as in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


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


BOOLEAN = SettingType.BOOLEAN
STRING = SettingType.STRING
INT = SettingType.INT
SHORT = SettingType.SHORT
LONG = SettingType.LONG
DOUBLE = SettingType.DOUBLE
LIST = SettingType.LIST
CLASS = SettingType.CLASS
PASSWORD = SettingType.PASSWORD
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


class Setting:
    """One setting of a topic or a broker.

    `name`           as in server.properties
    `type`           how its text is parsed
    `default`        typed; None if there is none
    `importance`     Kafka's
    `valid`          the rule for values; None if any value of the type is valid
    `documentation`  one sentence
    `takes_effect`   whether it has an effect in Odradek today
    `protects`       whether a value other than the default promises protection: a login, encryption, access rules, a
                     limit for others. While such a setting has no effect, such a value is refused. A setting that only
                     tunes a protection (how often, in which format) promises nothing
    `update_mode`    for broker settings
    `synonyms`       topic setting: the broker settings that supply its default, in order of precedence;
                     broker setting: names, including its own, of which the first that is set wins
    `internal`       omitted from descriptions and from the documentation, as in Kafka
    `own`            specific to Odradek: Kafka has no such setting
    """

    __slots__ = (
        "default",
        "documentation",
        "importance",
        "internal",
        "name",
        "own",
        "protects",
        "synonyms",
        "takes_effect",
        "type",
        "update_mode",
        "valid",
    )

    def __init__(
        self,
        name: str,
        type: SettingType,  # noqa: A002 - Kafka's word
        default: Value,
        importance: Importance,
        *,
        doc: str,
        valid: Rule | None = None,
        takes_effect: bool = False,
        protects: bool = False,
        update_mode: UpdateMode = UpdateMode.READ_ONLY,
        synonyms: tuple[Synonym, ...] = (),
        internal: bool = False,
        own: bool = False,
    ) -> None:
        self.name = name
        self.type = type
        self.default = default
        self.importance = importance
        self.documentation = doc
        self.valid = valid
        self.takes_effect = takes_effect
        self.protects = protects
        self.update_mode = update_mode
        self.synonyms = synonyms
        self.internal = internal
        self.own = own

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is SettingType.PASSWORD

    @property
    def is_missing_protection(self) -> bool:
        """Whether the setting promises protection and has no effect."""
        return self.protects and not self.takes_effect

    def promises_missing_protection(self, value: Value) -> bool:
        """Whether `value` promises protection that Odradek does not provide. An empty value promises nothing."""
        return self.is_missing_protection and value not in (None, "", [], self.default)

    def __repr__(self) -> str:
        return f"Setting({self.name})"
