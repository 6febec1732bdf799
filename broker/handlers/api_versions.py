"""ApiVersions (key 18): returns the APIs and versions of this listener and records the client's software.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the supported range, so that the client can
retry (KIP-511). From version 3 on clients send the name and version of their software; malformed ones are
INVALID_REQUEST, as in Kafka, and get the features of the broker and the cluster (KIP-584). From version 5 on a client
that knows the cluster and the node names both: another one is REBOOTSTRAP_REQUIRED, only one of them INVALID_REQUEST
(KIP-1242). The inter-broker listener also shows the requests between brokers, to all, as Kafka does:
Apache's brokers call themselves as its clients do. With odradek.as.version it shows the versions of Fetch and others
that brokers use to Odradek's brokers alone: clients find those of the release.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from odradek.broker.features.finalized import NO_EPOCH, FinalizedFeatures
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.peers.inter_broker_protocol import BROKER_SOFTWARE
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.schema import NEVER, Versions

FIRST_VERSION_WITH_SOFTWARE = 3
FIRST_VERSION_WITH_LEVEL_0 = 4
"""Older clients take a range of levels that begins with 0 for damaged (KAFKA-17011)."""
ANY_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ServedApi(Protocol):
    """The columns of the API table that ApiVersions lists."""

    @property
    def key(self) -> ApiKey: ...

    @property
    def served(self) -> Versions: ...

    @property
    def between_brokers(self) -> Versions: ...


class ApiVersionsHandler:
    """ApiVersions (key 18). `broker_listeners`: see `Dispatcher`. Without `has_features`, as in releases before
    KIP-584, there is no epoch of the features.
    """

    def __init__(
        self,
        apis: Sequence[ServedApi],
        broker_listeners: frozenset[str],
        metadata: MetadataCache,
        features: FinalizedFeatures,
        *,
        has_features: bool,
    ) -> None:
        self._apis = apis
        self._broker_listeners = broker_listeners
        self._metadata = metadata
        self._features = features
        self._has_features = has_features

    def api_versions(self, request: ApiVersionsRequest | None, context: RequestContext) -> ApiVersionsResponse:
        """`request` is None if its version is unknown."""
        if request is None:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=self._own_range())
        if context.api_version >= FIRST_VERSION_WITH_SOFTWARE:
            software = (request.client_software_name, request.client_software_version)
            if not all(_SOFTWARE.fullmatch(text) for text in software):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if (request.cluster_id is None) != (request.node_id == ANY_NODE):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if request.cluster_id is not None and not self._is_meant(request):
                return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
            context.connection.client_software = software
        if context.connection.authentication is not None:
            context.connection.authentication.versions_sent()
        shown = [(row.key, self._shown(row, context)) for row in self._apis]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=versions.lowest, max_version=versions.highest)
                for key, versions in shown
                if versions != NEVER
            ],
            supported_features=[
                ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=each.lowest, max_version=each.highest)
                for name, each in self._features.supported.items()
                if each.highest and (each.lowest or context.api_version >= FIRST_VERSION_WITH_LEVEL_0)
            ],
            finalized_features_epoch=self._features.epoch if self._has_features else NO_EPOCH,
            finalized_features=[
                ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in self._features.levels.items()
            ],
        )

    def _is_meant(self, request: ApiVersionsRequest) -> bool:
        return (request.cluster_id, request.node_id) == (self._metadata.cluster_id, self._metadata.broker_id)

    def _own_range(self) -> list[ApiVersionsResponse.ApiVersion]:
        """A release before 2.4 does not show it (KIP-511)."""
        own = next(row.served for row in self._apis if row.key == ApiKey.API_VERSIONS)
        if own.highest < FIRST_VERSION_WITH_SOFTWARE:
            return []
        return [ApiVersionsResponse.ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=own.highest)]

    def _shown(self, row: ServedApi, context: RequestContext) -> Versions:
        if row.between_brokers == NEVER or context.connection.listener.name not in self._broker_listeners:
            return row.served
        return row.between_brokers if row.served == NEVER or _is_broker(context) else row.served


def _is_broker(context: RequestContext) -> bool:
    """Whether it is one of ours. Before version 3, the client id is the software's name (network_client.py)."""
    software = context.connection.client_software
    return (context.client_id if software is None else software[0]) == BROKER_SOFTWARE
