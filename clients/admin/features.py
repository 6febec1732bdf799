"""FeatureAdmin: shows the features of a cluster and changes their levels, over an `AdminClient` (KIP-584).

Each broker says which levels it supports, and which are finalized: all are asked, since a level can be raised only to
what every broker supports.

Source: Kafka's `FeatureCommand`, `KafkaAdminClient`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odradek import __version__
from odradek.clients.admin.client import AdminClient, check
from odradek.clients.network_client import SOFTWARE_NAME
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek.protocol.schema import Versions
from odradek.protocol.wire_codes import UpgradeType


class DescribedFeature(NamedTuple):
    """A feature: its finalized level, 0 if there is none, and the levels that each broker supports, by broker id. The
    brokers that do not know it are not in `supported`.
    """

    name: str
    finalized: int
    supported: dict[int, Versions]


class DescribedFeatures(NamedTuple):
    """The features by name. `epoch` counts the changes; it is negative if nothing was ever finalized."""

    epoch: int
    brokers: list[int]
    features: list[DescribedFeature]

    def raised(self) -> dict[str, int]:
        """Returns the highest levels that all brokers support, of the features that have a lower one."""
        highest = {
            feature.name: min(levels.highest for levels in feature.supported.values())
            for feature in self.features
            if len(feature.supported) == len(self.brokers)
        }
        return {each.name: highest[each.name] for each in self.features if highest.get(each.name, 0) > each.finalized}


class FeatureAdmin:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe(self) -> DescribedFeatures:
        """Returns all features that any broker knows, sorted by name. The finalized levels are the newest known."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        found: dict[int, ApiVersionsResponse] = {}
        for broker_id in await self._admin.broker_ids():
            found[broker_id] = await self._admin.ask_broker(broker_id, request)
            check(found[broker_id].error_code)
        newest = max(found.values(), key=lambda response: response.finalized_features_epoch)
        finalized = {feature.name: feature.max_version_level for feature in newest.finalized_features}
        supported: dict[str, dict[int, Versions]] = {name: {} for name in finalized}
        for broker_id, response in found.items():
            for each in response.supported_features:
                supported.setdefault(each.name, {})[broker_id] = Versions(each.min_version, each.max_version)
        features = [DescribedFeature(name, finalized.get(name, 0), supported[name]) for name in sorted(supported)]
        return DescribedFeatures(newest.finalized_features_epoch, list(found), features)

    async def update(self, levels: Mapping[str, int], kind: UpgradeType, *, validate_only: bool = False) -> None:
        """Finalizes new levels, all or none; 0 removes one. Raises INVALID_UPDATE_VERSION."""
        updates = [
            UpdateFeaturesRequest.FeatureUpdateKey(
                feature=name,
                max_version_level=level,
                allow_downgrade=kind != UpgradeType.UPGRADE,
                upgrade_type=kind,
            )
            for name, level in levels.items()
        ]
        request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
        response: UpdateFeaturesResponse = await self._admin.ask_controller(request)
        check(response.error_code, response.error_message)
        for result in response.results:
            check(result.error_code, result.error_message)
