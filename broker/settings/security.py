"""Broker settings of access control: who may do what."""

from __future__ import annotations

from odradek.broker.settings.rules import NotNull
from odradek.broker.settings.setting import BOOLEAN, LOW, MEDIUM, STRING, Setting, SettingValues


# fmt: off
class SecuritySettings(SettingValues):
    authorizer_class_name = Setting(STRING, "", LOW, valid=NotNull(), protects=True,
        doc="The name of one of Kafka's two authorizers, for Odradek's own; if empty, everybody may do everything.")


class AuthorizerSettings(SettingValues):
    allow_everyone_if_no_acl_found = Setting(BOOLEAN, False, MEDIUM, protects=True,
        doc="Whether everybody may access resources that no ACL concerns.")
    super_users = Setting(STRING, "", MEDIUM, protects=True,
        doc="The principals that may do everything, separated by semicolons: `User:admin;User:CN=broker`.")
