"""Broker settings of SASL: how clients of a listener authenticate."""

from __future__ import annotations

from odradek.broker.settings.setting import INT, LIST, MEDIUM, PASSWORD, PER_BROKER, STRING, Setting, SettingValues


# fmt: off
class SaslSettings(SettingValues):
    sasl_enabled_mechanisms = Setting(LIST, ["GSSAPI"], MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512.")
    sasl_jaas_config = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The login module and its options, in JAAS format, of one mechanism of one listener: "
            "listener.name.NAME.MECHANISM.sasl.jaas.config.")
    sasl_mechanism_inter_broker_protocol = Setting(STRING, "GSSAPI", MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The SASL mechanism between nodes; a node that is alone has no use for it.")
    sasl_server_max_receive_size = Setting(INT, 524288, MEDIUM, protects=True,
        doc="The maximum size of a client's message during authentication.")
