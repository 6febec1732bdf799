"""UpdateFeatures (key 57): raises and lowers the levels of finalized features (KIP-584)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bool_, int8, int16, int32, message, since, string, until


@message(api_key=57, kind="request", versions=(0, 2), flexible=0)
class UpdateFeaturesRequest(Message):
    """New levels, 0 to remove one; `upgrade_type` 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    class FeatureUpdateKey(Message):
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = bool_(versions=until(0))
        upgrade_type: int = int8(default=1, versions=since(1))

    timeout_ms: int = int32(default=60000, name="timeoutMs")
    feature_updates: list[FeatureUpdateKey] = array()
    validate_only: bool = bool_(versions=since(1))


@message(api_key=57, kind="response", versions=(0, 2), flexible=0)
class UpdateFeaturesResponse(Message):
    """Whether the features were updated; up to v1 for each feature."""

    class UpdatableFeatureResult(Message):
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    results: list[UpdatableFeatureResult] = array(versions=until(1))
