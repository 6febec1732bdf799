"""Broker settings of the connection to ZooKeeper."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, PASSWORD, STRING, Setting

# fmt: off
ZOOKEEPER_SETTINGS = (
    Setting("zookeeper.clientCnxnSocket", STRING, None, MEDIUM,
            doc="Java class of the connection to ZooKeeper; TLS needs a particular one."),
    Setting("zookeeper.connect", STRING, None, HIGH,
            doc="The ZooKeeper servers as host:port list, with an optional path behind it."),
    Setting("zookeeper.connection.timeout.ms", INT, None, HIGH,
            doc="How long connecting to ZooKeeper may take; unset, the session time-out holds."),
    Setting("zookeeper.max.in.flight.requests", INT, 10, HIGH, valid=AtLeast(1),
            doc="Requests to ZooKeeper that may be unanswered at once."),
    Setting("zookeeper.metadata.migration.enable", BOOLEAN, False, HIGH,
            doc="Whether metadata is being moved from ZooKeeper to KRaft."),
    Setting("zookeeper.metadata.migration.min.batch.size", INT, 200, MEDIUM, valid=AtLeast(1), internal=True,
            doc="Least number of records in one step of that move."),
    Setting("zookeeper.session.timeout.ms", INT, 18000, HIGH,
            doc="Silence after which ZooKeeper takes this node for dead."),
    Setting("zookeeper.set.acl", BOOLEAN, False, HIGH, protects=True,
            doc="Whether entries in ZooKeeper are protected by access lists."),
    Setting("zookeeper.ssl.cipher.suites", LIST, None, LOW, protects=True,
            doc="Cipher suites for TLS to ZooKeeper."),
    Setting("zookeeper.ssl.client.enable", BOOLEAN, False, MEDIUM, protects=True,
            doc="Whether connections to ZooKeeper use TLS."),
    Setting("zookeeper.ssl.crl.enable", BOOLEAN, False, LOW, protects=True,
            doc="Whether revocation lists are looked at for TLS to ZooKeeper."),
    Setting("zookeeper.ssl.enabled.protocols", LIST, None, LOW, protects=True,
            doc="TLS versions allowed towards ZooKeeper."),
    Setting("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", LOW, protects=True,
            doc="Whether ZooKeeper's name is compared with its certificate."),
    Setting("zookeeper.ssl.keystore.location", STRING, None, MEDIUM, protects=True,
            doc="File with the key and certificates shown to ZooKeeper."),
    Setting("zookeeper.ssl.keystore.password", PASSWORD, None, MEDIUM, protects=True,
            doc="Password of that file."),
    Setting("zookeeper.ssl.keystore.type", STRING, None, MEDIUM, protects=True,
            doc="Format of that file."),
    Setting("zookeeper.ssl.ocsp.enable", BOOLEAN, False, LOW, protects=True,
            doc="Whether certificate status is asked for with TLS to ZooKeeper."),
    Setting("zookeeper.ssl.protocol", STRING, "TLSv1.2", LOW, protects=True,
            doc="TLS version with which contexts towards ZooKeeper are made."),
    Setting("zookeeper.ssl.truststore.location", STRING, None, MEDIUM, protects=True,
            doc="File with certificates trusted towards ZooKeeper."),
    Setting("zookeeper.ssl.truststore.password", PASSWORD, None, MEDIUM, protects=True,
            doc="Password of the truststore for ZooKeeper."),
    Setting("zookeeper.ssl.truststore.type", STRING, None, MEDIUM, protects=True,
            doc="Format of the truststore for ZooKeeper."),
)
# fmt: on
