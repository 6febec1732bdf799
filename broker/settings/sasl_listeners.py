"""What the settings say about the listeners whose clients authenticate by SASL.

    (A) sasl.enabled.mechanisms, connections.max.reauth.ms and sasl.server.max.receive.size have values for the broker,
        and with the prefix listener.name.{listener}. for one listener; the second also for a mechanism of a listener.
    (B) sasl.jaas.config must have the prefix of a listener and a mechanism. Without it, the section of the JAAS file
        counts that is named {listener}.KafkaServer, or else KafkaServer.
    (C) Of Kafka's mechanisms, GSSAPI and OAUTHBEARER are refused, so sasl.enabled.mechanisms must be set.
    (D) A setting that no listener uses is an error, where Kafka ignores it: it promises protection, and would do
        nothing.

Source: Kafka's `JaasContext`, `SaslChannelBuilder`, `ChannelBuilders.channelBuilderConfigs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.broker.settings import BrokerSettings, ConfigError
from odradek.broker.settings.listener_values import LISTENER_PREFIX, listener_value, name_for_listener
from odradek.broker.settings.listeners import Listener

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
ENABLED = BrokerSettings.sasl_enabled_mechanisms
JAAS = BrokerSettings.sasl_jaas_config
LIFETIME = BrokerSettings.connections_max_reauth_ms
LONGEST = BrokerSettings.sasl_server_max_receive_size
LOGIN = BrokerSettings.odradek_security_auth_login_config
FIRST = BrokerSettings.odradek_scram_credentials_file
BETWEEN_BROKERS = BrokerSettings.sasl_mechanism_inter_broker_protocol
OF_LISTENERS = tuple(setting.name for setting in (ENABLED, JAAS, LIFETIME, LONGEST))
"""The settings that take effect with the prefix of a listener."""


class MechanismSettings(NamedTuple):
    """A mechanism of a listener. `jaas_name` is the setting with its login module, for messages; `jaas` its text, or
    None if that is not set (B).
    """

    name: str
    jaas_name: str
    jaas: str | None
    session_lifetime_ms: int

    def __repr__(self) -> str:
        return f"MechanismSettings({self.name})"


class SaslListenerSettings(NamedTuple):
    """A listener with SASL."""

    listener: str
    mechanisms: list[MechanismSettings]
    longest_message: int


def sasl_listeners(
    values: BrokerSettings, given: Mapping[str, str], listeners: Iterable[Listener]
) -> list[SaslListenerSettings]:
    """Returns the settings of each listener with SASL. `given`: the texts of all settings that are set. Raises
    ConfigError.
    """
    found = [_of_listener(values, given, each.name) for each in listeners if each.has_sasl]
    _check_of_broker(values, found)
    for name, text in given.items():
        if name.startswith(LISTENER_PREFIX) and name.endswith(OF_LISTENERS) and text:
            _check_prefix(name, found)
    return found


def check_login_file(values: BrokerSettings, listeners: Iterable[Listener]) -> None:
    """Raises ConfigError if there is a JAAS file, but nobody who logs in."""
    if LOGIN.of(values) and values.zookeeper_connect is None and not any(each.has_sasl for each in listeners):
        raise ConfigError(
            LOGIN.name, f"{LOGIN.name} has no use without zookeeper.connect and without a listener that has SASL"
        )


def _of_listener(values: BrokerSettings, given: Mapping[str, str], listener: str) -> SaslListenerSettings:
    enabled = list(dict.fromkeys(listener_value(values, given, listener, ENABLED)))
    unknown = [name for name in enabled if name not in MECHANISMS]
    setting = name_for_listener(given, listener, ENABLED.name)
    if unknown or not enabled:
        problem = f"{', '.join(unknown)} is not supported" if unknown else "contains no mechanism"
        raise ConfigError(setting, f"{setting}: {problem}; listener {listener} can have {', '.join(MECHANISMS)}")
    return SaslListenerSettings(
        listener,
        [_of_mechanism(values, given, listener, name) for name in enabled],
        listener_value(values, given, listener, LONGEST),
    )


def _of_mechanism(values: BrokerSettings, given: Mapping[str, str], listener: str, mechanism: str) -> MechanismSettings:
    jaas_name = f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS.name}"
    return MechanismSettings(
        mechanism, jaas_name, given.get(jaas_name), listener_value(values, given, listener, LIFETIME, mechanism)
    )


def _check_of_broker(values: BrokerSettings, found: list[SaslListenerSettings]) -> None:
    """Case (D), for settings without a prefix."""
    if values.sasl_jaas_config:
        raise ConfigError(JAAS.name, f"{JAAS.name} must have the prefix {LISTENER_PREFIX}NAME.MECHANISM.")
    for setting in () if found else (ENABLED, LIFETIME, LONGEST):
        if setting.of(values) not in (setting.default, None, "", []):
            raise ConfigError(setting.name, f"{setting.name} has no use: no listener has the protocol SASL_PLAINTEXT")
    has_scram = any(mechanism.name in SCRAM for each in found for mechanism in each.mechanisms)
    if FIRST.of(values) and not has_scram:
        raise ConfigError(FIRST.name, f"{FIRST.name} has no use: no listener has {' or '.join(SCRAM)}")
    mechanism = values.sasl_mechanism_inter_broker_protocol
    own = next((each for each in found if each.listener == values.inter_broker_listener), None)
    enabled = [] if own is None else [each.name for each in own.mechanisms]
    if mechanism not in (BETWEEN_BROKERS.default, *enabled):
        raise ConfigError(
            BETWEEN_BROKERS.name,
            f"{BETWEEN_BROKERS.name}={mechanism} is not enabled by the listener {values.inter_broker_listener}",
        )


def _check_prefix(name: str, found: list[SaslListenerSettings]) -> None:
    """Case (D), for a setting with a prefix."""
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    own = next((each for each in found if each.listener.lower() == listener), None)
    if own is None:
        raise ConfigError(name, f"{name} has no use: there is no listener {listener.upper()} with SASL")
    setting = next(each for each in OF_LISTENERS if rest.endswith(each))
    mechanism = rest.removesuffix(setting).removesuffix(".")
    allowed = [each.name.lower() for each in own.mechanisms] if setting in (JAAS.name, LIFETIME.name) else []
    if mechanism not in (allowed if setting == JAAS.name else ["", *allowed]):
        raise ConfigError(
            name, f"{name} has no use: listener {own.listener} has {', '.join(each.name for each in own.mechanisms)}"
        )
