"""The mechanisms of the listeners with SASL, made from the settings, and who may log in.

    (A) PLAIN: the options user_NAME="PASSWORD" of PlainLoginModule, in the setting sasl.jaas.config of the listener and
        the mechanism, or else in the section of the JAAS file. (Kafka's default is the file of Java's system property.)
    (B) SCRAM: the credentials of users in the metadata store. Kafka wants a login module as well, without options; it
        may be missing here.
    (C) The options username and password of a module are those of this broker, when it authenticates to others.

Source: Kafka's `JaasContext`, `PlainServerCallbackHandler`, `ScramServerCallbackHandler`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.jaas import (
    USER_OPTION,
    JaasError,
    LoginModule,
    login_module_class,
    parse_jaas,
    parse_login_module,
)
from odradek.broker.security.sasl.authentication import SaslListener
from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.security.sasl.mechanism import Mechanism
from odradek.broker.security.sasl.plain import PLAIN, Passwords, PlainServer
from odradek.broker.security.sasl.scram import MECHANISMS, ScramLogins, StoredCredentials, Unknown
from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.settings.sasl_listeners import BETWEEN_BROKERS, LOGIN, MechanismSettings
from odradek.storage.files import Files

SECTION = "KafkaServer"
SECRET_BYTES = 32


def sasl_listeners_of(
    config: BrokerConfig,
    files: Files,
    stored: StoredCredentials,
    source: random.Random,
    counts: Mapping[str, AuthenticationCounts],
) -> dict[str, SaslListener]:
    """Returns the listeners with SASL by name. `source` draws nonces and secrets; `counts` has those of each listener.
    Raises ConfigError.
    """
    listeners = config.sasl_listeners()
    if not listeners:
        return {}
    unknown = Unknown(source.randbytes(SECRET_BYTES))
    sections = _sections(config, files)

    def mechanism(listener: str, settings: MechanismSettings) -> Mechanism:
        modules = _modules(settings, listener, sections, config)
        if settings.name == PLAIN:
            passwords = Passwords(_passwords(modules))
            return Mechanism(PLAIN, lambda: PlainServer(passwords), settings.session_lifetime_ms)
        scram = ScramLogins(MECHANISMS[settings.name], stored, unknown, source)
        return Mechanism(settings.name, scram.new_server, settings.session_lifetime_ms)

    return {
        each.listener: SaslListener(
            {settings.name: mechanism(each.listener, settings) for settings in each.mechanisms},
            config.connection_failed_authentication_delay_ms,
            each.longest_message,
            counts[each.listener],
        )
        for each in listeners
    }


def login_between_brokers(config: BrokerConfig, files: Files) -> ClientCredentials | None:
    """Returns with what this broker authenticates to others: the options username and password of the login module of
    the inter-broker listener. None if that listener has no SASL. Raises ConfigError.
    """
    own = next((each for each in config.sasl_listeners() if each.listener == config.inter_broker_listener), None)
    if own is None:
        return None
    name = config.sasl_mechanism_inter_broker_protocol
    settings = next((each for each in own.mechanisms if each.name == name), None)
    if settings is None:
        raise ConfigError(
            BETWEEN_BROKERS.name, f"{BETWEEN_BROKERS.name}={name} is not enabled by the listener {own.listener}"
        )
    for module in _modules(settings, own.listener, _sections(config, files), config):
        if "username" in module.options and "password" in module.options:
            return ClientCredentials(name, module.options["username"], module.options["password"])
    raise ConfigError(
        settings.jaas_name, f"{settings.jaas_name} lacks the options username and password, which brokers log in with"
    )


def _sections(config: BrokerConfig, files: Files) -> Mapping[str, list[LoginModule]]:
    path = config.odradek_security_auth_login_config
    if not path:
        return {}
    try:
        return parse_jaas(files.read_file(path).decode(), path)
    except OSError as error:
        raise ConfigError(LOGIN.name, f"{LOGIN.name}={path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(LOGIN.name, f"{LOGIN.name}={path}: the file is not UTF-8") from error
    except JaasError as error:
        raise ConfigError(LOGIN.name, f"{LOGIN.name}: {error}") from error


def _modules(
    settings: MechanismSettings,
    listener: str,
    sections: Mapping[str, list[LoginModule]],
    config: BrokerConfig,
) -> list[LoginModule]:
    """The login modules of a mechanism (A, B), of its own class only."""
    wanted = login_module_class(settings.name)
    if settings.jaas is not None:
        try:
            module = parse_login_module(settings.jaas, settings.jaas_name)
        except JaasError as error:
            raise ConfigError(settings.jaas_name, str(error)) from None
        if module.class_name != wanted:
            raise ConfigError(
                settings.jaas_name, f"{settings.jaas_name}: the login module of {settings.name} is {wanted}"
            )
        return [module]
    own = f"{listener.lower()}.{SECTION}"
    found = sections.get(own, sections.get(SECTION))
    modules = [module for module in found or () if module.class_name == wanted]
    if settings.name == PLAIN and not modules:
        path = config.odradek_security_auth_login_config
        file = f"section {own} or {SECTION} of {path} with" if path else f"{LOGIN.name} with a section {SECTION} and"
        raise ConfigError(settings.jaas_name, f"PLAIN needs {settings.jaas_name}, or {file} the module {wanted}")
    return modules


def _passwords(modules: list[LoginModule]) -> dict[str, str]:
    """The passwords by user; of several modules with a user, the first counts."""
    found: dict[str, str] = {}
    for module in modules:
        for name, value in module.options.items():
            if name.startswith(USER_OPTION):
                found.setdefault(name.removeprefix(USER_OPTION), value)
    return found
