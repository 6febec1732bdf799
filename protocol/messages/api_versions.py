"""ApiVersions (key 18): the APIs that a broker serves."""

from __future__ import annotations

from odradek.protocol.schema import Message, array, bool_, int16, int32, int64, message, since, string


@message(api_key=18, kind="request", versions=(0, 5), flexible=3)
class ApiVersionsRequest(Message):
    """The first request of a connection; from v3 with the name and version of the client, from v5 with the broker
    that it expects: the cluster id, and the node id, -1 for any.
    """

    client_software_name: str = string(versions=since(3))
    client_software_version: str = string(versions=since(3))
    cluster_id: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-1242
    node_id: int = int32(default=-1, versions=since(5))  # KIP-1242


@message(api_key=18, kind="response", versions=(0, 5), flexible=3)
class ApiVersionsResponse(Message):
    """The range of versions of each API, and the features."""

    class ApiVersion(Message):
        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    class SupportedFeatureKey(Message):
        name: str = string(versions=since(3))  # KIP-511
        min_version: int = int16(versions=since(3))  # KIP-511
        max_version: int = int16(versions=since(3))  # KIP-511

    class FinalizedFeatureKey(Message):
        name: str = string(versions=since(3))  # KIP-511
        max_version_level: int = int16(versions=since(3))  # KIP-511
        min_version_level: int = int16(versions=since(3))  # KIP-511

    error_code: int = int16()
    api_keys: list[ApiVersion] = array()
    throttle_time_ms: int = int32(versions=since(1))
    supported_features: list[SupportedFeatureKey] = array(versions=since(3), tag=0)  # KIP-511
    finalized_features_epoch: int = int64(default=-1, versions=since(3), tag=1)  # KIP-511
    finalized_features: list[FinalizedFeatureKey] = array(versions=since(3), tag=2)  # KIP-511
    zk_migration_ready: bool = bool_(versions=since(3), tag=3)  # KIP-511
