"""Conversion of settings' values between text and their type, as in Kafka's `ConfigDef`.

Numbers are read as Java reads them: digits with an optional sign, no underscores, within the type's 16, 32 or 64 bits.
A CLASS remains a name: Odradek loads no Java classes, so it cannot check whether one exists.
"""

from __future__ import annotations

import math

from odradek.broker.settings.setting import BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, Setting, SettingType, Value

BITS: dict[SettingType[Value], int] = {SHORT: 16, INT: 32, LONG: 64}
BLANKS = "".join(map(chr, range(33)))
"""The characters that Java's String.trim removes: everything up to the space."""


class ConfigError(ValueError):
    """An invalid setting: its `name`, and a message for the user that is a complete sentence."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def parse_value(setting: Setting[Value], text: str) -> Value:
    """Parses `text` and checks it against the setting's rule. Raises ConfigError."""
    try:
        value = parse_type(setting.type, text)
    except ValueError as error:
        raise ConfigError(setting.name, f"{setting.name}={shown(setting, text)} {error}") from None
    problem = None if setting.valid is None else setting.valid.problem(value)
    if problem is not None:
        raise ConfigError(setting.name, f"{setting.name}={shown(setting, text)} {problem}")
    return value


def shown(setting: Setting[Value], text: str) -> str:
    """The value as it may appear in messages and logs: hidden if it is secret."""
    return "[hidden]" if setting.is_sensitive else text


def parse_type(type_: SettingType[Value], text: str) -> Value:
    """Parses `text`. Raises ValueError with a message that continues a sentence starting with the value."""
    trimmed = text.strip(BLANKS)
    if type_ in BITS:
        return _integer(trimmed, BITS[type_])
    if type_ is BOOLEAN:
        return _boolean(trimmed)
    if type_ is DOUBLE:
        return _double(trimmed)
    if type_ is LIST:
        return [part.strip() for part in trimmed.split(",")] if trimmed else []
    return trimmed


def value_text(value: Value) -> str | None:
    """Formats a typed value as Kafka shows it; None for null."""
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
        raise ValueError("is not an integer")
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
    """Formats as Java's Double.toString does: plain from a thousandth to ten million, otherwise with an exponent."""
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
