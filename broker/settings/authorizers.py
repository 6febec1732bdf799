"""What the settings say about access control.

    (A) authorizer.class.name takes the names of Kafka's two authorizers, for Odradek's own. Another class is an error.
    (B) super.users: principals, TYPE:NAME, separated by semicolons. Names may contain colons and commas.
    (C) Without authorizer.class.name, super.users and allow.everyone.if.no.acl.found=false are errors: they promise
        protection, and would do nothing. Kafka ignores them then.

Source: Kafka's `StandardAuthorizer.configure`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek.broker.settings import AuthorizerSettings, BrokerSettings, ConfigError, parse_value

CLASS = BrokerSettings.authorizer_class_name
SUPER_USERS = AuthorizerSettings.super_users
ALLOW_EVERYONE = AuthorizerSettings.allow_everyone_if_no_acl_found
CLASSES = ("kafka.security.authorizer.AclAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")


class AuthorizerValues(NamedTuple):
    """The settings of an authorizer."""

    super_users: frozenset[str]
    allow_everyone_if_no_acl_found: bool


def authorizer_values(values: BrokerSettings, given: Mapping[str, str]) -> AuthorizerValues | None:
    """Returns the settings of the authorizer, None if there is none. `given`: the texts of all settings that are set.
    Raises ConfigError.
    """
    name = CLASS.of(values).strip()
    if not name:
        return None
    if name not in CLASSES:
        raise ConfigError(CLASS.name, f"{CLASS.name}={name} is not supported; it can be {' or '.join(CLASSES)}")
    everyone = parse_value(ALLOW_EVERYONE, given.get(ALLOW_EVERYONE.name, "false"))
    return AuthorizerValues(_principals(given.get(SUPER_USERS.name, "")), bool(everyone))


def unused_names(given: Mapping[str, str]) -> list[str]:
    """The settings that promise protection, which nothing gives without an authorizer (C). Raises ConfigError."""
    found = [SUPER_USERS.name] if _principals(given.get(SUPER_USERS.name, "")) else []
    if ALLOW_EVERYONE.name in given and not parse_value(ALLOW_EVERYONE, given[ALLOW_EVERYONE.name]):
        found.append(ALLOW_EVERYONE.name)
    return found


def _principals(text: str) -> frozenset[str]:
    found = [each for each in map(str.strip, text.split(";")) if each]
    for each in found:
        if ":" not in each:
            raise ConfigError(SUPER_USERS.name, f"{SUPER_USERS.name}: {each!r} is not TYPE:NAME, as in User:admin")
    return frozenset(found)
