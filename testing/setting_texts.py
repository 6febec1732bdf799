"""Settings as tests write them: Kafka's names as they are, or as keyword arguments with underscores.

A name that no broker knows is a ValueError, which names those most like it: a test that sets nothing by a typo would
pass or fail for another reason. A file of `odradek serve` may have such names, as Kafka's may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.broker.settings import AUTHORIZER, BROKER, TOPIC
from odradek.broker.settings.config import is_known_at_start
from odradek.testing.faults.names import nearest

ARGUMENTS = (
    "security",
    "port",
    "data_dir",
    "snapshot",
    "time",
    "clock",
    "random",
    "files",
    "open_files",
    "journal",
    "loop_factory",
    "brokers",
    "settings_of",
)
"""What brokers and clusters are given beside settings."""
FEW_PARTITIONS: Mapping[str, str] = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}
"""A first group or transaction of a test need not wait for 50."""


def setting_texts(settings: Mapping[str, object], more_settings: Mapping[str, object]) -> dict[str, str]:
    """Returns all settings as texts. `more_settings`, the keyword arguments of a test, have underscores for dots and
    override the others. Raises ValueError if one of them is unknown.
    """
    if not isinstance(settings, Mapping):
        raise TypeError(f"settings are a dict of names and values, or keyword arguments, not {settings!r}")
    named = {name.replace("_", "."): value for name, value in more_settings.items()}
    _expect_known(named, (*ARGUMENTS, *BROKER, *AUTHORIZER))
    _expect_known(settings, (*BROKER, *AUTHORIZER))
    return _texts({**settings, **named})


def topic_setting_texts(configs: Mapping[str, object]) -> dict[str, str]:
    """Returns the settings of a topic as texts. Raises ValueError if one of them is unknown."""
    for name in configs:
        if name not in TOPIC:
            raise ValueError(f"there is no setting {name} of topics{nearest(str(name), TOPIC)}")
    return _texts(configs)


def _expect_known(names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if not is_known_at_start(str(name)):
            raise ValueError(f"there is no setting {name}{nearest(str(name), known)}")


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in settings.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
