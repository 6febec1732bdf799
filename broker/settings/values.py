"""Settings' values: from text to the type of their setting and back, as Kafka's `ConfigDef` does it.

Numbers are read as Java reads them: digits with an optional sign, no underscores, within the type's 16, 32 or 64 bits.
A CLASS stays a name: Odradek loads no Java classes, so it cannot say whether one exists.
"""

from __future__ import annotations

import math

from odradek.broker.settings.setting import Setting, SettingType, Value

BITS = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}
BLANKS = "".join(map(chr, range(33)))
"""What Java's String.trim takes away: everything up to the space."""


class ConfigError(ValueError):
    """A setting that cannot be what it was given: its `name`, and a message that is a whole sentence for the user."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def parse_value(setting: Setting, text: str) -> Value:
    """The typed value of `text`, held to the setting's rule. Raises ConfigError."""
    try:
        value = parse_type(setting.type, text)
    except ValueError as error:
        raise ConfigError(setting.name, f"{setting.name}={shown(setting, text)} {error}") from None
    problem = None if setting.valid is None else setting.valid.problem(value)
    if problem is not None:
        raise ConfigError(setting.name, f"{setting.name}={shown(setting, text)} {problem}")
    return value


def shown(setting: Setting, text: str) -> str:
    """A value as it may appear in messages and logs: not at all when it is secret."""
    return "[hidden]" if setting.is_sensitive else text


def parse_type(type_: SettingType, text: str) -> Value:
    """The typed value of `text`. Raises ValueError with the end of a sentence that begins with the value."""
    trimmed = text.strip(BLANKS)
    if type_ in BITS:
        return _integer(trimmed, BITS[type_])
    if type_ is SettingType.BOOLEAN:
        return _boolean(trimmed)
    if type_ is SettingType.DOUBLE:
        return _double(trimmed)
    if type_ is SettingType.LIST:
        return [part.strip() for part in trimmed.split(",")] if trimmed else []
    return trimmed


def value_text(value: Value) -> str | None:
    """The text that Kafka shows for a typed value; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def _integer(text: str, bits: int) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("is not a whole number")
    limit = 1 << bits - 1
    if len(digits.lstrip("0")) > 19 or not -limit <= int(text) < limit:
        raise ValueError(f"does not fit into {bits} bits")
    return int(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


def _double(text: str) -> float:
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned in ("NaN", "Infinity"):
        return float(text)
    number = text[:-1] if text[-1:] in ("d", "D", "f", "F") else text
    try:
        if not set(number) <= set("0123456789+-.eE"):
            raise ValueError
        return float(number)
    except ValueError:
        raise ValueError("is not a number") from None


def _double_text(value: float) -> str:
    """Java's Double.toString: plain between a thousandth and ten million, with an exponent outside."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{value:f}" if "e" in repr(value) else repr(value)
        return text.rstrip("0") + "0" if text.rstrip("0").endswith(".") else text.rstrip("0")
    mantissa, _, exponent = f"{value:e}".partition("e")
    digits = repr(value).partition("e")[0].replace(".", "").replace("-", "").strip("0")
    sign = "-" if value < 0 else ""
    mantissa = f"{digits[0]}.{digits[1:] or '0'}"
    return f"{sign}{mantissa}E{int(exponent)}"
