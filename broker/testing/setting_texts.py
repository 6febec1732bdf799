"""Settings as tests write them: Kafka's names as they are, or as keyword arguments with underscores."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.settings import BROKER
from odradek.broker.settings.config import broker_setting
from odradek.broker.testing.faults.names import nearest

ARGUMENTS = ("security", "data_dir", "snapshot", "time", "clock", "random", "files", "open_files", "journal")
"""What brokers are given beside settings."""


def setting_texts(settings: Mapping[str, object], more_settings: Mapping[str, object]) -> dict[str, str]:
    """Returns all settings as texts. `more_settings`, the keyword arguments of a test, have underscores for dots and
    override the others. Raises ValueError if one of them is unknown. Of `settings` a broker ignores unknown ones, as
    Kafka does.
    """
    named = {name.replace("_", "."): value for name, value in more_settings.items()}
    for name in named:
        if broker_setting(name) is None:
            raise ValueError(f"there is no setting {name}{nearest(name, (*ARGUMENTS, *BROKER))}")
    return {name: _text(value) for name, value in {**settings, **named}.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
