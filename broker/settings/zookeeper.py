"""Broker settings of the connection to ZooKeeper."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import HIGH, INT, STRING, Setting, SettingValues


# fmt: off
class ZooKeeperSettings(SettingValues):
    zookeeper_connect = Setting(STRING, None, HIGH,
        doc="The ZooKeeper servers of the cluster as a list of host:port, followed by an optional path; if not set, "
            "this node is a cluster of its own.")
    zookeeper_connection_timeout_ms = Setting(INT, None, HIGH,
        doc="How long the start waits for ZooKeeper; if not set, the session timeout.")
    zookeeper_max_in_flight_requests = Setting(INT, 10, HIGH, valid=AtLeast(1),
        doc="The maximum number of unanswered requests to ZooKeeper.")
    zookeeper_session_timeout_ms = Setting(INT, 18000, HIGH,
        doc="How long this node may be silent before the metadata store considers it dead.")
