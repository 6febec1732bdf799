"""The audit log: what is logged of the authorizer's decisions."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from odradek.broker.background.stepwise import finished
from odradek.broker.handlers.access import Check, DecidedAccess
from odradek.broker.handlers.audit_log import AuditLog
from odradek.broker.logging.structured_logging import configure_logging
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.timer import ManualClock
from tests.broker.handlers.scripted_authorizer import ScriptedAuthorizer, everything, nothing

TOPIC = AclResourceType.TOPIC
READ_TOPIC = Check(AclOperation.READ, TOPIC)
LISTENER = Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092, "", 9092)


def context(host: str = "127.0.0.1") -> RequestContext:
    connection = ConnectionInfo(LISTENER, host, 5000)
    connection.principal = "User:alice"
    return RequestContext(connection, ApiKey.FETCH, 12, 1, "shop", 0)


class Logged:
    """The log at a level; `clock` is that of the rate."""

    def __init__(self, level: str) -> None:
        self._stream = io.StringIO()
        configure_logging(lambda: 0, stream=self._stream, level=level, as_json=True, is_final=False)
        self.clock = ManualClock()
        self.authorizer = ScriptedAuthorizer()
        self.access = DecidedAccess(self.authorizer, AuditLog(self.clock))

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


pytestmark = pytest.mark.usefixtures("_as_it_was")


def test_a_denial_says_who_wanted_what_and_by_which_api() -> None:
    logged = Logged("INFO")
    logged.authorizer.change(nothing)
    assert not logged.access.allows(context("::1"), READ_TOPIC, "orders")
    (line,) = logged.lines()
    assert line["level"] == "info"
    assert line["logger"] == "broker.authorizer"
    assert line["event"] == "operation denied"
    assert {name: line[name] for name in ("principal", "host", "operation", "resource_type", "resource", "api")} == {
        "principal": "User:alice",
        "host": "0:0:0:0:0:0:0:1",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource": "orders",
        "api": "FETCH",
    }


def test_what_is_allowed_is_logged_at_debug_only() -> None:
    for level, count in (("INFO", 0), ("DEBUG", 1)):
        logged = Logged(level)
        assert logged.access.allows(context(), READ_TOPIC, "orders")
        assert [line["event"] for line in logged.lines()] == ["operation allowed"] * count


def test_a_logger_of_the_host_program_may_lack_what_ours_has() -> None:
    structlog.configure(wrapper_class=structlog.BoundLogger, processors=[lambda _, __, event: str(event)])
    access = DecidedAccess(ScriptedAuthorizer(), AuditLog(ManualClock()))
    assert access.allows(context(), READ_TOPIC, "orders")


def test_what_merely_filters_is_no_denial() -> None:
    logged = Logged("DEBUG")
    logged.authorizer.change(nothing)
    assert not logged.access.allows(context(), READ_TOPIC.as_filter, "orders")
    seen = finished(logged.access.allowed(context(), READ_TOPIC.as_filter, ["orders"]))
    assert "orders" not in seen
    assert logged.access.operations(context(), TOPIC, "orders") == 0
    assert logged.lines() == []


def test_a_flood_of_denials_is_logged_at_a_rate_and_counted() -> None:
    logged = Logged("INFO")
    logged.authorizer.change(nothing)
    for _ in range(5000):
        logged.access.allows(context(), READ_TOPIC, "orders")
    assert len(logged.lines()) == 1000
    logged.clock.advance(1000)
    logged.access.allows(context(), READ_TOPIC, "orders")
    assert logged.lines()[-1]["suppressed"] == 4000


def test_a_name_is_decided_and_logged_once_for_a_request() -> None:
    logged = Logged("DEBUG")
    logged.authorizer.change(everything)
    finished(logged.access.allowed(context(), READ_TOPIC, ["orders", "orders", "bills"]))
    assert [line["resource"] for line in logged.lines()] == ["orders", "bills"]
