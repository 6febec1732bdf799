"""DescribeClientQuotas (key 48): the quotas that Apache Kafka's brokers and tools have stored (KIP-546).

(A) Odradek applies no quotas, and sets none: AlterClientQuotas (key 49) is not served. A broker with a metadata store
    of its own has none to show.
(B) INVALID_REQUEST: two components of the same entity type, one without a type, or `ip` together with another type.
    UNSUPPORTED_VERSION: a type of another name. UNKNOWN_SERVER_ERROR: an unknown match type, an exact match without a
    name, and a stored quota that is not a number. Kafka has no text for the latter.

Any broker answers, from the store itself. Source: Kafka's `ZkAdminManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from odradek.broker.cluster.stored_quotas import (
    CLIENT_ID,
    ENTRIES_PER_READ,
    IP,
    USER,
    AnyName,
    ExactName,
    NameFilter,
    QuotaEntity,
    QuotaFilter,
    StoredQuotas,
)
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.metadata_store.interface import StoreDamaged, StoreUnavailable
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

EXACT, DEFAULT, ANY = range(3)
"""The match types of a component."""
IN_TEXTS = {USER: "user", CLIENT_ID: "client", IP: "ip"}

Component = DescribeClientQuotasRequest.ComponentData
Described = DescribeClientQuotasResponse.EntryData
DescribedName = DescribeClientQuotasResponse.EntityData
DescribedQuota = DescribeClientQuotasResponse.ValueData

log = structlog.get_logger("broker.handlers")


class DescribeClientQuotasHandler:
    """DescribeClientQuotas (key 48)."""

    def __init__(self, quotas: StoredQuotas, max_response_bytes: int) -> None:
        self._quotas = quotas
        self._max_response_bytes = max_response_bytes

    async def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, context: RequestContext
    ) -> DescribeClientQuotasResponse:
        """Describes the entities that the filter selects and that have quotas."""
        wanted = QuotaFilter(_components(request.components), request.strict)
        try:
            return DescribeClientQuotasResponse(entries=await self._described(wanted))
        except StoreDamaged as error:
            log.error("stored quota is not a number", reason=str(error))
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        except StoreUnavailable as error:
            raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    async def _described(self, wanted: QuotaFilter) -> list[Described]:
        described: list[Described] = []
        size = AnswerSize(self._max_response_bytes)
        entities = await self._quotas.entities(wanted)
        for start in range(0, len(entities), ENTRIES_PER_READ):
            for entity, quotas in await self._quotas.quotas(entities[start : start + ENTRIES_PER_READ]):
                size.add(sum(map(len, entity.entries)) + sum(map(len, quotas)))
                described.append(_entry(entity, quotas))
            await asyncio.sleep(0)
        return described


def _components(components: Iterable[Component]) -> dict[str, NameFilter]:
    """Returns the components by entity type. Raises ProtocolError for one of the first four, or for none (B)."""
    found: dict[str, NameFilter] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind not in IN_TEXTS:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in found:
            text = f"Duplicate {IN_TEXTS[kind]} filter component entity type"
            raise ProtocolError(ErrorCode.INVALID_REQUEST, text)
        found[kind] = _name_filter(component)
    if IP in found and len(found) > 1:
        text = (
            "Invalid entity filter component combination, IP filter component should not be used with user or clientId "
            "filter component."
        )
        raise ProtocolError(ErrorCode.INVALID_REQUEST, text)
    return found


def _name_filter(component: Component) -> NameFilter:
    if component.match_type == ANY:
        return AnyName()
    if component.match_type == DEFAULT:
        return ExactName(None)
    if component.match_type != EXACT:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unexpected match type: {component.match_type}")
    if component.match is None:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "An exact match has no name")
    return ExactName(component.match)


def _entry(entity: QuotaEntity, quotas: dict[str, float]) -> Described:
    return Described(
        entity=[DescribedName(entity_type=kind, entity_name=name) for kind, name in entity.names],
        values=[DescribedQuota(key=key, value=value) for key, value in quotas.items()],
    )
