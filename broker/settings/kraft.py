"""Broker settings of KRaft quorums, as in the server.properties of KRaft nodes. Odradek has no KRaft quorum."""

from __future__ import annotations

from odradek.broker.settings.setting import HIGH, STRING, Setting, SettingValues


# fmt: off
class KRaftSettings(SettingValues):
    controller_listener_names = Setting(STRING, None, HIGH,
        doc="The listeners of KRaft controllers; Odradek does not open them, since it has no KRaft quorum.")
