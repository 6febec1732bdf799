"""A broker's settings: read from server.properties and flags, checked, layered and typed.

    A   Layers, each over the one before: Kafka's defaults; what was given at the start (static); dynamic settings of
        the whole cluster; dynamic settings of this broker. A setting also hides its synonyms of the layers before: a
        dynamic log.retention.ms wins over a static log.retention.minutes and the other way round.
    B   Without --config the single-node file that comes with Odradek counts, with it only the file named. Flags and
        --set override either, also where the file has the other name of a thing: --set log.dir hides its log.dirs.
    C   Names that are none are kept (DescribeConfigs shows them) and named in a warning at the start, and so are
        settings that were set and change nothing yet. One that promises protection which is not there keeps the broker
        from starting; an older release may have stored it as a dynamic setting, which is left out.
    D   `config[name]` is typed and always there. Values are replaced when dynamic settings change: whoever keeps one
        keeps the old one.

Source: Kafka's `KafkaConfig`, `DynamicBrokerConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog

from odradek.broker.settings import AUTHORIZER, BROKER, TOPIC, ConfigError, Setting, Value, parse_value
from odradek.broker.settings.checks import check_broker_values, check_topic_values
from odradek.broker.settings.listeners import Listener, read_listeners, with_port
from odradek.broker.settings.properties import parse_properties
from odradek.storage.log_config import LogConfig

__all__ = ["BrokerConfig", "ConfigError", "load_config"]

SINGLE_NODE_FILE = Path(__file__).parents[1] / "server.properties"
LISTENER_PREFIX = "listener.name."
MECHANISM_SETTINGS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
"""What a listener may have for each SASL mechanism: listener.name.{listener}.{mechanism}.{setting}."""
TWO_NAMES = {"log.dir": "log.dirs", "log.dirs": "log.dir", "broker.id": "node.id", "node.id": "broker.id"}
"""Names of one thing that are no synonyms in Kafka's sense."""
TIERED_STORAGE = ("remote.storage.enable", "remote.log.copy.disable", "remote.log.delete.on.disable")
"""Topic settings that Kafka refuses without tiered storage."""
_DEFAULTS: Mapping[str, Value] = MappingProxyType({name: setting.default for name, setting in BROKER.items()})
_NOTHING: Mapping[str, str] = MappingProxyType({})

log = structlog.get_logger("broker.config")


def load_config(
    path: str | None = None, *, port: int | None = None, data_dir: str | None = None, settings: Iterable[str] = ()
) -> BrokerConfig:
    """The settings of `odradek serve` (B). `settings` are --set's name=value texts. Raises ConfigError."""
    overrides = dict(_assignment(text) for text in settings)
    if data_dir is not None:
        overrides["log.dirs"] = data_dir
    file_path = SINGLE_NODE_FILE if path is None else Path(path)
    file = read_properties_file(file_path)
    places = {**dict.fromkeys(file, str(file_path)), **dict.fromkeys(overrides, "--set")}
    if port is not None:
        listeners = overrides.get("listeners") or file.get("listeners") or str(_DEFAULTS["listeners"])
        overrides["listeners"] = with_port(listeners, port)
    return BrokerConfig(_overridden(file, overrides), chosen=overrides if path is None else None, places=places)


