"""Settings of Kafka's own authorizers, which stand in server.properties beside a broker's.

They are no broker settings: Kafka shows and stores them as it does any unknown name. Source: `StandardAuthorizer`.
"""

from __future__ import annotations

from odradek.broker.settings.setting import BOOLEAN, MEDIUM, STRING, Setting

# fmt: off
AUTHORIZER_SETTINGS = (
    Setting("allow.everyone.if.no.acl.found", BOOLEAN, True, MEDIUM, protects=True,
            doc="Whether everybody may use what no ACL speaks of; without an authorizer everybody may."),
    Setting("super.users", STRING, "", MEDIUM, protects=True,
            doc="Principals that may do everything, separated by semicolons."),
)
# fmt: on
