"""Which features there are, and the levels that this broker supports.

(A) A feature whose protocol is not served has no level above 0. It is not listed.
(B) The features of KRaft have one level, that of the newest release. Brokers neither register nor store them, since
    nothing here depends on them: clients see them as they do on every broker of the release.
(C) Releases before 4.0 had no features on ZooKeeper: with `odradek.as.version` clients of this node find none, and it
    serves them as if each had level 0.

Source: Kafka's `Feature`, `MetadataVersion` and `KRaftVersion`; running brokers of 4.0 to 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek.broker.settings.config import ConfigError
from odradek.broker.settings.odradek import RELEASES, is_before
from odradek.protocol.schema import Versions

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
"""1: groups whose assignments the broker makes (KIP-848)."""
TRANSACTION_VERSION = "transaction.version"
"""1: tagged fields in the log of transactions; 2: an epoch for each transaction (KIP-890)."""
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
ELIGIBLE_LEADER_REPLICAS_VERSION = "eligible.leader.replicas.version"

SETTING = "odradek.initial.features"
OF_KRAFT = frozenset({METADATA_VERSION, KRAFT_VERSION})
"""See (B)."""


class Feature(NamedTuple):
    """The levels of a feature that are supported, and the one that a new cluster begins with."""

    lowest: int
    highest: int
    default: int


SUPPORTED: dict[str, Feature] = {
    METADATA_VERSION: Feature(7, 33, 33),
    KRAFT_VERSION: Feature(0, 1, 1),
    GROUP_VERSION: Feature(0, 1, 1),
    TRANSACTION_VERSION: Feature(0, 2, 2),
    SHARE_VERSION: Feature(0, 0, 0),
    STREAMS_VERSION: Feature(0, 0, 0),
    ELIGIBLE_LEADER_REPLICAS_VERSION: Feature(0, 0, 0),
}
"""What this broker supports (A)."""

FIRST_RELEASE = "4.0"
NONE = "-"
#   4.0, 4.1, 4.2, 4.3, 4.4
RELEASED = {
    METADATA_VERSION: "25/25 27/27 29/29 30/30 33/33",
    KRAFT_VERSION: "1/1 1/1 1/1 1/1 1/1",
    GROUP_VERSION: "1/1 1/1 1/1 1/1 1/1",
    TRANSACTION_VERSION: "2/2 2/2 2/2 2/2 2/2",
    SHARE_VERSION: "- 1/0 1/1 1/1 2/2",
    STREAMS_VERSION: "- - 1/1 1/1 1/1",
    ELIGIBLE_LEADER_REPLICAS_VERSION: "1/0 1/1 1/1 1/1 1/1",
}
"""The highest level and the default of each release."""


def of_release(release: str | None) -> dict[str, Feature]:
    """Returns what a broker supports that clients find as one of RELEASES, or None for itself (C)."""
    if release is None:
        return SUPPORTED
    if is_before(release, FIRST_RELEASE):
        return {}
    column = RELEASES.index(release) - RELEASES.index(FIRST_RELEASE)
    cells = {name: levels.split()[column] for name, levels in RELEASED.items()}
    return {name: _capped(SUPPORTED[name], cell) for name, cell in cells.items() if cell != NONE}


def _capped(feature: Feature, cell: str) -> Feature:
    highest, default = map(int, cell.split("/"))
    return Feature(feature.lowest, min(feature.highest, highest), min(feature.default, default))


def registered() -> dict[str, Versions]:
    """Returns the features that a broker registers."""
    return {
        name: Versions(feature.lowest, feature.highest)
        for name, feature in SUPPORTED.items()
        if feature.highest > 0 and name not in OF_KRAFT
    }


def first_levels(release: str | None, chosen: Sequence[str] = ()) -> Mapping[str, int]:
    """Returns the levels that a new cluster begins with: the defaults of the release, or what SETTING has
    (NAME=LEVEL). Raises ConfigError.
    """
    first = {name: feature.default for name, feature in of_release(release).items() if name not in OF_KRAFT}
    for text in chosen:
        name, _, level = text.partition("=")
        feature = SUPPORTED.get(name)
        if feature is None or name in OF_KRAFT:
            known = ", ".join(name for name in SUPPORTED if name not in OF_KRAFT)
            raise ConfigError(SETTING, f"{SETTING}={text} names none of the features {known}")
        if not level.isdecimal() or not feature.lowest <= int(level) <= feature.highest:
            levels = f"{feature.lowest} to {feature.highest}"
            raise ConfigError(SETTING, f"{SETTING}={text} is not possible: the levels of this feature are {levels}")
        first[name] = int(level)
    return {name: level for name, level in first.items() if level}
