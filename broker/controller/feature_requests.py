"""Requests that change the levels of the cluster's features."""

from __future__ import annotations

from collections.abc import Collection

from odradek.broker.controller.terms import Terms
from odradek.broker.features.updates import FeatureUpdate


class FeatureRequests:
    """The requests to the controller with this `terms`."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    async def update(self, updates: Collection[FeatureUpdate], *, validate_only: bool) -> None:
        """Carries out all updates, or none; then this broker has the new levels. Raises INVALID_UPDATE_VERSION,
        KAFKA_STORAGE_ERROR, NOT_CONTROLLER.
        """
        await self._terms.ask(
            "update of features", lambda term: term.features.update(updates, validate_only=validate_only)
        )
