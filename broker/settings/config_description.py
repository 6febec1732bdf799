"""Settings as clients see them: the value, its source, and its synonyms.

    A   A broker setting's synonyms are listed by layer (this broker's dynamic, the cluster's dynamic, static, default),
        and within a layer in their own order. Synonyms before the first one that has the setting's own name are
        omitted, and the first remaining one determines the source.
    B   A topic setting's list contains its own value, if it has one, followed by the list of the first broker setting
        that supplies its default.
    C   The values of passwords are not shown, nor the values of unknown names, which might be passwords, nor texts that
        came from a config provider (provided.py).
    D   Internal settings are shown only if they were set, and so are those without effect that Kafka no longer has.
    E   A group's list is as a topic's, and has the default of a setting that no broker setting supplies. The list of a
        subscription to client metrics has only its own value.

Source: Kafka's `ConfigHelper`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from odradek.broker.settings import (
    BROKER,
    CLIENT_METRICS,
    DYNAMIC_ONLY,
    GROUP,
    TOPIC,
    ConfigError,
    Setting,
    UpdateMode,
    Value,
    parse_value,
    value_text,
)
from odradek.broker.settings.config import BrokerConfig, broker_setting
from odradek.broker.settings.group_values import group_default
from odradek.broker.settings.listener_values import LISTENER_PREFIX

T = TypeVar("T")


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


class ConfigSynonym(NamedTuple):
    """One value in a list of synonyms; None if it is hidden."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigDescription(NamedTuple):
    """One setting as shown to clients. `type` is the number of a SettingType, 0 for an unknown name."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    synonyms: list[ConfigSynonym]
    type: int
    documentation: str | None


class TopicDescriptions(Generic[T]):
    """The descriptions of many topics' settings, for one response.

    Values that topics share are described once, and `shown` converts each description once to its form in the response,
    so that another topic costs a list of references.
    """

    def __init__(
        self, config: BrokerConfig, shown: Callable[[ConfigDescription], T], inherited: dict[str, T] | None = None
    ) -> None:
        """`inherited`: descriptions of inherited settings that earlier responses made with the same `shown`, by name;
        those of this response are added.
        """
        self._config = config
        self._defaults = config.topic_defaults()
        self._shown = shown
        self._inherited = {} if inherited is None else inherited
        self._own: dict[tuple[str, str], T] = {}

    def of(self, overrides: Mapping[str, str], names: Collection[str] | None = None) -> list[T]:
        """Returns a topic's settings (all, or those of `names`), sorted (D). `overrides`: the topic's own settings.
        Topics may share a list.

        Raises ConfigError for a stored value that does not have its setting's type.
        """
        if not overrides and names is None:
            return self._all_inherited
        return [
            self._own_one(name, overrides[name]) if name in overrides else self._inherited_one(name)
            for name in sorted(TOPIC if names is None else TOPIC.keys() & names)
            if name in overrides or not TOPIC[name].is_hidden
        ]

    @cached_property
    def _all_inherited(self) -> list[T]:
        return [self._inherited_one(name) for name in sorted(TOPIC) if not TOPIC[name].is_hidden]

    def _inherited_one(self, name: str) -> T:
        known = self._inherited.get(name)
        if known is None:
            value = value_text(self._defaults[name])
            known = self._inherited[name] = self._shown(_own_description(self._config, TOPIC[name], value, None))
        return known

    def _own_one(self, name: str, text: str) -> T:
        known = self._own.get((name, text))
        if known is None:
            value = value_text(parse_value(TOPIC[name], text))
            described = _own_description(self._config, TOPIC[name], value, ConfigSource.TOPIC_CONFIG)
            known = self._own[name, text] = self._shown(described)
        return known


class InheritedDescriptions(Generic[T]):
    """The descriptions of settings that topics inherit, kept from response to response while the broker's settings
    remain the same.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._given = config.given
        self._known: dict[str, T] = {}

    def current(self) -> dict[str, T]:
        """Returns the descriptions that are known for the present settings, by name, to be added to."""
        if self._given is not self._config.given:
            self._given, self._known = self._config.given, {}
        return self._known


def shown_settings(config: BrokerConfig) -> set[str]:
    """The names in a description of the broker: settings (D), and unknown names that were set."""
    return {name for name, setting in BROKER.items() if not setting.is_hidden} | config.given.keys()


def describe_broker_setting(config: BrokerConfig, name: str) -> ConfigDescription:
    """Describes one of `shown_settings`."""
    return _broker_description(config, name, _broker_synonyms(config, name))


