"""Broker settings of TLS."""

from __future__ import annotations

from odradek.broker.settings.rules import OneOf
from odradek.broker.settings.setting import BOOLEAN, CLASS, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING, Setting

# fmt: off
TLS_SETTINGS = (
    Setting("ssl.allow.dn.changes", BOOLEAN, False, LOW,
            doc="Whether a keystore that is replaced at run time may have another distinguished name."),
    Setting("ssl.allow.san.changes", BOOLEAN, False, LOW,
            doc="Whether a keystore that is replaced at run time may have other alternative names."),
    Setting("ssl.cipher.suites", LIST, [], MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The allowed cipher suites; an empty list means all that the library supports."),
    Setting("ssl.client.auth", STRING, "none", MEDIUM, valid=OneOf("required", "requested", "none"),
            update_mode=PER_BROKER, protects=True,
            doc="Whether a client certificate is required, requested or not used."),
    Setting("ssl.enabled.protocols", LIST, ["TLSv1.2", "TLSv1.3"], MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The allowed TLS versions."),
    Setting("ssl.endpoint.identification.algorithm", STRING, "https", LOW, update_mode=PER_BROKER, protects=True,
            doc="How a server's host name is verified against its certificate; empty disables verification."),
    Setting("ssl.engine.factory.class", CLASS, None, LOW, update_mode=PER_BROKER, protects=True,
            doc="The Java class that creates TLS engines."),
    Setting("ssl.key.password", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The password of the private key."),
    Setting("ssl.keymanager.algorithm", STRING, "SunX509", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Java's key manager algorithm."),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The certificate chain in PEM format."),
    Setting("ssl.keystore.key", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The private key in PEM format."),
    Setting("ssl.keystore.location", STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The file with this node's key and certificates."),
    Setting("ssl.keystore.password", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The password of the keystore file."),
    Setting("ssl.keystore.type", STRING, "JKS", MEDIUM, update_mode=PER_BROKER,
            doc="The format of the keystore file."),
    Setting("ssl.principal.mapping.rules", STRING, "DEFAULT", LOW, protects=True,
            doc="The rules that map a certificate's distinguished name to a user name."),
    Setting("ssl.protocol", STRING, "TLSv1.3", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The TLS version of contexts."),
    Setting("ssl.provider", STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Java's security provider for TLS."),
    Setting("ssl.secure.random.implementation", STRING, None, LOW, update_mode=PER_BROKER, protects=True,
            doc="Java's source of random numbers for TLS."),
    Setting("ssl.trustmanager.algorithm", STRING, "PKIX", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Java's trust manager algorithm."),
    Setting("ssl.truststore.certificates", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The trusted certificates in PEM format."),
    Setting("ssl.truststore.location", STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The file with trusted certificates."),
    Setting("ssl.truststore.password", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="The password of the truststore file."),
    Setting("ssl.truststore.type", STRING, "JKS", MEDIUM, update_mode=PER_BROKER,
            doc="The format of the truststore file."),
)
# fmt: on
