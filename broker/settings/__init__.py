"""The settings of brokers and topics: one table, which drives the parsing of server.properties, validation,
DescribeConfigs, AlterConfigs and the page docs/settings.md.

1.  setting.py: a row of the table. rules.py: the rules for values. values.py: from text to values and back.
2.  The rows that take effect, in a class per subject: server.py, network.py, log.py, replication.py,
    coordinators.py, metrics.py, security.py, tls.py, zookeeper.py and odradek.py for brokers, topic.py for topics,
    group.py for groups. Code reads each as an attribute with its type: `config.num_partitions`. The rows that no file
    has are in replication.py.
3.  without_effect.py: all other rows.
4.  checks.py, tls_checks.py, zookeeper_checks.py, sasl_listeners.py, authorizers.py, listeners.py, connect_string.py:
    what rows must fulfil together, and texts with a form of their own.
5.  properties.py, config.py: from a file and flags to `BrokerConfig`, which the whole broker reads. listener_values.py:
    the values of single listeners. tls_stores.py, naming_files.py: the keys and certificates that settings name.
    config_providers.py, provided.py: variables in settings, and what hides their values.
6.  group_values.py, client_metrics.py: the settings of groups and of subscriptions to client metrics.
7.  config_changes.py, config_description.py: the settings as clients change and see them.

A setting that gains an effect moves from without_effect.py to the class of its subject. Callers: every room above it.
"""

from __future__ import annotations

from odradek.broker.settings.coordinators import GroupsSettings, TransactionsSettings
from odradek.broker.settings.group import OwnGroupSettings
from odradek.broker.settings.log import CleanerSettings, LogSettings
from odradek.broker.settings.metrics import MetricsSettings, OwnClientMetricsSettings
from odradek.broker.settings.network import NetworkSettings
from odradek.broker.settings.odradek import OdradekSettings
from odradek.broker.settings.replication import DynamicOnlySettings, ReplicationSettings
from odradek.broker.settings.security import AuthorizerSettings, SaslSettings, SecuritySettings
from odradek.broker.settings.server import KRaftSettings, ServerSettings
from odradek.broker.settings.setting import Setting, SettingType, SettingValues, Synonym, UpdateMode, Value, rows
from odradek.broker.settings.tls import TlsSettings
from odradek.broker.settings.topic import TopicSettings
from odradek.broker.settings.values import ConfigError, parse_value, value_text
from odradek.broker.settings.without_effect import WITHOUT_EFFECT
from odradek.broker.settings.zookeeper import ZooKeeperSettings


class BrokerSettings(
    ServerSettings,
    NetworkSettings,
    LogSettings,
    CleanerSettings,
    ReplicationSettings,
    GroupsSettings,
    TransactionsSettings,
    MetricsSettings,
    SecuritySettings,
    TlsSettings,
    SaslSettings,
    ZooKeeperSettings,
    KRaftSettings,
    OdradekSettings,
):
    """The values of a broker's settings."""

    @property
    def log_dirs(self) -> list[str]:
        """The directories of log.dirs, or else of log.dir."""
        listed = self.log_dir if self.log_dirs_listed is None else self.log_dirs_listed
        return [part for part in listed if part]

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener for connections between brokers: inter.broker.listener.name, or else the one named
        like security.inter.broker.protocol.
        """
        name = self.inter_broker_listener_name
        return self.security_inter_broker_protocol if name is None else name.upper()

    @property
    def broker_listeners(self) -> frozenset[str]:
        """The names of the listeners that serve requests of other brokers: usually only `inter_broker_listener`."""
        other = self.odradek_other_inter_broker_listener_name
        return frozenset({self.inter_broker_listener, *([other.upper()] if other else [])})


_SUBJECTS: dict[str, type[SettingValues]] = {
    "The node": ServerSettings,
    "Listeners and connections": NetworkSettings,
    "Logs": LogSettings,
    "Compaction": CleanerSettings,
    "Replication": ReplicationSettings,
    "Groups": GroupsSettings,
    "Transactions": TransactionsSettings,
    "Metrics": MetricsSettings,
    "Quotas": SettingValues,
    "Security": SecuritySettings,
    "SASL": SaslSettings,
    "TLS": TlsSettings,
    "ZooKeeper": ZooKeeperSettings,
    "KRaft": KRaftSettings,
    "Tiered storage": SettingValues,
    "Odradek's own": OdradekSettings,
}
"""The subjects of broker settings in the order of the documentation, with those that take effect."""


def _by_name(subject: str, effective: type[SettingValues] = SettingValues) -> dict[str, Setting[Value]]:
    """Returns all settings of a subject, sorted."""
    table = {row.name: row for row in rows(effective)} | WITHOUT_EFFECT.get(subject, {})
    return {name: table[name] for name in sorted(table)}


BROKER_GROUPS = {subject: _by_name(subject, effective) for subject, effective in _SUBJECTS.items()}
"""Broker settings by subject, in the order of the documentation, and by name."""

BROKER: dict[str, Setting[Value]] = {name: row for group in BROKER_GROUPS.values() for name, row in group.items()}
"""Broker settings by name, including Odradek's own."""

DYNAMIC_ONLY: dict[str, Setting[Value]] = {row.name: row for row in rows(DynamicOnlySettings)}
"""Broker settings that can be set only while the broker runs, by name."""

TOPIC = _by_name("Topics", TopicSettings)
"""Topic settings by name."""

GROUP = _by_name("Settings of groups", OwnGroupSettings)
"""Settings of groups by name."""

CLIENT_METRICS = _by_name("Settings of client metrics", OwnClientMetricsSettings)
"""Settings of subscriptions to client metrics by name."""

AUTHORIZER = _by_name("Authorizers", AuthorizerSettings)
"""Settings of Kafka's authorizers by name. They are not broker settings: Kafka shows and stores them like any unknown
name (`StandardAuthorizer`).
"""

__all__ = [
    "AUTHORIZER",
    "BROKER",
    "BROKER_GROUPS",
    "CLIENT_METRICS",
    "DYNAMIC_ONLY",
    "GROUP",
    "TOPIC",
    "AuthorizerSettings",
    "BrokerSettings",
    "ConfigError",
    "DynamicOnlySettings",
    "OwnClientMetricsSettings",
    "OwnGroupSettings",
    "Setting",
    "SettingType",
    "Synonym",
    "TlsSettings",
    "TopicSettings",
    "UpdateMode",
    "Value",
    "parse_value",
    "value_text",
]
