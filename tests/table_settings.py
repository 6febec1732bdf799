"""The settings that a part of the broker reads, as the table has them by default."""

from __future__ import annotations

from typing import Any, Protocol, Self, TypeVar

from odradek.broker.settings.config import BrokerConfig

DEFAULTS = BrokerConfig.from_mapping({"broker.id": "0"})


class Part(Protocol):
    """A named tuple."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self: ...


P = TypeVar("P", bound=Part)


def of_table(part: type[P], **changed: Any) -> P:
    """Returns a part's settings, of which some are changed."""
    settings: Any = part.from_config(DEFAULTS)
    found: P = settings._replace(**changed)
    return found
