"""Broker settings of SASL, how clients log in, and of access control, who may do what."""

from __future__ import annotations

from odradek.broker.settings.rules import NotNull, Values
from odradek.broker.settings.setting import (
    BOOLEAN,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    PER_BROKER,
    STRING,
    Setting,
    SettingValues,
)


# fmt: off
class SaslSettings(SettingValues):
    sasl_enabled_mechanisms = Setting(LIST, ["GSSAPI"], MEDIUM, valid=Values(), update_mode=PER_BROKER, protects=True,
        doc="The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.")
    sasl_jaas_config = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The login module and its options, in JAAS format, of one mechanism of one listener: "
            "listener.name.NAME.MECHANISM.sasl.jaas.config.")
    sasl_mechanism_inter_broker_protocol = Setting(STRING, "GSSAPI", MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The SASL mechanism between nodes; a node that is alone has no use for it.")
    sasl_server_max_receive_size = Setting(INT, 524288, MEDIUM, protects=True,
        doc="The maximum size of a client's message during authentication.")


class SecuritySettings(SettingValues):
    authorizer_class_name = Setting(STRING, "", LOW, valid=NotNull(), protects=True,
        doc="The name of one of Kafka's two authorizers, for Odradek's own; if empty, everybody may do everything.")


class AuthorizerSettings(SettingValues):
    allow_everyone_if_no_acl_found = Setting(BOOLEAN, False, MEDIUM, protects=True,
        doc="Whether everybody may access resources that no ACL concerns.")
    super_users = Setting(STRING, "", MEDIUM, protects=True,
        doc="The principals that may do everything, separated by semicolons: `User:admin;User:CN=broker`.")
