"""Broker settings of quotas."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import CLASS, INT, LOW, Setting

# fmt: off
QUOTAS_SETTINGS = (
    Setting("alter.log.dirs.replication.quota.window.num", INT, 11, LOW, valid=AtLeast(1),
            doc="The number of samples for the quota on moves between log directories."),
    Setting("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, LOW, valid=AtLeast(1),
            doc="The length of one sample of the quota on moves between log directories."),
    Setting("client.quota.callback.class", CLASS, None, LOW, protects=True,
            doc="The class that determines client quotas; Odradek loads no Java classes."),
    Setting("controller.quota.window.num", INT, 11, LOW, valid=AtLeast(1),
            doc="The number of samples for the quota on changes of topics."),
    Setting("controller.quota.window.size.seconds", INT, 1, LOW, valid=AtLeast(1),
            doc="The length of one sample of the quota on changes of topics."),
    Setting("quota.window.num", INT, 11, LOW, valid=AtLeast(1),
            doc="The number of samples for client quotas."),
    Setting("quota.window.size.seconds", INT, 1, LOW, valid=AtLeast(1),
            doc="The length of one sample of client quotas."),
    Setting("replication.quota.window.num", INT, 11, LOW, valid=AtLeast(1),
            doc="The number of samples for the replication quota."),
    Setting("replication.quota.window.size.seconds", INT, 1, LOW, valid=AtLeast(1),
            doc="The length of one sample of the replication quota."),
)
# fmt: on
