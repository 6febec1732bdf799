"""Broker settings of the connection to ZooKeeper."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, STRING, Setting

# fmt: off
ZOOKEEPER_SETTINGS = (
    Setting("zookeeper.clientCnxnSocket", STRING, None, MEDIUM,
            doc="The Java class of the connection to ZooKeeper; TLS requires a particular one."),
    Setting("zookeeper.connect", STRING, None, HIGH,
            doc="The ZooKeeper servers as a list of host:port, followed by an optional path."),
    Setting("zookeeper.connection.timeout.ms", INT, None, HIGH,
            doc="The timeout for connecting to ZooKeeper; if not set, the session timeout."),
    Setting("zookeeper.max.in.flight.requests", INT, 10, HIGH, valid=AtLeast(1),
            doc="The maximum number of unanswered requests to ZooKeeper."),
    Setting("zookeeper.metadata.migration.enable", BOOLEAN, False, HIGH,
            doc="Whether metadata is being migrated from ZooKeeper to KRaft."),
    Setting("zookeeper.metadata.migration.min.batch.size", INT, 200, MEDIUM, valid=AtLeast(1), internal=True,
            doc="The minimum number of records in one batch of the migration from ZooKeeper to KRaft."),
    Setting("zookeeper.session.timeout.ms", INT, 18000, HIGH, takes_effect=True,
            doc="How long this node may be silent before the metadata store considers it dead."),
    Setting("zookeeper.set.acl", BOOLEAN, False, HIGH, protects=True,
            doc="Whether entries in ZooKeeper are protected by ACLs."),
    Setting("zookeeper.ssl.cipher.suites", LIST, None, LOW, protects=True,
            doc="The cipher suites for TLS to ZooKeeper."),
    Setting("zookeeper.ssl.client.enable", BOOLEAN, False, MEDIUM, protects=True,
            doc="Whether connections to ZooKeeper use TLS."),
    Setting("zookeeper.ssl.crl.enable", BOOLEAN, False, LOW, protects=True,
            doc="Whether certificate revocation lists are checked for TLS to ZooKeeper."),
    Setting("zookeeper.ssl.enabled.protocols", LIST, None, LOW, protects=True,
            doc="The TLS versions allowed for connections to ZooKeeper."),
    Setting("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", LOW, protects=True,
            doc="Whether ZooKeeper's host name is verified against its certificate."),
    Setting("zookeeper.ssl.keystore.location", STRING, None, MEDIUM, protects=True,
            doc="The file with the key and certificates presented to ZooKeeper."),
    Setting("zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM, protects=True,
            doc="The password of the keystore for ZooKeeper."),
    Setting("zookeeper.ssl.keystore.type", STRING, None, MEDIUM,
            doc="The format of the keystore for ZooKeeper."),
    Setting("zookeeper.ssl.ocsp.enable", BOOLEAN, False, LOW, protects=True,
            doc="Whether certificate status is checked online (OCSP) for TLS to ZooKeeper."),
    Setting("zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW, protects=True,
            doc="The TLS version of contexts for connections to ZooKeeper."),
    Setting("zookeeper.ssl.truststore.location", STRING, None, MEDIUM, protects=True,
            doc="The file with the certificates trusted for ZooKeeper."),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM, protects=True,
            doc="The password of the truststore for ZooKeeper."),
    Setting("zookeeper.ssl.truststore.type", STRING, None, MEDIUM,
            doc="The format of the truststore for ZooKeeper."),
)
# fmt: on
