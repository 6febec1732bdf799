"""Settings as tests write them: Kafka's names as they are, or as keyword arguments with underscores."""

from __future__ import annotations

from collections.abc import Mapping


def setting_texts(settings: Mapping[str, object], more_settings: Mapping[str, object]) -> dict[str, str]:
    """Returns all settings as texts; `more_settings` have underscores for dots, and override the others."""
    named = {name.replace("_", "."): value for name, value in more_settings.items()}
    return {name: _text(value) for name, value in {**settings, **named}.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
