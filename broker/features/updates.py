"""Which changes of finalized levels are allowed. All updates of a request, or none, are carried out.

Source: Kafka's `FeatureControlManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.broker.features.features import OF_KRAFT, SUPPORTED
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Versions
from odradek.protocol.wire_codes import UpgradeType

Supporters = Mapping[int, Mapping[str, Versions]]
"""The levels that each broker has registered, by broker id."""


class FeatureUpdate(NamedTuple):
    """The new level of a feature, 0 for none. `kind` is an UpgradeType, unless the client made it up."""

    name: str
    level: int
    kind: int


def updated(levels: Mapping[str, int], updates: Iterable[FeatureUpdate], brokers: Supporters) -> dict[str, int]:
    """Returns the levels after the updates. Raises INVALID_UPDATE_VERSION."""
    after = dict(levels)
    for update in updates:
        fault = _fault(after, update, brokers)
        if fault:
            reason = f"No feature was updated: {update.name} cannot have level {update.level}, because {fault}"
            raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, reason)
        if update.name in OF_KRAFT:
            continue
        if update.level:
            after[update.name] = update.level
        else:
            after.pop(update.name, None)
    return after


def lacking(levels: Mapping[str, int], features: Mapping[str, Versions]) -> list[str]:
    """Returns the finalized features that a broker does not support, which has registered these. Those that this
    broker does not know either are left out.
    """
    return [
        name
        for name, level in levels.items()
        if name in SUPPORTED and (name not in features or level not in features[name])
    ]


def _fault(levels: Mapping[str, int], update: FeatureUpdate, brokers: Supporters) -> str:
    name, level, kind = update
    feature = SUPPORTED.get(name)
    current = feature.default if feature is not None and name in OF_KRAFT else levels.get(name, 0)
    if kind not in set(UpgradeType):
        return f"{kind} is no type of an update"
    if level < 0:
        return "levels begin with 0"
    if feature is None and name not in levels:
        return "this broker knows no such feature"
    if level == current:
        return ""
    if name in OF_KRAFT:
        return f"it is always {current} here"
    if level and (feature is None or level > feature.highest):
        return "this broker does not support it"
    if kind == UpgradeType.UPGRADE and level < current:
        return f"that is less than {current}, and the update is no downgrade"
    if kind != UpgradeType.UPGRADE and level > current:
        return f"that is more than {current}, and the update is a downgrade"
    without = [broker for broker, features in brokers.items() if level and lacking({name: level}, features)]
    if without:
        return f"it is not supported by broker {', '.join(map(str, without))}"
    return ""
