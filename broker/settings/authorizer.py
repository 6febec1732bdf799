"""Settings of Kafka's authorizers, which are in server.properties together with the broker's.

They are not broker settings: Kafka shows and stores them like any unknown name. Source: `StandardAuthorizer`.
"""

from __future__ import annotations

from odradek.broker.settings.setting import BOOLEAN, MEDIUM, STRING, Setting

# fmt: off
AUTHORIZER_SETTINGS = (
    Setting("allow.everyone.if.no.acl.found", BOOLEAN, True, MEDIUM, protects=True,
            doc="Whether everybody may access resources without ACLs; without an authorizer, everybody may."),
    Setting("super.users", STRING, "", MEDIUM, protects=True,
            doc="The principals with access to everything, separated by semicolons."),
)
# fmt: on
