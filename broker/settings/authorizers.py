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
    text = given.get(ALLOW_EVERYONE.name)
    everyone = None if text is None else bool(parse_value(ALLOW_EVERYONE, text))
    super_users = _principals(given.get(SUPER_USERS.name, ""))
    name = CLASS.of(values).strip()
    if name:
        if name not in CLASSES:
            raise ConfigError(CLASS.name, f"{CLASS.name}={name} is not supported; it can be {' or '.join(CLASSES)}")
        return AuthorizerValues(super_users, bool(everyone))
    if super_users or everyone is False:
        unused = SUPER_USERS.name if super_users else ALLOW_EVERYONE.name
        raise ConfigError(
            unused,
            f"{unused}={given[unused]} has no use without {CLASS.name}: everybody may do everything. "
            f"Set {CLASS.name}={CLASSES[0]}, or remove it; see docs/security.md",
        )
    return None


def _principals(text: str) -> frozenset[str]:
    found = [each for each in map(str.strip, text.split(";")) if each]
    for each in found:
        if ":" not in each:
            raise ConfigError(SUPER_USERS.name, f"{SUPER_USERS.name}: {each!r} is not TYPE:NAME, as in User:admin")
    return frozenset(found)
