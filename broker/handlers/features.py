"""UpdateFeatures (key 57): raises and lowers the levels of the cluster's features (KIP-584).

All updates of a request are carried out, or none, and an error is that of the whole request, in every version, as in
Kafka 4. Version 0 has no types: a downgrade that it allows is a safe one. Source: Kafka's `ControllerApis`.
"""

from __future__ import annotations

from odradek.broker.features.updates import FeatureUpdate
from odradek.broker.metadata.administration import FeatureAdministration
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.features import UpdateFeaturesRequest, UpdateFeaturesResponse
from odradek.protocol.wire_codes import UpgradeType

LAST_VERSION_WITH_RESULTS = 1


class UpdateFeaturesHandler:
    """UpdateFeatures."""

    def __init__(self, administration: FeatureAdministration) -> None:
        self._administration = administration

    async def update_features(self, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
        """Raises INVALID_UPDATE_VERSION, KAFKA_STORAGE_ERROR, NOT_CONTROLLER."""
        updates = [
            FeatureUpdate(
                each.feature,
                each.max_version_level,
                UpgradeType.SAFE_DOWNGRADE if each.allow_downgrade else each.upgrade_type,
            )
            for each in request.feature_updates
        ]
        await self._administration.update(updates, validate_only=request.validate_only)
        response = UpdateFeaturesResponse(error_message=None)
        if context.api_version <= LAST_VERSION_WITH_RESULTS:
            result, text = UpdateFeaturesResponse.UpdatableFeatureResult, ErrorCode.NONE.name
            response.results = [result(feature=each.name, error_message=text) for each in updates]
        return response
