"""The values of groups' own settings: checked when they are set, and kept within the broker's bounds when read.

(A) A setting lies between the broker settings group.KIND.min.NAME and group.KIND.max.NAME, where these exist. A value
    that was stored before they changed counts as the nearest one that they allow.
(B) A session timeout is longer than the heartbeat interval; of these, the broker's holds where the group has none.

Source: Kafka's `GroupConfig` (validate, evaluate).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from odradek.broker.settings import BROKER, GROUP, BrokerSettings, ConfigError, Setting, Value, parse_value
from odradek.broker.settings.setting import LIST

_OTHER_NAMES = {
    "streams.num.standby.replicas": "streams.standby.replicas",
    "streams.num.warmup.replicas": "streams.warmup.replicas",
}
"""What some settings are called in the names of their bounds."""
_KINDS = ("consumer", "share", "streams")
_INTERNAL_TOPIC = "__"


def check_group_settings(texts: Mapping[str, str], broker: BrokerSettings) -> None:
    """Raises ConfigError unless a group may have these settings (A, B)."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        if name not in GROUP:
            raise ConfigError(name, f"Unknown group config name: {name}")
        values[name] = parse_value(GROUP[name], text)
    for name, value in values.items():
        _check_bounds(name, value, broker)
    for kind in _KINDS:
        _check_session(kind, values, broker)
    assignors = cast("list[str]", broker.values["group.streams.assignors"])
    if values.get("streams.assignor.name", assignors[0]) not in assignors:
        raise ConfigError("streams.assignor.name", f"streams.assignor.name is not one of {', '.join(assignors)}")
    name = "errors.deadletterqueue.topic.name"
    if str(values.get(name, "")).startswith(_INTERNAL_TOPIC):
        raise ConfigError(name, f"{name} begins with {_INTERNAL_TOPIC}, as only internal topics do")


def group_default(setting: Setting[Value], broker: BrokerSettings) -> Value:
    """Returns the value for a group that has none of its own. An assignor is the first of the broker's."""
    if not setting.synonyms:
        return setting.default
    value = broker.values[setting.synonyms[0].name]
    return value[0] if isinstance(value, list) and setting.type is not LIST else value


def own_value(setting: Setting[int], own: Mapping[str, str], broker: BrokerSettings) -> tuple[int, bool]:
    """Returns the value that a group with these settings has, and whether it is not the one that is stored (A)."""
    text = own.get(setting.name)
    inherited = cast(int, group_default(setting, broker))
    if text is None:
        return inherited, False
    try:
        stored = cast(int, parse_value(setting, text))
    except ConfigError:
        return inherited, True
    least, most = _bounds(setting.name, broker)
    value = max(stored, stored if least is None else least)
    value = min(value, value if most is None else most)
    return value, value != stored


def _check_bounds(name: str, value: Value, broker: BrokerSettings) -> None:
    least, most = _bounds(name, broker)
    if isinstance(value, int) and least is not None and value < least:
        raise ConfigError(name, f"{name}={value} is below {least}, the least that this broker allows")
    if isinstance(value, int) and most is not None and value > most:
        raise ConfigError(name, f"{name}={value} is above {most}, the most that this broker allows")


def _check_session(kind: str, values: Mapping[str, Value], broker: BrokerSettings) -> None:
    session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    if session not in values and heartbeat not in values:
        return
    session_ms, heartbeat_ms = (
        cast(int, values.get(name, broker.values[f"group.{name}"])) for name in (session, heartbeat)
    )
    if session_ms <= heartbeat_ms:
        raise ConfigError(session, f"{session}={session_ms} is not above {heartbeat}={heartbeat_ms}")


def _bounds(name: str, broker: BrokerSettings) -> tuple[int | None, int | None]:
    kind, _, rest = _OTHER_NAMES.get(name, name).partition(".")
    least, most = (f"group.{kind}.{bound}.{rest}" for bound in ("min", "max"))
    return (
        cast(int, broker.values[least]) if least in BROKER else None,
        cast(int, broker.values[most]) if most in BROKER else None,
    )
