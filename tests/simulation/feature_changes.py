"""An administrator of features: in some seeds it lowers and raises the levels of group.version and transaction.version
while groups and transactions are at work. At group.version 0 heartbeats of KIP-848 are refused, and members go; what
they have committed stays. In the end both have the levels with which they began."""

from __future__ import annotations

from odradek.broker.features.features import GROUP_VERSION, TRANSACTION_VERSION
from odradek.protocol.messages.features import UpdateFeaturesRequest
from tests.simulation.administration import ATTEMPTS, Administrator, Office
from tests.simulation.client.controller import ask_controller
from tests.simulation.history import Outcome, Request

FIRST = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
FEATURE_KEEPER = "feature-keeper"
UPGRADE, SAFE_DOWNGRADE = 1, 2
TIMEOUT_MS = 2000


class FeatureKeeper(Administrator):
    """Changes the levels of features."""

    def __init__(self, office: Office) -> None:
        super().__init__(office)
        self._levels = dict(FIRST)
        """The last levels that it has asked for."""

    async def run(self) -> None:
        """Does so until the end. Then it asks for the first levels until it has them."""
        while not self.is_ending:
            await self._pauses.pause()
            name = self._source.choice(list(FIRST))
            await self._update(name, self._source.randint(0, FIRST[name]))
        for name, level in FIRST.items():
            for _ in range(ATTEMPTS):
                if await self._update(name, level):
                    break
                await self._cluster.back_off()

    async def _update(self, name: str, level: int) -> bool:
        """Returns whether the feature has the level now, if nobody else changes it."""
        asked = self._history.begin(Request(process=self._name, what=f"give {name} level {level}"))
        is_done = False
        for kind in (UPGRADE, SAFE_DOWNGRADE):
            update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            request = UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update])
            (answer,) = await ask_controller(self._cluster, request, lambda response: [response.error_code], 1)
            is_done = is_done or answer.outcome is Outcome.OK
        self._history.end(asked, Outcome.OK if is_done else Outcome.UNKNOWN)
        return is_done
