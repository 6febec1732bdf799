"""The values that a setting has for single listeners.

    (A) listener.name.{listener}.{setting} comes before {setting}; the name of the listener is in lower case.
    (B) listener.name.{listener}.{mechanism}.{setting}, for a SASL mechanism in lower case, comes before both.
    (C) Without any of them the setting has its value for the whole broker, or its default.

Source: Kafka's `AbstractConfig.valuesWithPrefixOverride`, `ListenerName.configPrefix`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

from odradek.broker.settings.setting import Setting, SettingValues, Value
from odradek.broker.settings.values import ConfigError, parse_value

T = TypeVar("T", bound=Value)

LISTENER_PREFIX = "listener.name."


def listener_value(
    values: SettingValues, given: Mapping[str, str], listener: str, setting: Setting[T], mechanism: str | None = None
) -> T:
    """Returns the value of a setting for a listener, and for one of its SASL mechanisms. `given`: the texts of all
    settings that are set, by their names with prefixes. Raises ConfigError, which names the setting with its prefix.
    """
    name = name_for_listener(given, listener, setting.name, mechanism)
    if name == setting.name:
        return setting.of(values)
    try:
        return cast(T, parse_value(setting, given[name]))
    except ConfigError as error:
        raise ConfigError(name, str(error).replace(setting.name, name, 1)) from None


def name_for_listener(given: Mapping[str, str], listener: str, setting: str, mechanism: str | None = None) -> str:
    """Returns the name under which the setting's value for a listener is set, for messages: with the prefix or without
    one.
    """
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    of_mechanism = f"{prefix}{mechanism.lower()}.{setting}" if mechanism is not None else ""
    return next((name for name in (of_mechanism, f"{prefix}{setting}") if name in given), setting)