def read_properties_file(path: Path) -> dict[str, str]:
    """Names and values of a server.properties. Raises ConfigError, naming the file."""
    try:
        return parse_properties(path.read_bytes())
    except OSError as error:
        raise ConfigError("config", f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError("config", f"{path}: {error}") from error


def broker_setting(name: str) -> Setting | None:
    """The row of a broker setting; of a listener's own (and its mechanisms'), that of the setting behind the prefix.

    None for other names.
    """
    setting = BROKER.get(name)
    if setting is None and name.startswith(LISTENER_PREFIX):
        own = name[len(LISTENER_PREFIX) :].partition(".")[2]
        setting = BROKER.get(own) or BROKER.get(next((each for each in MECHANISM_SETTINGS if own.endswith(each)), ""))
    return setting


def promises_in_vain(name: str, text: str) -> bool:
    """Whether a value promises protection that is not there. Raises ConfigError if such a setting cannot have it."""
    setting = broker_setting(name) or AUTHORIZER.get(name)
    return setting is not None and setting.is_vain and setting.promises_in_vain(parse_value(setting, text))


def check_of_listener(name: str, text: str) -> None:
    """Raises ConfigError for a listener.name.{listener}.{setting} whose value will not do."""
    setting = broker_setting(name) if name.startswith(LISTENER_PREFIX) else None
    if setting is not None:
        parse_value(setting, text)


class BrokerConfig:
    """See the file's head. `static`: what was given at the start, as text, by name."""

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        chosen: Collection[str] | None = None,
        places: Mapping[str, str] = _NOTHING,
    ) -> None:
        """`chosen`: the names that the user picked (all of them unless said), which a warning may name. `places`: the
        file or flag that a name comes from, for messages.
        """
        self.static: Mapping[str, str] = MappingProxyType(_with_both_ids(static))
        self.cluster_wide: Mapping[str, str] = _NOTHING
        self.per_broker: Mapping[str, str] = _NOTHING
        self._chosen = frozenset(static if chosen is None else chosen)
        self._places = places
        self._change_listeners: list[Callable[[frozenset[str]], None]] = []
        _check_of_listeners(self.static)
        self._texts, self._values = self._layered(_NOTHING, _NOTHING)
        self._topic_defaults = _topic_defaults(self._values)
        self.listeners: list[Listener] = read_listeners(self._values, self._texts)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str]) -> BrokerConfig:
        """From names and values, over Kafka's defaults."""
        return cls(settings)

    @classmethod
    def single_node(cls, overrides: Mapping[str, str] = _NOTHING) -> BrokerConfig:
        """From the single-node file that comes with Odradek, and overrides."""
        return cls(_overridden(read_properties_file(SINGLE_NODE_FILE), overrides), chosen=overrides)

    def __getitem__(self, name: str) -> Any:
        """A broker setting's typed value. KeyError for a name that is none."""
        return self._values[name]

    @property
    def broker_id(self) -> int:
        """broker.id, or -1 where the node is to choose one."""
        return int(self._values["broker.id"])  # type: ignore[arg-type]

    @property
    def log_dirs(self) -> list[str]:
        """The directories of log.dirs, else of log.dir; at least one."""
        return _directories(self._values)

    @property
    def given(self) -> Mapping[str, str]:
        """What is set in any layer, as text, by name; unknown names too."""
        return self._texts

    def topic_defaults(self) -> dict[str, Value]:
        """The typed value of every topic setting for a topic that has none of its own."""
        return dict(self._topic_defaults)

    def topic_values(self, overrides: Mapping[str, str]) -> dict[str, Value]:
        """The typed value of every topic setting for a topic with these of its own. Raises ConfigError."""
        values = self.topic_defaults()
        for name, text in overrides.items():
            setting = TOPIC.get(name)
            if setting is None:
                raise ConfigError(name, f"{name} is no topic setting")
            values[name] = parse_value(setting, text)
        check_topic_values(values)
        return values

    def check_topic_config(self, overrides: Mapping[str, str]) -> None:
        """Raises ConfigError unless a topic may be given these settings of its own."""
        values = self.topic_values(overrides)
        for name in TIERED_STORAGE:
            if values[name]:
                raise ConfigError(name, f"{name}=true: there is no tiered storage here")

    def log_config(self, topic_overrides: Mapping[str, str] = _NOTHING) -> LogConfig:
        """What the logs of a topic with these settings of its own go by. Raises ConfigError."""
        return LogConfig(self.topic_values(topic_overrides))

    # Dynamic settings

    def check_dynamic(self, settings: Mapping[str, str], *, per_broker: bool) -> None:
        """Raises ConfigError unless all settings would do with this layer replaced by `settings`.

        Settings of single listeners are not looked at: `check_of_listener`.
        """
        layers = (self.cluster_wide, settings) if per_broker else (settings, self.per_broker)
        texts, values = self._layered(*layers)
        read_listeners(values, texts)

    def apply_dynamic(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        """Replaces the two dynamic layers, then tells the change listeners which settings have other values now.

        What cannot be (an older release stored it, say) is left out and named in the log: a broker must come up.
        """
        cluster_wide, per_broker = self._usable(cluster_wide), self._usable(per_broker)
        before = self._values
        self._texts, self._values = self._layered(cluster_wide, per_broker)
        self._topic_defaults = _topic_defaults(self._values)
        self.cluster_wide, self.per_broker = MappingProxyType(cluster_wide), MappingProxyType(per_broker)
        changed = frozenset(name for name, value in self._values.items() if before[name] != value)
        for listener in self._change_listeners if changed else ():
            listener(changed)

    def on_change(self, listener: Callable[[frozenset[str]], None]) -> None:
        """Calls `listener` with the names of settings whose value has changed, from now on."""
        self._change_listeners.append(listener)

    # What the user should know

    def unknown_names(self) -> list[str]:
        """Names that the user set and that are no settings, sorted."""
        return sorted(name for name in self._chosen if broker_setting(name) is None)

    def names_without_effect(self) -> list[str]:
        """Settings that the user set and that change nothing yet, sorted."""
        return without_effect(self._chosen, broker_setting)

    def check_protection(self) -> None:
        """Raises ConfigError where a setting given at the start promises protection that is not there."""
        names = sorted(name for name, text in self.static.items() if promises_in_vain(name, text))
        if names:
            told = ", ".join(f"{name} ({self._places[name]})" if name in self._places else name for name in names)
            raise ConfigError(
                names[0],
                f"Odradek does not give the protection that these settings promise: {told}. "
                "Remove them if you can do without, as docs/security.md explains",
            )

    def warn(self) -> None:
        """One line in the log for unknown names and one for settings without effect, where there are any."""
        if unknown := self.unknown_names():
            log.warning("unknown settings are kept and not used", names=unknown)
        if idle := self.names_without_effect():
            log.warning("these settings have no effect yet", names=idle)

    def _layered(
        self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, Value]]:
        """Texts and typed values of all layers together (A). Raises ConfigError.

        The work does not grow with the names that are no settings: a client may have stored many.
        """
        texts = dict(self.static)
        for layer in (cluster_wide, per_broker):
            for name, setting in BROKER.items() if layer else ():
                for synonym in setting.synonyms if name in layer else ():
                    texts.pop(synonym.name, None)
            texts.update(layer)
        values = dict(_DEFAULTS)
        for name, setting in BROKER.items():
            if name in texts:
                values[name] = parse_value(setting, texts[name])
        check_broker_values({**values, "log.dirs": _directories(values)}, _topic_defaults(values))
        return texts, values

    def _usable(self, settings: Mapping[str, str]) -> dict[str, str]:
        usable: dict[str, str] = {}
        for name, text in settings.items():
            try:
                setting = broker_setting(name) or AUTHORIZER.get(name)
                if setting is not None and setting.promises_in_vain(parse_value(setting, text)):
                    raise ConfigError(name, f"{name} promises protection that Odradek does not give")
                if name in BROKER:
                    self._layered(_NOTHING, {name: text})
            except ConfigError as error:
                log.error("a stored setting cannot be used", name=name, reason=str(error))
            else:
                usable[name] = text
        return usable


