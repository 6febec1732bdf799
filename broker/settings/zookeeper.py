"""Broker settings of the connection to ZooKeeper."""

from __future__ import annotations

from odradek.broker.settings.setting import HIGH, INT, Setting, SettingValues


# fmt: off
class ZooKeeperSettings(SettingValues):
    zookeeper_session_timeout_ms = Setting(INT, 18000, HIGH,
        doc="How long this node may be silent before the metadata store considers it dead.")
