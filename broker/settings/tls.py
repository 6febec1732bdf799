"""Broker settings of TLS."""

from __future__ import annotations

from odradek.broker.settings.rules import OneOf
from odradek.broker.settings.setting import BOOLEAN, CLASS, LIST, LOW, MEDIUM, PASSWORD, PER_BROKER, STRING, Setting

# fmt: off
TLS_SETTINGS = (
    Setting("ssl.allow.dn.changes", BOOLEAN, False, LOW,
            doc="Whether a keystore changed at run time may carry another distinguished name."),
    Setting("ssl.allow.san.changes", BOOLEAN, False, LOW,
            doc="Whether a keystore changed at run time may carry other alternative names."),
    Setting("ssl.cipher.suites", LIST, [], MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Cipher suites that are allowed; none named means all that the library offers."),
    Setting("ssl.client.auth", STRING, "none", MEDIUM, valid=OneOf("required", "requested", "none"),
            update_mode=PER_BROKER, protects=True,
            doc="Whether clients must, may or need not show a certificate."),
    Setting("ssl.enabled.protocols", LIST, ["TLSv1.2", "TLSv1.3"], MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="TLS versions that are allowed."),
    Setting("ssl.endpoint.identification.algorithm", STRING, "https", LOW, update_mode=PER_BROKER, protects=True,
            doc="How a server's name is compared with its certificate; empty switches that off."),
    Setting("ssl.engine.factory.class", CLASS, None, LOW, update_mode=PER_BROKER, protects=True,
            doc="Java class that makes TLS engines."),
    Setting("ssl.key.password", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Password of the private key."),
    Setting("ssl.keymanager.algorithm", STRING, "SunX509", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Java's key manager algorithm."),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Certificate chain in PEM form."),
    Setting("ssl.keystore.key", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Private key in PEM form."),
    Setting("ssl.keystore.location", STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="File with this node's key and certificates."),
    Setting("ssl.keystore.password", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Password of the keystore file."),
    Setting("ssl.keystore.type", STRING, "JKS", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Format of the keystore file."),
    Setting("ssl.principal.mapping.rules", STRING, "DEFAULT", LOW, protects=True,
            doc="Rules that shorten a certificate's distinguished name to a user name."),
    Setting("ssl.protocol", STRING, "TLSv1.3", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="TLS version with which contexts are made."),
    Setting("ssl.provider", STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Java's security provider for TLS."),
    Setting("ssl.secure.random.implementation", STRING, None, LOW, update_mode=PER_BROKER, protects=True,
            doc="Java's source of random numbers for TLS."),
    Setting("ssl.trustmanager.algorithm", STRING, "PKIX", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Java's trust manager algorithm."),
    Setting("ssl.truststore.certificates", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Trusted certificates in PEM form."),
    Setting("ssl.truststore.location", STRING, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="File with trusted certificates."),
    Setting("ssl.truststore.password", PASSWORD, None, MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Password of the truststore file."),
    Setting("ssl.truststore.type", STRING, "JKS", MEDIUM, update_mode=PER_BROKER, protects=True,
            doc="Format of the truststore file."),
)
# fmt: on