def without_effect(names: Iterable[str], setting_of: Callable[[str], Setting | None]) -> list[str]:
    """Those of `names` that are settings which change nothing yet, sorted. A listener's own never do."""
    rows = ((name, setting_of(name)) for name in names)
    return sorted(
        name for name, setting in rows if setting is not None and not (setting.takes_effect and setting.name == name)
    )


def _check_of_listeners(texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        check_of_listener(name, text)


def _topic_defaults(values: Mapping[str, Any]) -> dict[str, Value]:
    """The first synonym with a value counts, times its multiplier. No retention below zero but -1."""
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


def _directories(values: Mapping[str, Any]) -> list[str]:
    text = values["log.dir"] if values["log.dirs"] is None else values["log.dirs"]
    return [part for part in (part.strip() for part in text.split(",")) if part]


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are two names of one thing: each stands for the other where only one is set."""
    texts = dict(static)
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in texts:
            texts.setdefault(other, texts[name])
    return texts


def _overridden(file: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """The file's settings under the overrides, without those that an override has another name for (B)."""
    texts = dict(file)
    for name in overrides:
        for synonym in BROKER[name].synonyms if name in BROKER else ():
            texts.pop(synonym.name, None)
        texts.pop(TWO_NAMES.get(name, name), None)
    return {**texts, **overrides}


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError("--set", f"--set {text}: name=value is needed")
    return name.strip(), value
