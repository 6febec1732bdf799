"""A broker's settings: read from server.properties and flags, validated, layered and typed.

    A   Layers, each overriding the previous ones: Kafka's defaults; settings given at the start (static); dynamic
        settings of the whole cluster; dynamic settings of this broker. A setting also overrides its synonyms in the
        previous layers: a dynamic log.retention.ms wins over a static log.retention.minutes and vice versa.
    B   Without --config, the bundled single-node file is read; with it, only the named file. Flags and --set override
        the file, also under another name of the same setting: --set log.dir overrides the file's log.dirs.
    C   Unknown names are kept (DescribeConfigs shows them) and logged as a warning at the start, as are configured
        settings that have no effect yet. A setting that promises protection which Odradek does not provide prevents the
        broker from starting. If an older release stored it as a dynamic setting, it is ignored.
    D   Each setting that takes effect is an attribute: `config.num_partitions`. Values are replaced when dynamic
        settings change: a cached value misses later changes.
    E   A few settings are in the dynamic layers only (`dynamic_only`). Elsewhere their names are unknown ones.
    F   Settings given at the start may have variables (config_providers.py), which are replaced before anything reads
        them; --port counts after that. Dynamic settings have none.

Source: Kafka's `KafkaConfig`, `DynamicBrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import structlog

from odradek.broker.background.stepwise import Pace, Steps, finished
from odradek.broker.settings import (
    AUTHORIZER,
    BROKER,
    DYNAMIC_ONLY,
    TOPIC,
    BrokerSettings,
    ConfigError,
    DynamicOnlySettings,
    Setting,
    TlsSettings,
    TopicSettings,
    Value,
    parse_value,
    value_text,
)
from odradek.broker.settings.authorizers import CLASSES, AuthorizerValues, authorizer_values, unused_names
from odradek.broker.settings.checks import check_broker_values, check_topic_values
from odradek.broker.settings.config_providers import PROVIDERS, resolve
from odradek.broker.settings.listener_values import LISTENER_PREFIX, listener_value
from odradek.broker.settings.listeners import Listener, read_listeners, with_port
from odradek.broker.settings.properties import parse_properties
from odradek.broker.settings.provided import NOTHING, Provided
from odradek.broker.settings.sasl_listeners import (
    OF_LISTENERS,
    SCRAM,
    SaslListenerSettings,
    check_login_file,
    sasl_listeners,
)
from odradek.broker.settings.setting import rows
from odradek.broker.settings.tls_checks import TlsOfListener, check_listener_tls, is_used_by
from odradek.storage.files import Files, OsFiles
from odradek.storage.log_config import LogConfig

__all__ = ["BrokerConfig", "ConfigError", "load_config"]

SINGLE_NODE_FILE = Path(__file__).parents[1] / "server.properties"
MECHANISM_SETTINGS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""The settings that a listener may have per SASL mechanism: listener.name.{listener}.{mechanism}.{setting}."""
TWO_NAMES = {"log.dir": "log.dirs", "log.dirs": "log.dir", "broker.id": "node.id", "node.id": "broker.id"}
"""Names of the same setting that are not synonyms in Kafka's sense."""
TLS: Mapping[str, Setting[Value]] = {row.name: row for row in rows(TlsSettings)}
RELOADED = (
    TlsSettings.ssl_keystore_location.name,
    TlsSettings.ssl_keystore_type.name,
    TlsSettings.ssl_truststore_location.name,
    TlsSettings.ssl_truststore_type.name,
)
"""The settings of TLS that may change while the broker runs, with the prefix of a listener."""
TIERED_STORAGE = ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable")
"""Topic settings that Kafka refuses without tiered storage."""
_DEFAULTS: MappingProxyType[str, Value] = MappingProxyType({name: setting.default for name, setting in BROKER.items()})
_PLACES: Mapping[str, int] = {name: place for place, name in enumerate(BROKER)}
_NOTHING: Mapping[str, str] = MappingProxyType({})
T = TypeVar("T", bound=Value)

log = structlog.get_logger("broker.config")


