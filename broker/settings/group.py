"""Settings of groups (KIP-848, KIP-1240). Their synonyms are the broker settings that supply the defaults."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import INT, MEDIUM, Setting, SettingValues, Synonym


# fmt: off
class OwnGroupSettings(SettingValues):
    consumer_assignment_interval_ms = Setting(INT, 1000, MEDIUM, valid=AtLeast(0),
        synonyms=(Synonym("group.consumer.assignment.interval.ms"),),
        doc="The least time between two target assignments of the group.")
    consumer_heartbeat_interval_ms = Setting(INT, 5000, MEDIUM, valid=AtLeast(1),
        synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
        doc="The heartbeat interval of the group's members.")
    consumer_session_timeout_ms = Setting(INT, 45000, MEDIUM, valid=AtLeast(1),
        synonyms=(Synonym("group.consumer.session.timeout.ms"),),
        doc="How long a member may be silent before the group removes it.")
