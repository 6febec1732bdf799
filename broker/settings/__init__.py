"""The table of all settings, in files by subject.

It drives the parsing of server.properties, validation, DescribeConfigs, AlterConfigs and the page docs/settings.md.

    setting.py               one row of the table; values.py: its type, rules.py: its valid values
    config.py                the settings of a broker: read, layered, checked, typed
    checks.py                settings against each other
    config_changes.py        changes while the broker runs
    config_description.py    settings as clients see them
    properties.py            Java's property files
    listeners.py             listeners and advertised listeners

The rows by subject: server.py, network.py, log.py, topic.py, cleaner.py, replication.py, groups.py, transactions.py,
metrics.py, odradek.py; without effect, or refused: authorizer.py, kraft.py, quotas.py, remote.py, sasl.py, security.py,
tls.py, zookeeper.py.

Callers: every room above it.
"""

from __future__ import annotations

from odradek.broker.settings.authorizer import AUTHORIZER_SETTINGS
from odradek.broker.settings.cleaner import CLEANER_SETTINGS
from odradek.broker.settings.groups import GROUPS_SETTINGS
from odradek.broker.settings.kraft import KRAFT_SETTINGS
from odradek.broker.settings.log import LOG_SETTINGS
from odradek.broker.settings.metrics import METRICS_SETTINGS
from odradek.broker.settings.network import NETWORK_SETTINGS
from odradek.broker.settings.odradek import ODRADEK_SETTINGS
from odradek.broker.settings.quotas import QUOTAS_SETTINGS
from odradek.broker.settings.remote import REMOTE_SETTINGS
from odradek.broker.settings.replication import REPLICATION_SETTINGS
from odradek.broker.settings.sasl import SASL_SETTINGS
from odradek.broker.settings.security import SECURITY_SETTINGS
from odradek.broker.settings.server import SERVER_SETTINGS
from odradek.broker.settings.setting import Setting, SettingType, Synonym, UpdateMode, Value
from odradek.broker.settings.tls import TLS_SETTINGS
from odradek.broker.settings.topic import TOPIC_SETTINGS
from odradek.broker.settings.transactions import TRANSACTIONS_SETTINGS
from odradek.broker.settings.values import ConfigError, parse_value, value_text
from odradek.broker.settings.zookeeper import ZOOKEEPER_SETTINGS

BROKER_GROUPS = {
    "The node": SERVER_SETTINGS,
    "Listeners and connections": NETWORK_SETTINGS,
    "Logs": LOG_SETTINGS,
    "Compaction": CLEANER_SETTINGS,
    "Replication": REPLICATION_SETTINGS,
    "Groups": GROUPS_SETTINGS,
    "Transactions": TRANSACTIONS_SETTINGS,
    "Metrics": METRICS_SETTINGS,
    "Quotas": QUOTAS_SETTINGS,
    "Security": SECURITY_SETTINGS,
    "SASL": SASL_SETTINGS,
    "TLS": TLS_SETTINGS,
    "ZooKeeper": ZOOKEEPER_SETTINGS,
    "KRaft": KRAFT_SETTINGS,
    "Tiered storage": REMOTE_SETTINGS,
    "Odradek's own": ODRADEK_SETTINGS,
}
"""Broker settings by subject, in the order of the documentation."""

TOPIC: dict[str, Setting] = {setting.name: setting for setting in TOPIC_SETTINGS}
"""Topic settings by name."""

BROKER: dict[str, Setting] = {setting.name: setting for group in BROKER_GROUPS.values() for setting in group}
"""Broker settings by name, including Odradek's own."""

AUTHORIZER: dict[str, Setting] = {setting.name: setting for setting in AUTHORIZER_SETTINGS}
"""Settings of Kafka's authorizers by name."""

__all__ = [
    "AUTHORIZER",
    "AUTHORIZER_SETTINGS",
    "BROKER",
    "BROKER_GROUPS",
    "TOPIC",
    "ConfigError",
    "Setting",
    "SettingType",
    "Synonym",
    "UpdateMode",
    "Value",
    "parse_value",
    "value_text",
]
