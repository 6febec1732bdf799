"""Broker settings of TLS: keys, trusted certificates, and what connections may use. A listener may have its own value
of each (listener_values.py).
"""

from __future__ import annotations

from odradek.broker.settings.rules import OneOf, Values
from odradek.broker.settings.setting import (
    BOOLEAN,
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
class TlsSettings(SettingValues):
    ssl_allow_dn_changes = Setting(BOOLEAN, False, LOW,
        doc="Whether a certificate that is replaced at run time may be of another distinguished name.")
    ssl_allow_san_changes = Setting(BOOLEAN, False, LOW,
        doc="Whether a certificate that is replaced at run time may lack alternative names of the earlier one.")
    ssl_cipher_suites = Setting(LIST, [], MEDIUM, valid=Values(), update_mode=PER_BROKER, protects=True,
        doc="The allowed cipher suites, by Java's names; an empty list means all that OpenSSL enables.")
    ssl_client_auth = Setting(STRING, "none", MEDIUM, valid=OneOf("required", "requested", "none"),
        update_mode=PER_BROKER, protects=True,
        doc="Whether a client certificate is required, requested or not used.")
    ssl_enabled_protocols = Setting(LIST, ["TLSv1.2", "TLSv1.3"], MEDIUM, valid=Values(), update_mode=PER_BROKER,
        protects=True,
        doc="The allowed TLS versions.")
    ssl_endpoint_identification_algorithm = Setting(STRING, "https", LOW, update_mode=PER_BROKER, protects=True,
        doc="Whether this node verifies the host names of other nodes against their certificates: https, or empty for "
            "no.")
    ssl_key_password = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The password of an encrypted private key in PEM format.")
    ssl_keystore_certificate_chain = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The certificate chain in PEM format, for the key of ssl.keystore.key.")
    ssl_keystore_key = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The private key in PEM format, in place of a keystore file.")
    ssl_keystore_location = Setting(STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The file with this node's key and certificates.")
    ssl_keystore_password = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The password of a keystore file in format PKCS12.")
    ssl_keystore_type = Setting(STRING, "JKS", MEDIUM, update_mode=PER_BROKER,
        doc="The format of the keystore: PEM, PKCS12 or JKS; if not set, that of its content.")
    ssl_principal_mapping_rules = Setting(STRING, "DEFAULT", LOW, protects=True,
        doc="The rules that map a certificate's distinguished name to a user name.")
    ssl_truststore_certificates = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The trusted certificates in PEM format, in place of a truststore file.")
    ssl_truststore_location = Setting(STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The file with trusted certificates; without one, the system's authorities are trusted.")
    ssl_truststore_password = Setting(PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
        doc="The password of a truststore file in format PKCS12.")
    ssl_truststore_type = Setting(STRING, "JKS", MEDIUM, update_mode=PER_BROKER,
        doc="The format of the truststore: PEM, PKCS12 or JKS; if not set, that of its content.")