def load_config(
    path: str | None = None,
    *,
    port: int | None = None,
    data_dir: str | None = None,
    settings: Iterable[str] = (),
    files: Files | None = None,
    environment: Mapping[str, str] = _NOTHING,
) -> BrokerConfig:
    """Loads the settings of `odradek serve` (B). `settings` are the name=value texts of --set. Variables read `files`
    and `environment` (F). Raises ConfigError.
    """
    overrides = dict(_assignment(text) for text in settings)
    if data_dir is not None:
        overrides["log.dirs"] = data_dir
    file_path = SINGLE_NODE_FILE if path is None else Path(path)
    file = read_properties_file(file_path)
    places = {**dict.fromkeys(file, str(file_path)), **dict.fromkeys(overrides, "--set")}
    texts, provided = resolve(_overridden(file, overrides), files or OsFiles(), environment)
    if port is not None:
        texts["listeners"] = with_port(texts.get("listeners") or value_text(_DEFAULTS["listeners"]) or "", port)
    chosen = {*overrides, *(["listeners"] if port is not None else [])} if path is None else None
    with provided.hiding():
        return BrokerConfig(texts, chosen=chosen, places=places, provided=provided)


def read_properties_file(path: Path) -> dict[str, str]:
    """Returns the names and values of a server.properties. Raises ConfigError, naming the file."""
    try:
        return parse_properties(path.read_bytes())
    except OSError as error:
        raise ConfigError("config", f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError("config", f"{path}: {error}") from error


@cache
def _single_node_file() -> Mapping[str, str]:
    """Returns the settings of the bundled file."""
    return MappingProxyType(read_properties_file(SINGLE_NODE_FILE))


def broker_setting(name: str) -> Setting[Value] | None:
    """Returns the row of a broker setting; for a setting of a listener or its mechanism, the row of the setting after
    the prefix. Returns None for other names.
    """
    setting = BROKER.get(name)
    if setting is None and name.startswith(LISTENER_PREFIX):
        own = name[len(LISTENER_PREFIX) :].partition(".")[2]
        setting = BROKER.get(own) or BROKER.get(next((each for each in MECHANISM_SETTINGS if own.endswith(each)), ""))
    return setting


def is_known_at_start(name: str) -> bool:
    """Whether it is the name of something that a broker is given at its start: a setting of its own, of a listener, of
    the authorizer, or of a config provider.
    """
    return broker_setting(name) is not None or name in AUTHORIZER or name.startswith(PROVIDERS)


def promises_missing_protection(name: str, text: str) -> bool:
    """Whether a value promises protection that Odradek does not provide. Raises ConfigError if such a setting's value
    is invalid.
    """
    setting = broker_setting(name) or AUTHORIZER.get(name)
    return (
        setting is not None
        and setting.is_missing_protection
        and setting.promises_missing_protection(parse_value(setting, text))
    )


def is_fixed_at_start(name: str) -> bool:
    """Whether it is a setting of TLS, SASL or the authorizer that is not replaced while the broker runs: all but the
    files of keys and certificates, with the prefix of a listener.
    """
    if name in AUTHORIZER:
        return True
    setting = broker_setting(name)
    return setting is not None and (
        (setting.name in TLS and not (setting.name in RELOADED and name.startswith(LISTENER_PREFIX)))
        or setting.name in (*OF_LISTENERS, BrokerSettings.sasl_mechanism_inter_broker_protocol.name)
    )


def check_of_listener(name: str, text: str) -> None:
    """Raises ConfigError for a listener.name.{listener}.{setting} with an invalid value."""
    setting = broker_setting(name) if name.startswith(LISTENER_PREFIX) else None
    if setting is not None:
        parse_value(setting, text)


def check_dynamic_only(name: str, text: str) -> None:
    """Raises ConfigError for an invalid value of a setting that can only be dynamic (E)."""
    if name in DYNAMIC_ONLY:
        parse_value(DYNAMIC_ONLY[name], text)


class BrokerConfig(BrokerSettings):
    """The settings of a broker. `static`: the settings given at the start, as text, by name."""

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        chosen: Collection[str] | None = None,
        places: Mapping[str, str] = _NOTHING,
        provided: Provided = NOTHING,
    ) -> None:
        """`chosen`: the names that the user set (default: all), which warnings may list. `places`: the file or flag of
        each name, for messages. `provided`: what came from config providers.
        """
        self.provided = provided
        self.static: Mapping[str, str] = MappingProxyType(_with_both_ids(static))
        self.cluster_wide: Mapping[str, str] = _NOTHING
        self.per_broker: Mapping[str, str] = _NOTHING
        self._chosen = frozenset(static if chosen is None else chosen)
        self._places = places
        self._change_listeners: list[Callable[[frozenset[str]], None]] = []
        _check_of_listeners(self.static)
        self._texts, values, self._topic_defaults = self._layered(_NOTHING, _NOTHING)
        super().__init__(values)
        self.dynamic_only = DynamicOnlySettings(_dynamic_only(_NOTHING, _NOTHING))
        self.listeners: list[Listener] = read_listeners(self, self._texts)
        for listener in self.listeners:
            if listener.uses_tls:
                check_listener_tls(self.tls_of(listener))
        check_login_file(self, self.listeners)
        self._reloaded = [
            f"{LISTENER_PREFIX}{listener.name.lower()}.{name}"
            for listener in self.listeners
            if listener.uses_tls
            for name in RELOADED
        ]

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str]) -> BrokerConfig:
        """Creates a config from names and values, over Kafka's defaults."""
        return cls(settings)

    @classmethod
    def single_node(
        cls,
        overrides: Mapping[str, str] = _NOTHING,
        *,
        files: Files | None = None,
        environment: Mapping[str, str] = _NOTHING,
    ) -> BrokerConfig:
        """Creates a config from the bundled single-node file and overrides. Variables as in `load_config`."""
        texts = _overridden(_single_node_file(), overrides)
        resolved, provided = resolve(texts, files or OsFiles(), environment)
        with provided.hiding():
            return cls(resolved, chosen=overrides, provided=provided)

    @property
    def given(self) -> Mapping[str, str]:
        """All settings that are set in any layer, including unknown names, as text, by name."""
        return self._texts

    def of_listener(self, listener: str, setting: Setting[T], mechanism: str | None = None) -> T:
        """Returns the value of a setting for a listener, and for one of its SASL mechanisms: see `listener_value`."""
        return listener_value(self, self._texts, listener, setting, mechanism)

    def tls_of(self, listener: Listener) -> TlsOfListener:
        """Returns the TLS settings that a listener has now."""
        return TlsOfListener(self, self._texts, listener)

    def tls_with(self, per_broker: Mapping[str, str], listener: Listener) -> TlsOfListener:
        """Returns the TLS settings that a listener would have with this layer of dynamic settings."""
        return TlsOfListener(self, {**self.static, **self.cluster_wide, **per_broker}, listener)

    def sasl_listeners(self) -> list[SaslListenerSettings]:
        """Returns the settings of the listeners whose clients authenticate by SASL. Raises ConfigError."""
        return sasl_listeners(self, self.static, self.listeners)

    @property
    def has_scram(self) -> bool:
        """Whether clients of a listener authenticate by SCRAM, with credentials in the metadata store."""
        return any(each.name in SCRAM for listener in self.sasl_listeners() for each in listener.mechanisms)

    def authorizer(self) -> AuthorizerValues | None:
        """Returns the settings of the authorizer, None if everybody may do everything. Raises ConfigError."""
        return authorizer_values(self, self.static)

    def topic_defaults(self) -> dict[str, Value]:
        """Returns the typed value of every topic setting for a topic without settings of its own."""
        return dict(self._topic_defaults)

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """Returns the typed value of every topic setting for a topic with these settings of its own. Raises
        ConfigError.
        """
        values = self.topic_defaults()
        for name, text in overrides.items():
            setting = TOPIC.get(name)
            if setting is None:
                raise ConfigError(name, f"Unknown topic config name: {name}")
            values[name] = parse_value(setting, text)
        check_topic_values(TopicSettings(values))
        return values

    def check_topic_config(self, overrides: Mapping[str, str]) -> None:
        """Raises ConfigError unless these settings are valid for a topic."""
        values = self.topic_values(overrides)
        for name in TIERED_STORAGE:
            if values[name]:
                raise ConfigError(name, f"{name}=true: Odradek has no tiered storage")

    def log_config(self, topic_overrides: Mapping[str, str] = _NOTHING) -> LogConfig:
        """Returns the log configuration of a topic with these settings of its own. Raises ConfigError."""
        return LogConfig(self.topic_values(topic_overrides))

    # Dynamic settings

    def check_dynamic(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises ConfigError unless all settings are valid with this layer replaced by `settings`.

        Does not check the settings of single listeners; see `check_of_listener`.
        """
        layers = (self.cluster_wide, settings) if per_broker else (settings, self.per_broker)
        texts, values, _ = self._layered(*layers)
        read_listeners(BrokerSettings(values), texts)

    def apply_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        """Replaces the two dynamic layers, then calls the change listeners with the settings whose values have changed.

        An unusable value (stored by an older release, say) is ignored and logged, because the broker must start.
        """
        finished(self.applying(cluster_wide, per_broker))

    def applying(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> Steps[None]:
        """`apply_dynamic` in steps; the layers are replaced in the last one."""
        cluster_wide, per_broker = (yield from self._usable(cluster_wide)), (yield from self._usable(per_broker))
        if (cluster_wide, per_broker) == (self.cluster_wide, self.per_broker):
            return
        before, texts_before = {**self.values, **self.dynamic_only.values}, self._texts
        self._texts, self.values, self._topic_defaults = self._layered(cluster_wide, per_broker)
        self.dynamic_only = DynamicOnlySettings(_dynamic_only(cluster_wide, per_broker))
        self.cluster_wide, self.per_broker = MappingProxyType(cluster_wide), MappingProxyType(per_broker)
        after = {**self.values, **self.dynamic_only.values}
        changed = frozenset(
            [name for name, value in after.items() if before[name] != value]
            + [name for name in self._reloaded if texts_before.get(name) != self._texts.get(name)]
        )
        for listener in self._change_listeners if changed else ():
            listener(changed)

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Registers `listener`, which is called with the names of settings whose values have changed."""
        self._change_listeners.append(listener)

    # Warnings and protection

    def unknown_names(self) -> list[str]:
        """The unknown names that the user set, sorted."""
        return sorted(name for name in self._chosen if not is_known_at_start(name))

    def names_without_effect(self) -> list[str]:
        """The settings that the user set and that have no effect yet, sorted."""
        return sorted(name for name in self._chosen if is_without_effect(name, broker_setting(name)))

    def check_protection(self) -> None:
        """Raises ConfigError if a setting given at the start promises protection that Odradek does not provide, or that
        nothing uses.
        """
        names = sorted(name for name, text in self.static.items() if promises_missing_protection(name, text))
        if names:
            raise ConfigError(
                names[0],
                f"Odradek does not provide the protection that these settings promise: {self._listed(names)}. "
                "Remove them if you do not need it; see docs/security.md",
            )
        names = sorted(name for name, text in self.static.items() if self.is_unused_tls(name, text))
        if names:
            raise ConfigError(
                names[0],
                f"No listener with TLS uses these settings: {self._listed(names)}. "
                "Give a listener the protocol SSL, or remove them; see docs/security.md. (A listener with SASL_SSL "
                "uses ssl.client.auth only with the listener's prefix, and no ssl.principal.mapping.rules.)",
            )
        self.sasl_listeners()
        names = unused_names(self.static) if self.authorizer() is None else []
        if names:
            raise ConfigError(
                names[0],
                f"Without authorizer.class.name, everybody may do everything, and these settings have no use: "
                f"{self._listed(names)}. Set authorizer.class.name={CLASSES[0]}, or remove them; see docs/security.md",
            )

    def _listed(self, names: list[str]) -> str:
        return ", ".join(f"{name} ({self._places[name]})" if name in self._places else name for name in names)

    def is_unused_tls(self, name: str, text: str) -> bool:
        """Whether a value promises TLS, and no listener with TLS uses it."""
        setting = broker_setting(name)
        if setting is None or setting.name not in TLS or not setting.promises_protection(parse_value(setting, text)):
            return False
        with_tls = [each.name.lower() for each in self.listeners if each.uses_tls and is_used_by(each, name)]
        if name in TLS:
            return not with_tls
        return name.removeprefix(LISTENER_PREFIX).partition(".")[0] not in with_tls

    def removed_names(self) -> list[str]:
        """The settings that the user set and that Kafka no longer has, sorted."""
        known = {name: broker_setting(name) for name in self._chosen}
        return sorted(name for name, setting in known.items() if setting is not None and setting.removed_in is not None)

    def warn(self) -> None:
        """Logs one warning each for unknown names, settings that Kafka no longer has, settings without effect, and
        those with a variable that has no value, if there are any.
        """
        if unknown := self.unknown_names():
            log.warning("unknown settings ignored", names=unknown)
        if removed := self.removed_names():
            log.warning("settings are gone from Kafka 4", names=removed)
        if idle := self.names_without_effect():
            log.warning("settings have no effect yet", names=idle)
        if unresolved := self.provided.unresolved:
            log.warning("variables without a value are kept as they are", names=unresolved)

    def _layered(
        self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, Value], dict[str, Value]]:
        """Returns the texts and typed values of all layers together (A), and the defaults of topics. Raises
        ConfigError.

        The cost does not depend on the number of unknown names, because a client may have stored many.
        """
        texts = dict(self.static)
        for layer in (cluster_wide, per_broker):
            for name in _known(layer):
                for synonym in BROKER[name].synonyms:
                    texts.pop(synonym.name, None)
            texts.update(layer)
        values = _DEFAULTS.copy()
        for name in _known(texts):
            values[name] = parse_value(BROKER[name], texts[name])
        topic_defaults = _topic_defaults(values)
        check_broker_values(BrokerSettings(values), TopicSettings(topic_defaults))
        return texts, values, topic_defaults

    def _usable(self, settings: Mapping[str, str]) -> Steps[dict[str, str]]:
        usable: dict[str, str] = {}
        pace = Pace()
        for name, text in settings.items():
            try:
                setting = broker_setting(name) or AUTHORIZER.get(name)
                if setting is not None and setting.promises_missing_protection(parse_value(setting, text)):
                    raise ConfigError(name, f"{name} promises protection that Odradek does not provide")
                if is_fixed_at_start(name):
                    raise ConfigError(name, f"{name} cannot be changed yet while the broker runs")
                if name in BROKER:
                    self._layered(_NOTHING, {name: text})
                check_dynamic_only(name, text)
            except ConfigError as error:
                log.error("stored setting ignored", name=name, reason=str(error))
            else:
                usable[name] = text
            if pace.step_ends():
                yield
        return usable


