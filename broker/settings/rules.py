"""Validation rules for values of settings. `text` is the form in which Kafka documents a rule.

Source: the validators of Kafka's `ConfigDef` and of the classes that define its settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from odradek.broker.settings.setting import Value

PAIR_OR_NOTHING = re.compile("([0-9]+:[0-9]+)?")
"""One of a topic's throttled replicas. A list may have thousands."""

RELEASES = (
    "0.8.0 0.8.1 0.8.2 0.9.0 0.10.0-IV0 0.10.0-IV1 0.10.1-IV0 0.10.1-IV1 0.10.1-IV2 0.10.2-IV0 0.11.0-IV0 0.11.0-IV1 "
    "0.11.0-IV2 1.0-IV0 1.1-IV0 2.0-IV0 2.0-IV1 2.1-IV0 2.1-IV1 2.1-IV2 2.2-IV0 2.2-IV1 2.3-IV0 2.3-IV1 2.4-IV0 "
    "2.4-IV1 2.5-IV0 2.6-IV0 2.7-IV0 2.7-IV1 2.7-IV2 2.8-IV0 2.8-IV1 3.0-IV0 3.0-IV1 3.1-IV0 3.2-IV0 3.3-IV0 3.3-IV1 "
    "3.3-IV2 3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 "
    "3.8-IV0 3.9-IV0 4.0-IV0 4.0-IV1"
)


class AtLeast:
    """A number that is at least `least`."""

    __slots__ = ("least",)

    def __init__(self, least: int) -> None:
        self.least = least

    @property
    def text(self) -> str:
        return f"[{self.least},...]"

    def problem(self, value: Value) -> str | None:
        if isinstance(value, (int, float)) and value >= self.least:
            return None
        return f"is not at least {self.least}"


class Between:
    """A number from `least` to `most`, inclusive."""

    __slots__ = ("least", "most")

    def __init__(self, least: int, most: float) -> None:
        self.least = least
        self.most = most

    @property
    def text(self) -> str:
        return f"[{self.least},...,{self.most}]"

    def problem(self, value: Value) -> str | None:
        if isinstance(value, (int, float)) and self.least <= value <= self.most:
            return None
        return f"is not between {self.least} and {self.most}"


class UnlessMinusOne:
    """-1, which stands for a default, or a value that satisfies another rule. `text` overrides the documented form."""

    __slots__ = ("rule", "text")

    def __init__(self, rule: AtLeast | Between, text: str | None = None) -> None:
        self.rule = rule
        self.text = text or f"{rule.text} or -1"

    def problem(self, value: Value) -> str | None:
        if value == -1:
            return None
        problem = self.rule.problem(value)
        return problem and f"{problem} and is not -1"


class OneOf:
    """One of several words; for a list, each element."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def text(self) -> str:
        return f"[{', '.join(self.words)}]"

    def problem(self, value: Value) -> str | None:
        parts = value if isinstance(value, list) else [value]
        invalid = [str(part) for part in parts if part not in self.words]
        return f"is not one of {', '.join(self.words)}" if invalid else None


class Values:
    """A list of any values; Kafka documents no form. `may_be_empty`: whether it may have none."""

    __slots__ = ("may_be_empty",)
    text = ""

    def __init__(self, *, may_be_empty: bool = True) -> None:
        self.may_be_empty = may_be_empty

    def problem(self, value: Value) -> str | None:
        return None if value or self.may_be_empty or value is None else "has no values"


class Assignors:
    """Names of assignors, or of Kafka's classes. Kafka documents no form."""

    __slots__ = ()
    text = ""
    CLASSES: ClassVar[Mapping[str, str]] = {
        f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name
        for name in ("uniform", "range")
    }
    """The names by class."""

    def problem(self, value: Value) -> str | None:
        names = [self.CLASSES.get(str(part), part) for part in value] if isinstance(value, list) else []
        if names and all(name in self.CLASSES.values() for name in names):
            return None
        return f"is not a list of {', '.join(self.CLASSES.values())}"


class OneOfAnyCase:
    """One of several words, in upper or lower case."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words

    @property
    def text(self) -> str:
        return f"(case insensitive) [{', '.join(self.words)}]"

    def problem(self, value: Value) -> str | None:
        if isinstance(value, str) and value.upper() in self.words:
            return None
        return f"is not one of {', '.join(self.words)} (case insensitive)"


class OffsetReset:
    """Where a share group begins in a partition."""

    __slots__ = ()
    text = "[latest, earliest, by_duration:PnDTnHnMn.nS]"
    DURATION = re.compile(r"by_duration:(?i:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d{1,9})?S)?)?)", re.ASCII)

    def problem(self, value: Value) -> str | None:
        if isinstance(value, str) and (value in ("latest", "earliest") or self.DURATION.fullmatch(value)):
            return None
        return "is not latest, earliest or by_duration:PnDTnHnMn.nS"


class Release:
    """A Kafka release: `3.0-IV1`, `3.0`, `3.0.1`; below 1.0 the third number is significant, too."""

    __slots__ = ()
    text = f"[{', '.join(RELEASES.split())}]"

    def problem(self, value: Value) -> str | None:
        if isinstance(value, str):
            known = RELEASES.split()
            numbers = value.split(".")
            release = ".".join(numbers[: 3 if numbers[0] == "0" else 2])
            if value in known or any(name == release or name.startswith(f"{release}-IV") for name in known):
                return None
        return "is not a known release of Kafka"


class ProtocolBetweenBrokers(Release):
    """The release whose protocol the requests between brokers have: 3.0 and no other."""

    __slots__ = ()

    def problem(self, value: Value) -> str | None:
        problem = super().problem(value)
        if problem is not None or value == "3.0-IV1" or str(value).split(".")[:2] == ["3", "0"]:
            return problem
        return "is not 3.0-IV1 (or 3.0), the only protocol between brokers that Odradek has"


class NotNull:
    """Any text, including the empty one."""

    __slots__ = ()
    text = "non-null string"

    def problem(self, value: Value) -> str | None:
        return "must have a value" if value is None else None


class NotEmpty:
    """Text that is not empty, or null."""

    __slots__ = ()
    text = "non-empty string"

    def problem(self, value: Value) -> str | None:
        return "is empty" if value == "" else None


class Addresses:
    """KRaft's lists of addresses, with or without an id before the address. Any list is valid, since Odradek joins no
    quorum.
    """

    __slots__ = ()
    text = "non-empty list"

    def problem(self, value: Value) -> str | None:
        return None if isinstance(value, list) else "must be a list"


class ThrottledReplicas:
    """partition:broker pairs, or only `*`."""

    __slots__ = ()
    text = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."

    def problem(self, value: Value) -> str | None:
        parts = value if isinstance(value, list) else []
        if "".join(parts) == "*" or all(map(PAIR_OR_NOTHING.fullmatch, parts)):
            return None
        return "is neither * nor a list of partition:broker pairs"
