"""Changes of settings while the broker runs: what the items of a request make of the settings that were there.

    A   A request must not name a setting twice, nor set one to null: INVALID_REQUEST.
    B   APPEND adds the parts of a list that are not in it yet, SUBTRACT takes parts away; where nothing was set they
        start from the default. Other than lists: INVALID_CONFIG. So is a list that would have more than 32,767 bytes:
        the older versions of DescribeConfigs could not answer it.
    C   Broker settings: a read-only one, a per-broker one for the whole cluster, TLS settings without a listener's
        prefix and any value that does not do are refused with INVALID_REQUEST (Kafka's code for these; KAFKA-13609).
    D   Names that are no broker settings may be stored: plug-ins have their own.
    E   Not in Odradek yet: new listeners (INVALID_REQUEST), passwords, which would have to be stored encrypted
        (INVALID_CONFIG, as Kafka without password.encoder.secret), and settings that promise protection which is not
        there (INVALID_CONFIG; Kafka takes those that it has no use for).

Source: Kafka's `ConfigAdminManager`, `DynamicBrokerConfig.validateConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.settings import BROKER, ConfigError, Setting, SettingType, UpdateMode, value_text
from odradek.broker.settings.config import (
    LISTENER_PREFIX,
    BrokerConfig,
    broker_setting,
    check_of_listener,
    promises_in_vain,
)
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import ConfigOperation

ConfigChange = Callable[[Mapping[str, str]], Steps[dict[str, str]]]
"""From the settings that were there to those that shall be, in steps."""

LONGEST_VALUE_BYTES = 32767
"""What a string may have in every version of DescribeConfigs."""
MOST_NAMES = 10
"""How many names an error message lists."""
COST_OF_LIST = 100
"""What changing a long list counts as, in items of a step."""

CLUSTER_WIDE_FOR_LISTENERS = {"max.connections", "max.connection.creation.rate", "num.network.threads"}
TLS_FILES = {
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}
"""What Kafka reloads per listener, and so wants with a listener's prefix."""
PASSWORDS = tuple(name for name, setting in BROKER.items() if setting.is_sensitive)
"""What a name that ends so is, whatever stands before it, as in Kafka."""
FIXED_SO_FAR = {"advertised.listeners", "listener.security.protocol.map", "listeners"}


_OPERATIONS = frozenset(ConfigOperation)


class Item(NamedTuple):
    """One item of a request; `operation` as it came."""

    name: str
    operation: int
    value: str | None


def check_items(items: Iterable[Item]) -> Steps[None]:
    """Case A, and operations that there are not. Raises INVALID_REQUEST."""
    seen: set[str] = set()
    repeated, nulls, unknown = set(), [], set()
    pace = Pace()
    for item in items:
        if item.name in seen:
            repeated.add(item.name)
        seen.add(item.name)
        if item.value is None and item.operation != ConfigOperation.DELETE:
            nulls.append(item.name)
        if item.operation not in _OPERATIONS:
            unknown.add(item.operation)
        if pace.step_ends():
            yield
    if repeated:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"These settings occur more than once: {_some_of(repeated)}")
    if nulls:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"These settings have no value: {_some_of(nulls)}")
    if unknown:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"There is no operation {', '.join(map(str, sorted(unknown)))}")


def _some_of(names: Collection[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(sorted(names)[:MOST_NAMES]) + more


def replacement(items: Iterable[Item]) -> ConfigChange:
    """AlterConfigs: what is not named goes back to its default."""

    def change(_: Mapping[str, str]) -> Steps[dict[str, str]]:
        after = {}
        pace = Pace()
        for item in items:
            if item.value is not None:
                after[item.name] = item.value
            if pace.step_ends():
                yield
        return after

    return change


def modification(items: Iterable[Item], setting_of: Callable[[str], Setting | None]) -> ConfigChange:
    """IncrementalAlterConfigs: what is not named stays. `setting_of` finds a setting's row. Raises INVALID_CONFIG."""

    def change(before: Mapping[str, str]) -> Steps[dict[str, str]]:
        current = dict(before)
        pace = Pace()
        for item in items:
            if item.operation == ConfigOperation.DELETE or item.value is None:
                current.pop(item.name, None)
            elif item.operation == ConfigOperation.SET:
                current[item.name] = item.value
            else:
                current[item.name] = _changed_list(item, setting_of(item.name), current.get(item.name))
                pace.step_ends(COST_OF_LIST)
            if pace.step_ends():
                yield
        return current

    return change


def _changed_list(item: Item, setting: Setting | None, current: str | None) -> str:
    """Case B."""
    if setting is None or setting.type is not SettingType.LIST:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{item.name} is no list: nothing can be added or taken away")
    text = (value_text(setting.default) or "") if current is None else current
    parts = [part.strip() for part in text.split(",")] if text else []
    named = dict.fromkeys(part.strip() for part in (item.value or "").split(","))
    if item.operation == ConfigOperation.APPEND:
        there = set(parts)
        changed = ",".join(parts + [part for part in named if part not in there])
    else:
        changed = ",".join(part for part in parts if part not in named)
    if len(changed.encode()) > LONGEST_VALUE_BYTES:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"{item.name} would have more than {LONGEST_VALUE_BYTES} bytes, which is the most"
        )
    return changed


def checked_for_brokers(change: ConfigChange, config: BrokerConfig, *, per_broker: bool) -> ConfigChange:
    """`change`, and then cases C to E for what came out. The change raises INVALID_REQUEST."""

    def checked(before: Mapping[str, str]) -> Steps[dict[str, str]]:
        after = yield from change(before)
        changed: dict[str, str] = {}
        pace = Pace()
        for name, text in after.items():
            if before.get(name) != text:
                _check_change(name, text, per_broker=per_broker)
                changed[name] = text
            if pace.step_ends():
                yield
        try:
            config.check_dynamic(after, per_broker=per_broker)
        except ConfigError as error:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from error
        for name, text in changed.items():
            if name.endswith(PASSWORDS):
                raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name} is a password, which cannot be stored yet")
            if promises_in_vain(name, text):
                raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name} promises protection that Odradek does not give")
            if pace.step_ends():
                yield
        return after

    return checked


def _check_change(name: str, text: str, *, per_broker: bool) -> None:
    problem = _problem(name, per_broker=per_broker)
    if problem is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{name} {problem}")
    try:
        check_of_listener(name, text)
    except ConfigError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _problem(name: str, *, per_broker: bool) -> str | None:
    """Why a setting cannot be changed at this level, as the end of a sentence."""
    setting = broker_setting(name)
    if setting is None:
        return None
    if name in BROKER and setting.update_mode is UpdateMode.READ_ONLY:
        return "cannot be changed while the broker runs"
    if name in TLS_FILES:
        return f"can be changed only for one listener, as {LISTENER_PREFIX}NAME.{name}"
    is_for_one_broker = setting.update_mode is UpdateMode.PER_BROKER or name not in BROKER
    if is_for_one_broker and not per_broker and setting.name not in CLUSTER_WIDE_FOR_LISTENERS:
        return "can be changed only for one broker, whose number must be given"
    if name in FIXED_SO_FAR:
        return "cannot be changed while the broker runs yet"
    return None