def _known(texts: Mapping[str, str]) -> list[str]:
    """Returns the names of broker settings, in the order of their table."""
    return sorted(_PLACES.keys() & texts.keys(), key=_PLACES.__getitem__)


def is_without_effect(name: str, setting: Setting[Value] | None) -> bool:
    """Whether a known setting has no effect yet under this name. Of the settings of single listeners, those of TLS and
    SASL have one.
    """
    if setting is None:
        return False
    of_listeners = setting.name in TLS or setting.name in OF_LISTENERS
    return not (setting.takes_effect and (setting.name == name or of_listeners))


def _check_of_listeners(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        check_of_listener(name, text)


def _dynamic_only(cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, setting in DYNAMIC_ONLY.items():
        text = per_broker.get(name, cluster_wide.get(name))
        values[name] = setting.default if text is None else parse_value(setting, text)
    return values


def _topic_defaults(values: Mapping[str, Any]) -> dict[str, Value]:
    """Derives topic defaults: the first synonym with a value, times its multiplier. A negative retention becomes -1."""
    defaults: dict[str, Value] = {}
    for setting in TOPIC.values():
        defaults[setting.name] = setting.default
        for synonym in setting.synonyms:
            value = values[synonym.name]
            if value is not None:
                defaults[setting.name] = value * synonym.multiplier if synonym.multiplier != 1 else value
                break
    if defaults["retention.ms"] < 0:  # type: ignore[operator]
        defaults["retention.ms"] = -1
    return defaults


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """Sets broker.id and node.id to the same value if only one of the two is set."""
    texts = dict(static)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in texts:
            texts.setdefault(other, texts[name])
    return texts


def _overridden(file: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the file's settings with the overrides applied, without other names of overridden settings (B)."""
    texts = dict(file)
    for name in overrides:
        for synonym in BROKER[name].synonyms if name in BROKER else ():
            texts.pop(synonym.name, None)
        texts.pop(TWO_NAMES.get(name, name), None)
    return {**texts, **overrides}


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError("--set", f"--set {text}: expected name=value")
    return name.strip(), value
