"""Changes of settings while the broker runs: applies the items of a request to the current settings.

    A   A request that contains a setting twice, or sets one to null, is INVALID_REQUEST.
    B   APPEND adds the elements that are not in the list yet, SUBTRACT removes elements; if the setting is not set,
        they start from the default. A setting that is not a list is INVALID_CONFIG. So is a list that would exceed
        32,767 bytes, because the older versions of DescribeConfigs could not return it.
    C   Broker settings: changes of a read-only setting, of a per-broker setting for the whole cluster, of TLS settings
        without a listener's prefix, and invalid values are refused with INVALID_REQUEST (Kafka's code for these;
        KAFKA-13609).
    D   Names that are not broker settings may be stored, because plug-ins have their own.
    E   Not supported in Odradek yet: new listeners (INVALID_REQUEST), passwords, which would have to be stored
        encrypted (INVALID_CONFIG, as Kafka without password.encoder.secret), settings of SASL and TLS but for the
        files of keys and certificates, and settings that promise protection which Odradek does not provide
        (INVALID_CONFIG; Kafka accepts those that it does not use).
    F   A request for one broker, whatever it changes, reads the files of keys and certificates that have changed. It
        is refused with INVALID_REQUEST if they cannot replace those in use.

Source: Kafka's `ConfigAdminManager`, `DynamicBrokerConfig.validateConfigs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.settings import BROKER, ConfigError, Setting, UpdateMode, Value, value_text
from odradek.broker.settings.config import (
    BrokerConfig,
    broker_setting,
    check_dynamic_only,
    check_of_listener,
    is_fixed_at_start,
    promises_missing_protection,
)
from odradek.broker.settings.listener_values import LISTENER_PREFIX
from odradek.broker.settings.setting import LIST
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import ConfigOperation

ConfigChange = Callable[[Mapping[str, str]], Steps[dict[str, str]]]
"""Computes the new settings from the current ones, in steps."""

LONGEST_VALUE_BYTES = 32767
"""The maximum length of a string in every version of DescribeConfigs."""
MOST_NAMES = 10
"""The maximum number of names in an error message."""
COST_OF_LIST = 100
"""The cost of changing a long list, in items of a step."""

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
"""The settings that Kafka reloads per listener, and therefore requires with a listener's prefix."""
PASSWORDS = tuple(name for name, setting in BROKER.items() if setting.is_sensitive)
"""The endings of names that hold passwords, whatever their prefix, as in Kafka."""
FIXED_SO_FAR = {"config.providers", "listener.security.protocol.map", "listeners"}


_OPERATIONS = frozenset(ConfigOperation)


class ReloadedCertificates(Protocol):
    """The keys and certificates of this broker's listeners."""

    def check(self, per_broker: Mapping[str, str]) -> None:
        """Raises ConfigError if those that the broker would have with these settings cannot replace those in use."""

    def reload(self) -> None:
        """Reads those whose settings or files have changed."""


class NoCertificates:
    """Those of a broker without TLS."""

    def check(self, per_broker: Mapping[str, str]) -> None:
        """Nothing can be wrong."""

    def reload(self) -> None:
        """Nothing can change."""


class Item(NamedTuple):
    """One item of a request; `operation` is the number in the request."""

    name: str
    operation: int
    value: str | None


def check_items(items: Iterable[Item]) -> Steps[None]:
    """Checks case A and unknown operations. Raises INVALID_REQUEST."""
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
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown operation {', '.join(map(str, sorted(unknown)))}")


def _some_of(names: Collection[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(sorted(names)[:MOST_NAMES]) + more


def replacement(items: Iterable[Item]) -> ConfigChange:
    """AlterConfigs: settings that are not in the request return to their defaults."""

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


def modification(items: Iterable[Item], setting_of: Callable[[str], Setting[Value] | None]) -> ConfigChange:
    """IncrementalAlterConfigs: settings that are not in the request are kept. `setting_of` returns a setting's row.
    Raises INVALID_CONFIG.
    """

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


def _changed_list(item: Item, setting: Setting[Value] | None, current: str | None) -> str:
    """Adds to or removes from a list (B)."""
    if setting is None or setting.type is not LIST:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{item.name} is not a list: nothing can be added or removed")
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
            ErrorCode.INVALID_CONFIG, f"{item.name} would exceed the maximum of {LONGEST_VALUE_BYTES} bytes"
        )
    return changed


def followed_by(change: ConfigChange, check: Callable[[Mapping[str, str]], None]) -> ConfigChange:
    """Returns `change`, followed by a check of its result, which raises ProtocolError."""

    def checked(before: Mapping[str, str]) -> Steps[dict[str, str]]:
        after = yield from change(before)
        check(after)
        return after

    return checked


def checked_for_brokers(
    change: ConfigChange, config: BrokerConfig, certificates: ReloadedCertificates, *, per_broker: bool
) -> ConfigChange:
    """Returns `change`, followed by the checks of cases C to F on its result. The returned change raises
    INVALID_REQUEST, INVALID_CONFIG.
    """

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
            _check_support(name, text, config)
            if pace.step_ends():
                yield
        if per_broker:
            _check_certificates(after, certificates)
        return after

    return checked


def _check_support(name: str, text: str, config: BrokerConfig) -> None:
    """Case E. Raises INVALID_CONFIG."""
    if name.endswith(PASSWORDS):
        problem = "is a password, which cannot be stored yet"
    elif promises_missing_protection(name, text):
        problem = "promises protection that Odradek does not provide"
    elif is_fixed_at_start(name):
        problem = "cannot be changed yet while the broker runs"
    elif config.is_unused_tls(name, text):
        problem = "is not of a listener with TLS"
    else:
        return
    raise ProtocolError(ErrorCode.INVALID_CONFIG, f"{name} {problem}")


def _check_certificates(after: Mapping[str, str], certificates: ReloadedCertificates) -> None:
    """Case F."""
    try:
        certificates.check(after)
    except ConfigError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _check_change(name: str, text: str, *, per_broker: bool) -> None:
    problem = _problem(name, per_broker=per_broker)
    if problem is not None:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, problem)
    try:
        check_of_listener(name, text)
        check_dynamic_only(name, text)
    except ConfigError as error:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _problem(name: str, *, per_broker: bool) -> str | None:
    """Why a setting cannot be changed at this level."""
    setting = broker_setting(name)
    if setting is None:
        return None
    if name in BROKER and setting.update_mode is UpdateMode.READ_ONLY:
        return f"Cannot update these configs dynamically: Set({name})"
    if name in TLS_FILES:
        return f"{name} can be changed only for one listener, as {LISTENER_PREFIX}NAME.{name}"
    is_for_one_broker = setting.update_mode is UpdateMode.PER_BROKER or name not in BROKER
    if is_for_one_broker and not per_broker and setting.name not in CLUSTER_WIDE_FOR_LISTENERS:
        return f"{name} can be changed only for one broker, whose id must be given"
    if name in FIXED_SO_FAR:
        return f"{name} cannot be changed yet while the broker runs"
    return None
