"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bool_, float64, int8, int16, int32, message, string


@message(api_key=48, kind="request", versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest(Message):
    """A filter of entity types (user, client-id, ip) and names."""

    class ComponentData(Message):
        entity_type: str = string()
        match_type: int = int8()
        match: str | None = string(nullable=ALWAYS)

    components: list[ComponentData] = array()
    strict: bool = bool_()


@message(api_key=48, kind="response", versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse(Message):
    """The quotas of each entity."""

    class EntityData(Message):
        entity_type: str = string()
        entity_name: str | None = string(nullable=ALWAYS)

    class ValueData(Message):
        key: str = string()
        value: float = float64()

    class EntryData(Message):
        entity: list[DescribeClientQuotasResponse.EntityData] = array()
        values: list[DescribeClientQuotasResponse.ValueData] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    entries: list[EntryData] | None = array(nullable=ALWAYS)


@message(api_key=49, kind="request", versions=(0, 1), flexible=1)
class AlterClientQuotasRequest(Message):
    """Quotas to set or remove."""

    class EntityData(Message):
        entity_type: str = string()
        entity_name: str | None = string(nullable=ALWAYS)

    class OpData(Message):
        key: str = string()
        value: float = float64()
        remove: bool = bool_()

    class EntryData(Message):
        entity: list[AlterClientQuotasRequest.EntityData] = array()
        ops: list[AlterClientQuotasRequest.OpData] = array()

    entries: list[EntryData] = array()
    validate_only: bool = bool_()


@message(api_key=49, kind="response", versions=(0, 1), flexible=1)
class AlterClientQuotasResponse(Message):
    """Whether each entity's quotas were changed."""

    class EntityData(Message):
        entity_type: str = string()
        entity_name: str | None = string(nullable=ALWAYS)

    class EntryData(Message):
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)
        entity: list[AlterClientQuotasResponse.EntityData] = array()

    throttle_time_ms: int = int32()
    entries: list[EntryData] = array()
