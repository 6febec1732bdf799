"""The levels of the cluster's features, as this broker knows them."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.broker.features.features import OF_KRAFT, Feature

NO_EPOCH = -1


class FinalizedFeatures:
    """What handlers and coordinators ask. `supported`: the features that clients of this node find."""

    def __init__(self, supported: Mapping[str, Feature]) -> None:
        self.supported = supported
        self.levels: dict[str, int] = {}
        """The level in which this node speaks to clients, by feature; one that is missing has level 0."""
        self.epoch = NO_EPOCH
        """The version of the stored levels."""
        self.put({}, NO_EPOCH)

    def put(self, levels: Mapping[str, int], epoch: int) -> None:
        """Takes the levels as they are stored, so far as this node supports them."""
        self.epoch = epoch
        self.levels.clear()
        for name, feature in self.supported.items():
            level = feature.default if name in OF_KRAFT else min(levels.get(name, 0), feature.highest)
            if level:
                self.levels[name] = level
