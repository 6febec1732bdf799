"""A client that may not create topics creates none at a broker that becomes the controller meanwhile, either."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.topics import CreateTopicsRequest
from tests.broker.handlers.scripted_authorizer import ScriptedAuthorizer, api_with, nothing


async def test_an_election_during_a_denied_creation_creates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="topic", num_partitions=1, replication_factor=1)
    async with api_with(ScriptedAuthorizer(nothing)) as api:
        terms, turns = api.broker.controller.terms, api.broker.background.turns
        term, terms.term = terms.term, None
        take = turns.take

        async def elected_meanwhile(work: Any) -> Any:
            terms.term = term
            return await take(work)

        monkeypatch.setattr(turns, "take", elected_meanwhile)
        response = await api(CreateTopicsRequest(topics=[topic]), 7)
        assert terms.term is term
        assert [result.error_code for result in response.topics] == [ErrorCode.NOT_CONTROLLER]
        assert not list(api.broker.metadata.topic_names())