def describe_cluster_setting(config: BrokerConfig, name: str) -> ConfigDescription:
    """Describes one of the dynamic settings of the whole cluster, `config.cluster_wide`."""
    synonyms = [
        synonym
        for synonym in _broker_synonyms(config, name)
        if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    ]
    description = _broker_description(config, name, synonyms)
    return description._replace(value=None if description.is_sensitive else config.cluster_wide[name])


def describe_group_settings(config: BrokerConfig, own: Mapping[str, str]) -> list[ConfigDescription]:
    """Describes the settings of a group that has these of its own, sorted (D, E)."""
    described = []
    for name, setting in GROUP.items():
        default = value_text(group_default(setting, config))
        if name in own:
            each = _own_description(config, setting, _as_shown(setting, own[name]), ConfigSource.GROUP_CONFIG)
        else:
            each = _own_description(config, setting, default, None)
        if not setting.synonyms and default is not None:
            each.synonyms.append(ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG))
        if name in own or not setting.internal:
            described.append(each)
    return described


def describe_client_metrics(config: BrokerConfig, own: Mapping[str, str]) -> list[ConfigDescription]:
    """Describes a subscription that has these settings, sorted (E)."""
    return [
        _own_description(config, setting, _as_shown(setting, own[name]), ConfigSource.CLIENT_METRICS_CONFIG)
        if name in own
        else _own_description(config, setting, value_text(setting.default), None)
        for name, setting in CLIENT_METRICS.items()
    ]


def _as_shown(setting: Setting[Value], text: str) -> str | None:
    """A stored text that has not the setting's type is shown as it is."""
    try:
        return value_text(parse_value(setting, text))
    except ConfigError:
        return text


def _own_description(
    config: BrokerConfig, setting: Setting[Value], value: str | None, own: ConfigSource | None
) -> ConfigDescription:
    """Describes a setting of a topic or group (B). `own`: the source if it has the value itself."""
    synonyms = _broker_synonyms(config, setting.synonyms[0].name) if setting.synonyms else []
    if own is not None:
        synonyms.insert(0, ConfigSynonym(setting.name, value, own))
    return ConfigDescription(
        setting.name,
        value,
        _source(synonyms),
        read_only=False,
        is_sensitive=setting.is_sensitive,
        synonyms=synonyms,
        type=setting.type.number,
        documentation=setting.documentation,
    )


def _broker_description(config: BrokerConfig, name: str, synonyms: list[ConfigSynonym]) -> ConfigDescription:
    setting = broker_setting(name) or DYNAMIC_ONLY.get(name)
    is_sensitive = setting is None or setting.is_sensitive or _is_hidden_source(synonyms)
    value = value_text(config.values[name]) if name in BROKER else config.given[name]
    is_dynamic = name in BROKER and BROKER[name].update_mode is not UpdateMode.READ_ONLY
    return ConfigDescription(
        name,
        None if is_sensitive else value,
        _source(synonyms),
        read_only=not is_dynamic,
        is_sensitive=is_sensitive,
        synonyms=synonyms,
        type=0 if setting is None else setting.type.number,
        documentation=None if setting is None or name in DYNAMIC_ONLY else setting.documentation,
    )


def _broker_synonyms(config: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """Returns a broker setting's synonyms (A)."""
    setting = broker_setting(name) or DYNAMIC_ONLY.get(name)
    names = [name]
    if setting is not None and setting.synonyms:
        names = [synonym.name for synonym in setting.synonyms]
    elif setting is not None and name.startswith(LISTENER_PREFIX):
        names.append(setting.name)
    layers: tuple[tuple[ConfigSource, Mapping[str, str]], ...] = (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, config.per_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, config.cluster_wide),
        (ConfigSource.STATIC_BROKER_CONFIG, config.static),
    )
    is_hidden = setting is None or setting.is_sensitive

    def shown(each: str, layer: Mapping[str, str]) -> str | None:
        is_secret = layer is config.static and setting is not None and config.provided.hides(each, setting)
        return None if is_hidden or is_secret else layer[each]

    synonyms = [
        ConfigSynonym(each, shown(each, layer), source) for source, layer in layers for each in names if each in layer
    ]
    for each in names:
        default = value_text(BROKER[each].default) if each in BROKER else None
        if default is not None:
            synonyms.append(ConfigSynonym(each, None if is_hidden else default, ConfigSource.DEFAULT_CONFIG))
    while synonyms and synonyms[0].name != name:
        del synonyms[0]
    return synonyms


def _is_hidden_source(synonyms: list[ConfigSynonym]) -> bool:
    """Whether the value in effect is one that is hidden."""
    return bool(synonyms) and synonyms[0].value is None


def _source(synonyms: list[ConfigSynonym]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG
