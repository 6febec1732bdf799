"""Broker settings of the connection to ZooKeeper."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LOW,
    MEDIUM,
    PASSWORD,
    STRING,
    Setting,
    SettingValues,
)


# fmt: off
class ZooKeeperSettings(SettingValues):
    zookeeper_clientCnxnSocket = Setting(STRING, None, MEDIUM,  # noqa: N815 - Kafka's name
        removed_in="4.0",
        doc="The Java class of the connection to ZooKeeper; TLS requires "
            "org.apache.zookeeper.ClientCnxnSocketNetty, as in Kafka.")
    zookeeper_connect = Setting(STRING, None, HIGH, removed_in="4.0",
        doc="The ZooKeeper servers of the cluster as a list of host:port, followed by an optional path; if not set, "
            "this node is a cluster of its own.")
    zookeeper_connection_timeout_ms = Setting(INT, None, HIGH, removed_in="4.0",
        doc="How long the start waits for ZooKeeper; if not set, the session timeout.")
    zookeeper_max_in_flight_requests = Setting(INT, 10, HIGH, valid=AtLeast(1), removed_in="4.0",
        doc="The maximum number of unanswered requests to ZooKeeper.")
    zookeeper_session_timeout_ms = Setting(INT, 18000, HIGH, removed_in="4.0",
        doc="How long this node may be silent before the metadata store considers it dead.")
    zookeeper_set_acl = Setting(BOOLEAN, False, HIGH, removed_in="4.0",
        doc="Whether only this node's user may change the entries that it creates in ZooKeeper; needs a login or a "
            "certificate, which say who that is.")
    zookeeper_ssl_cipher_suites = Setting(LIST, None, LOW, removed_in="4.0",
        doc="The cipher suites for TLS to ZooKeeper, by Java's names; if not set, all that OpenSSL enables.")
    zookeeper_ssl_client_enable = Setting(BOOLEAN, False, MEDIUM, removed_in="4.0",
        doc="Whether connections to ZooKeeper use TLS; needs zookeeper.clientCnxnSocket.")
    zookeeper_ssl_enabled_protocols = Setting(LIST, None, LOW, removed_in="4.0",
        doc="The TLS versions allowed for connections to ZooKeeper; if not set, zookeeper.ssl.protocol.")
    zookeeper_ssl_endpoint_identification_algorithm = Setting(STRING, "HTTPS", LOW, removed_in="4.0",
        doc="Whether ZooKeeper's host name is verified against its certificate: HTTPS, or empty for no.")
    zookeeper_ssl_keystore_location = Setting(STRING, None, MEDIUM, removed_in="4.0",
        doc="The file with the key and certificates presented to ZooKeeper.")
    zookeeper_ssl_keystore_password = Setting(PASSWORD, None, MEDIUM, removed_in="4.0",
        doc="The password of the keystore for ZooKeeper.")
    zookeeper_ssl_keystore_type = Setting(STRING, None, MEDIUM, removed_in="4.0",
        doc="The format of the keystore for ZooKeeper: PEM, PKCS12 or JKS; if not set, that of its content.")
    zookeeper_ssl_protocol = Setting(STRING, "TLSv1.2", LOW, removed_in="4.0",
        doc="The TLS version of connections to ZooKeeper, unless zookeeper.ssl.enabled.protocols is set.")
    zookeeper_ssl_truststore_location = Setting(STRING, None, MEDIUM, removed_in="4.0",
        doc="The file with the certificates trusted for ZooKeeper; if not set, the system's authorities.")
    zookeeper_ssl_truststore_password = Setting(PASSWORD, None, MEDIUM, removed_in="4.0",
        doc="The password of the truststore for ZooKeeper.")
    zookeeper_ssl_truststore_type = Setting(STRING, None, MEDIUM, removed_in="4.0",
        doc="The format of the truststore for ZooKeeper: PEM, PKCS12 or JKS; if not set, that of its content.")
