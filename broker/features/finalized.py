"""The levels of the cluster's features, as this broker knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from odradek.broker.features.features import OF_KRAFT, Feature

NO_EPOCH = -1


class FinalizedFeatures:
    """What handlers and coordinators ask. `supported`: the features that clients of this node find."""

    def __init__(self, supported: Mapping[str, Feature]) -> None:
        self.supported = supported
        self.levels: Mapping[str, int] = {}
        """As stored. A feature that is not in here has level 0."""
        self.epoch = NO_EPOCH
        """The version of the stored levels."""
        self.listeners: list[Callable[[str, int], object]] = []
        """Called with the name and the new `level` of a feature, after it has changed."""

    def level(self, name: str) -> int:
        """Returns the level in which this node speaks to clients; 0: the feature is not finalized, or not supported."""
        feature = self.supported.get(name)
        if feature is None:
            return 0
        return feature.default if name in OF_KRAFT else min(self.levels.get(name, 0), feature.highest)

    def finalized(self) -> Iterator[tuple[str, int]]:
        """Yields the features that have a level."""
        for name in self.supported:
            if level := self.level(name):
                yield name, level

    def put(self, levels: Mapping[str, int], epoch: int) -> None:
        """Takes what is stored."""
        before = dict(self.finalized())
        self.levels, self.epoch = levels, epoch
        for name in self.supported:
            if (level := self.level(name)) != before.get(name, 0):
                for listener in self.listeners:
                    listener(name, level)
