"""The answers of a broker to one request of every API and version, all of which a fault fails."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode
from odradek.protocol.documents import from_document
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.registry import request_class
from odradek.testing import BrokerThread
from odradek.testing.faults.names import api_name
from tests.base_requests import Document, Known, base_request
from tests.wire.blocking_client import Client, RawClient

CODE = "THROTTLING_QUOTA_EXCEEDED"
"""One that no request of the test gets without a fault."""
CORRELATION_ID = 77


class Failed(NamedTuple):
    api: str
    key: int
    version: int
    frame: bytes


def failed_answers(*, handled: bool = False) -> Iterator[Failed]:
    """Yields the answers, encoded, without their length. `handled`: the broker handles the requests before, which it
    does not do with those that clients may not send.
    """
    with BrokerThread(odradek_client_metrics_enable=True) as broker:
        with Client(broker.bootstrap) as client:
            client.create("known")
        known = Known(topic_id=broker.broker.metadata.topic_id("known"))
        for row in broker.broker.api_table.rows():
            name = api_name(row)
            fault = broker.faults.add(api=name, error=CODE, handled=handled)
            is_for_clients = row.served.highest >= 0
            if handled and not is_for_clients:
                fault.remove()
                continue
            versions = row.served if is_for_clients else row.between_brokers
            for version in range(versions.lowest, versions.highest + 1):
                yield Failed(name, int(row.key), version, _answer(broker.bootstrap, row.key, version, known))
            assert fault.hits == versions.highest - versions.lowest + 1, fault
            fault.remove()


def _answer(bootstrap: str, key: ApiKey, version: int, known: Known) -> bytes:
    document: Document = base_request(int(key), version, known)
    header = RequestHeader(
        request_api_key=int(key), request_api_version=version, correlation_id=CORRELATION_ID, client_id="raw"
    )
    body = encode(from_document(request_class(key), version, _as_json(document)), version)
    with RawClient(bootstrap) as client:
        return client.call(encode(header, request_header_version(key, version)) + body)


def _as_json(value: object) -> object:
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value) if isinstance(value, UUID) else value
